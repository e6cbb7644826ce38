// SPDX-License-Identifier: Apache-2.0

// mpt-profile: measures this machine for a model and writes profile.json, or imports others' measurements.

#include "base/command_line.h"
#include "base/files.h"
#include "base/json.h"
#include "base/terminal.h"
#include "models/zoo.h"
#include "profiler/hardware/catalog.h"
#include "profiler/hardware/kernel_profile.h"
#include "profiler/hardware/profile_noise.h"
#include "profiler/measure/profile_machine.h"

namespace mpt {
namespace {

struct ImportOptions {
  std::vector<std::string> files;
  std::string device, output = "kernels.json";
  profiler::LogHints hints;
};

struct Options {
  std::string model;
  std::string output = "profile.json";
  std::string device = "cpu", precision;
  int master_port = 0;  // 0: from the environment
  profiler::ProfileRequest request;
};

void declare(CLI::App& app, Options& o) {
  o.request.sequences = {256};
#include "generated/ProfileOptions.inc"
}

CLI::App* declare_import(CLI::App& app, ImportOptions& o) {
  CLI::App* command = app.add_subcommand(
      "import",
      "Turn others' kernel times into a file for mpt-plan --kernels: logs of nccl-tests, traces of PyTorch's "
      "profiler, SimuMax system files, a GPU's profile.json");
#include "generated/ImportedTimesOptions.inc"
  return command;
}

int import(const ImportOptions& o) {
  files_of_program().check_writable();
  profiler::KernelProfile profile;
  profile.device = o.device;
  if (!profiler::cluster_of_device(o.device, {1, 1, 1, 0.0}))
    refuse_input("--device", "\"" + o.device.substr(0, 80) + "\"",
                 "a GPU of the catalog, such as h100-sxm-80gb",
                 "profiler/hardware/catalog/ lists them; or name the nearest one there");
  for (const std::string& file : o.files) profiler::import_times(profile, file, o.hints);
  write_file_atomically(o.output, json_text(to_json(profile), 1) + "\n");
  fmt::print(
      "{} matrix products, {} attention shapes and {} collectives of {} from {} files\nwrote {}\n"
      "next: mpt-plan ... --kernels {} plans with them instead of the catalog's\n",
      profile.products.size(), profile.attention.size(), profile.collectives.size(), profile.device,
      o.files.size(), o.output, shell_word(o.output));
  return kExitOk;
}

// The command that plans with the measurements.
std::string next_command(const Options& o, const profiler::Profile& profile) {
  const auto ranks = int64_t(profile.rate_by_active_ranks.size()) * profile.machine.hosts;
  return fmt::format(
      "mpt-plan --model {} --cluster this-machine:{} --profile {} --global-batch {} --seq {}{} -o plan.json",
      shell_word(o.model), ranks, shell_word(o.output), 8 * ranks, profile.sequence,
      o.precision.empty() ? "" : " --precision " + o.precision);
}

// The last lines: whether the times are good enough to plan with, and the next command.
void conclude(const Options& o, const profiler::Profile& profile) {
  constexpr std::string_view kVerdict = "too noisy";
  for (const int64_t sequence : o.request.sequences) {
    const std::string text = profiler::noise_text(profiler::noise_of(profile, sequence));
    if (text.empty()) continue;
    const auto lines = wrapped(text + ". Repeat when the machine is idle.", fmt::format("{}: ", kVerdict));
    fmt::print("{}{}", Palette::of(stdout).caution(kVerdict), lines.substr(kVerdict.size()));
    break;
  }
  fmt::print("wrote {}\n{}", o.output, wrapped_command(next_command(o, profile), "next: "));
}

int run(int argc, char** argv) {
  Options o;
  ImportOptions imported;
  CLI::App app{
      "Times a model's layers, its operators, and communication on this machine, for mpt-plan --profile. "
      "Takes half a minute for a small model; leave the machine idle meanwhile."};
  declare(app, o);
  app.footer(app.get_footer() + kExitCodes);
  const CLI::App* import_command = declare_import(app, imported);
  app.require_subcommand(0, 1);
  if (const auto code = parse_command_line(app, argc, argv)) return *code;
  if (app.got_subcommand(import_command)) return import(imported);
  if (o.model.empty())
    refuse_input("--model", "missing", "the model whose layers are timed", "for example --model tiny-gpt");
  const auto backend = o.device == "cuda" ? runtime::load_cuda_backend(fmt::format(
                                                "without a GPU, plan with kernels that others measured: "
                                                "mpt-plan --model {} --cluster dgx-h100:1 --global-batch 64",
                                                shell_word(o.model)))
                                          : nullptr;
  const std::string precision = !o.precision.empty() ? o.precision : backend ? "bf16" : "fp32";
  o.request.precision = *enum_value<Precision>(precision);
  if (!backend && o.request.precision == Precision::fp8)
    refuse_input("--precision", "fp8 on CPUs", "fp32, bf16 or fp16, which CPU ranks compute in",
                 "choose one of them, or add --device cuda");
  o.request.target = profiler::target_of(backend.get(), o.request.precision);
  o.request.model = models::load_model(o.model);
  for (const int64_t sequence : o.request.sequences) {
    if (sequence <= o.request.model.max_positions) continue;
    refuse_input(
        "--seq", std::to_string(sequence),
        fmt::format("at most the {} positions of {}", o.request.model.max_positions, o.request.model.name),
        "use a shorter --seq");
  }
  o.request.launch = runtime::launch_from_environment(o.master_port);
  if (o.request.launch && o.request.launch->process > 0) {  // the first process prints for all
    o.request.quiet = true;
    profiler::profile_machine(o.request);
    return kExitOk;
  }
  files_of_program().check_writable();  // before a minute of measuring, not after it
  const profiler::Profile profile = profiler::profile_machine(o.request);
  write_file_atomically(o.output, profiler::profile_to_text(profile));
  if (o.request.quiet) return kExitOk;
  fmt::print("{}", profiler::profile_summary(profile));
  conclude(o, profile);
  return kExitOk;
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) {
  return mpt::run_program("mpt-profile", [&] { return mpt::run(argc, argv); });
}
