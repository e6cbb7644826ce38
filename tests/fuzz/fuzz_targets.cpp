// SPDX-License-Identifier: Apache-2.0

// Targets of libFuzzer, one for each reader of what strangers write: ./scripts/fuzz TARGET SECONDS. An input
// is read or refused with a UserError; anything else is a finding, and so is what the sanitizers see.

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "core/plan.h"
#include "frameworks/readers/python_file.h"
#include "frameworks/readers/shell_words.h"
#include "frameworks/readers/yaml_file.h"
#include "frameworks/registry.h"
#include "models/zoo.h"
#include "planner/diagnose/run_log.h"
#include "planner/door/door.h"
#include "planner/observe/observed_run.h"
#include "planner/recipes/check.h"
#include "profiler/hardware/cluster_file.h"
#include "profiler/hardware/kernel_profile.h"
#include "profiler/hardware/profile.h"
#include "tests/support/make_plan.h"

namespace mpt {
namespace {

// In memory where the system has such a folder: an input is a file for some readers.
const std::string& scratch_folder() {
  static const std::string folder = [] {
    std::string name =
        std::filesystem::exists("/dev/shm") ? "/dev/shm/mpt-fuzz-XXXXXX" : "/tmp/mpt-fuzz-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) std::abort();
    return name;
  }();
  return folder;
}

std::string put(const std::string& name, const std::string& text) {
  const std::string file = scratch_folder() + "/" + name;
  std::FILE* const out = std::fopen(file.c_str(), "wb");
  std::fwrite(text.data(), 1, text.size(), out);
  std::fclose(out);
  return file;
}

// As mpt-plan check does, with no word of the file left out.
void check_as(const char* name, const std::string& text) {
  PlanRequest asked;
  asked.cluster.name = "dgx-h100:8";
  asked.threads = 1;
  planner::check_files({{put(name, text), name}}, asked);
}

int stop_at_once(void*) { return 1; }

// The door answers each text, with JSON that has an answer or an error, and never with a defect.
void ask(const std::string& text) {
  char* const answer = mpt_answer(text.c_str(), nullptr, stop_at_once, nullptr);
  const Json read = Json::parse(answer);
  mpt_free(answer);
  const auto error = read.find("error");
  if (error == read.end() ? !read.contains("answer") : error->at("kind") == "defect") {
    std::fprintf(stderr, "%s\n", read.dump(1).c_str());
    std::abort();
  }
}

const Plan& some_plan() {
  static const Plan plan = [] {
    test::WantedPlan wanted{test::little_gpt(), {8, 16}};
    wanted.pipeline = wanted.data = 2;
    return test::make_plan(wanted);
  }();
  return plan;
}

using Target = std::function<void(const std::string&)>;
const std::map<std::string, Target>& targets() {
  static const std::map<std::string, Target> all{
      {"answer", ask},
      {"shell",
       [](const std::string& text) {
         WorkBudget budget("script.sh", 1 << 20);
         frameworks::shell_commands(text, "script.sh", budget);
         frameworks::shell_variables(text, "script.sh", budget);
         frameworks::argument_words(text, budget);
       }},
      {"python",
       [](const std::string& text) {
         WorkBudget budget("file.py", 1 << 20);
         frameworks::python_file(text, budget);
       }},
      {"yaml",
       [](const std::string& text) {
         WorkBudget budget("file.yaml", 1 << 20);
         frameworks::yaml_value(text, budget);
       }},
      {"script", [](const std::string& text) { check_as("run.sh", text); }},
      {"titan", [](const std::string& text) { check_as("config_registry.py", text); }},
      {"recipe", [](const std::string& text) { check_as("recipe.yaml", text); }},
      {"json", [](const std::string& text) { check_as("recipe.json", text); }},
      {"config",
       [](const std::string& text) {
         const models::ImportedModel read =
             models::read_model(parse_json(text, "config.json"), "config.json");
         model_spec_to_text(read.model);
       }},
      {"cluster",
       [](const std::string& text) { profiler::read_cluster_file(parse_json(text, "c.json"), "c.json"); }},
      {"log", [](const std::string& text) { planner::read_run_log(text, "run.log", some_plan()); }},
      {"observed",
       [](const std::string& text) { planner::read_observed(put("observed.txt", text), "--observed", ""); }},
      {"kernels",
       [](const std::string& text) {
         profiler::KernelProfile profile;
         profiler::import_times(profile, put("times.txt", text), {});
       }},
      {"profile", [](const std::string& text) { profiler::load_profile(put("profile.json", text)); }},
      {"plan", [](const std::string& text) { plan_from_text(text, "plan.json"); }}};
  return all;
}

const Target* chosen = nullptr;

}  // namespace
}  // namespace mpt

extern "C" int LLVMFuzzerInitialize(int* count, char*** words) {
  for (int i = 1; i < *count; ++i) {
    const std::string word = (*words)[i];
    if (word.rfind("--target=", 0) != 0) continue;
    const auto found = mpt::targets().find(word.substr(9));
    if (found != mpt::targets().end()) mpt::chosen = &found->second;
  }
  if (mpt::chosen != nullptr) return 0;
  for (const auto& [name, target] : mpt::targets()) std::printf("%s\n", name.c_str());
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    (*mpt::chosen)(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const mpt::UserError&) {
  }
  return 0;
}
