// SPDX-License-Identifier: Apache-2.0

// mpt-plan check: whether every recipe of a folder is legal for its framework and fits, and its cost.

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <memory>
#include <set>

#include "base/clock.h"
#include "base/command_line.h"
#include "base/error.h"
#include "base/json.h"
#include "base/quantity.h"
#include "planner/commands/commands.h"
#include "planner/recipes/check_report.h"

namespace mpt::planner {
namespace {

struct CheckOptions {
  std::vector<std::string> paths;
  std::string base, root = ".", junit, sarif, json;
  bool verbose = false, allow_unread = false, untrusted = false;
  PlanRequest request;
};

// What one file of strangers may take: seconds of a processor, seconds, and bytes of address space.
struct Share {
  unsigned cpu_s = 20, seconds = 120;
  int64_t bytes = int64_t{1} << 30;
};

constexpr int kNoMemoryLeft = 3;  // exit code of the process

void bound(const Share& share) {
  const rlimit time{share.cpu_s, share.cpu_s + 1};
  ::setrlimit(RLIMIT_CPU, &time);
  ::alarm(share.seconds);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // these map more than any bound
  const rlimit memory{rlim_t(share.bytes), rlim_t(share.bytes)};
  ::setrlimit(RLIMIT_AS, &memory);
#endif
}

// Ends the process without the program's own exit, which would print buffered text again.
[[noreturn]] void answer_and_end(int out, const Share& share, const std::function<std::string()>& answer) {
  bound(share);
  try {
    ::_exit(write_all(out, answer()) ? kExitOk : kExitRunFailed);
  } catch (const std::bad_alloc&) {
    ::_exit(kNoMemoryLeft);
  }
}

std::string failure_of(int status, const Share& share) {
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (status == 0) return "";
  if (signal == SIGXCPU) return fmt::format("it needs over {} s of a processor", share.cpu_s);
  if (signal == SIGALRM) return "the time for all files was over";
  // The system kills with SIGKILL where the machine's own memory ends.
  if (signal == SIGKILL || (signal == 0 && WEXITSTATUS(status) == kNoMemoryLeft))
    return fmt::format("it needs over {} of memory", format_bytes(double(share.bytes)));
  return fmt::format("reading it ended with signal {}, a defect of this program", signal);
}

struct AnswerApart {
  std::string text, failure;  // failure: in words, where the process ended without an answer
};

// An answer from a child process, so that it cannot take the memory or time of others, nor end them all. Call
// it before the program has threads.
AnswerApart answer_apart(const Share& share, const std::function<std::string()>& answer) {
  if (share.seconds == 0) return {"", failure_of(SIGALRM, share)};
  int ends[2];
  const pid_t process = ::pipe2(ends, O_CLOEXEC) == 0 ? ::fork() : -1;
  if (process < 0) fail_run("no process can be started ({})", std::strerror(errno));
  if (process == 0) answer_and_end(ends[1], share, answer);
  ::close(ends[1]);
  AnswerApart apart;
  char chunk[1 << 16];
  for (ssize_t count = 1; count > 0 || (count < 0 && errno == EINTR);) {
    count = ::read(ends[0], chunk, sizeof chunk);
    if (count > 0) apart.text.append(chunk, size_t(count));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(process, &status, 0);
  apart.failure = failure_of(status, share);
  return apart;
}

using CheckedFiles = std::vector<std::vector<CheckedRecipe>>;

// Reads the fields of a recipe as another process of this program wrote them, with any text.
struct FieldTaker {
  const Json& from;
  CheckedRecipe& to;

  template <class M>
  void field(const char* name, M CheckedRecipe::*member, const char*, FieldRule = {}) {
    if constexpr (std::is_enum_v<M>)
      to.*member = enum_value<M>(from.at(name).get<std::string>()).value();
    else
      from.at(name).get_to(to.*member);
  }
};

// Each file by itself, on one thread: a process with threads could not start others.
CheckedFiles check_strangers(const std::vector<RecipeFile>& files, const CheckOptions& o) {
  PlanRequest single = o.request;
  single.threads = 1;
  const double end_s = now_s() + o.request.time_limit_s;
  CheckedFiles checked;
  for (const RecipeFile& file : files) {
    const Share share{.seconds = unsigned(std::max(0.0, std::ceil(end_s - now_s())))};
    const AnswerApart apart = answer_apart(share, [&] {
      const std::vector<uint8_t> bytes = Json::to_cbor(to_json(check_files({file}, single).front()));
      return std::string(bytes.begin(), bytes.end());
    });
    std::vector<CheckedRecipe>& recipes = checked.emplace_back();
    if (!apart.failure.empty()) {
      recipes.resize(1);
      recipes.front().recipe = file.name.string();
      recipes.front().reason = apart.failure;
    } else {
      for (const Json& recipe : Json::from_cbor(apart.text)) {
        FieldTaker taker{recipe, recipes.emplace_back()};
        CheckedRecipe::describe(taker);
      }
    }
    for (CheckedRecipe& recipe : recipes) recipe.file = file.file;
  }
  return checked;
}

// The base's recipes follow the current ones in one list, so that equal ones are judged once.
CheckReport report_of(const CheckOptions& o) {
  const std::vector<std::filesystem::path> paths{o.paths.begin(), o.paths.end()};
  std::vector<RecipeFile> files = recipe_files(paths);
  const size_t now = files.size();
  if (!o.base.empty())
    for (RecipeFile& file : files_of_base(paths, o.base)) files.push_back(std::move(file));
  const CheckedFiles all = o.untrusted ? check_strangers(files, o) : check_files(files, o.request);
  CheckReport report{o.request.cluster.name, o.base, {}, {}, {}};
  std::vector<CheckedRecipe> before;
  for (size_t i = 0; i < files.size(); ++i) {
    std::vector<CheckedRecipe>& into = i < now ? report.recipes : before;
    into.insert(into.end(), all[i].begin(), all[i].end());
    if (i < now && all[i].empty()) report.others.push_back(files[i].file);
  }
  if (o.base.empty()) return report;
  std::set<std::string> names;
  for (const CheckedRecipe& checked : report.recipes) names.insert(checked.recipe);
  for (const CheckedRecipe& checked : before)
    if (names.count(checked.recipe) == 0) report.removed.push_back(checked.recipe);
  compare_with_base(report.recipes, before);
  return report;
}

int run_check(CheckOptions& o) {
  if (o.request.cluster.empty())
    refuse_input("--cluster", "missing", "where the recipes run, such as dgx-h100:8", "see --help");
  if (o.untrusted) {
    std::vector<std::filesystem::path> roots{o.root};
    if (!o.base.empty()) roots.emplace_back(o.base);
    keep_below(roots, o.request);
  }
  const CheckReport report = report_of(o);
  if (!o.junit.empty()) write_file_atomically(o.junit, junit_text(report));
  if (!o.sarif.empty()) write_file_atomically(o.sarif, sarif_text(report));
  if (!o.json.empty()) write_file_atomically(o.json, check_json_text(report));
  fmt::print("{}", check_screen(report, o.verbose));
  if (any_refused(report.recipes)) return kExitRunFailed;
  if (report.recipes.empty()) return kExitUserError;  // files that were not read are not confirmed
  return any_unread(report.recipes) && !o.allow_unread ? kExitUserError : kExitOk;
}

}  // namespace

std::function<int()> add_check(CLI::App& app) {
  auto* command = app.add_subcommand("check", "Judge every recipe of a folder: legal, fits, costs so much");
  auto o = std::make_shared<CheckOptions>();
#include "generated/CheckOptions.inc"
  declare_problem(*command, o->request);
  return [o] { return run_check(*o); };
}

}  // namespace mpt::planner
