// SPDX-License-Identifier: Apache-2.0

// mpt-profile: measures this machine for a model and writes profile.json, or takes over what others measured.

#include "core/command_line.h"
#include "core/json.h"
#include "models/zoo.h"
#include "profiler/hardware/catalog.h"
#include "profiler/hardware/kernel_profile.h"
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
  profiler::ProfileRequest request;
};

void declare(CLI::App& app, Options& o) {
  app.add_option("--model", o.model, "Model whose layers are timed: a name such as tiny-gpt, or a file");
  o.request.sequences = {256};
  app.add_option("--seq", o.request.sequences,
                 "Tokens per sequence; several, such as 1024,4096, are timed each")
      ->capture_default_str()
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("-o,--output", o.output, "File to write")->capture_default_str();
  app.add_option("--max-micro-batch", o.request.max_micro_batch,
                 "Largest micro-batch to time, in powers of two")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  app.add_option("--max-tensor", o.request.max_tensor, "Largest tensor-parallel width to time")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--max-ranks", o.request.max_ranks,
                 "Ranks of each process to time together: transport and shared cores")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--device", o.device, "cpu or cuda")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--precision", o.precision, "fp32, bf16, fp16 or fp8 (default: bf16 on GPUs, fp32 on CPUs)")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16", "fp8"}));
  app.add_flag("--quick", o.request.quick, "Short samples: a look rather than a measurement");
  app.add_flag("--quiet", o.request.quiet, "No progress bar and no summary");
}

CLI::App* declare_import(CLI::App& app, ImportOptions& o) {
  CLI::App* command = app.add_subcommand("import",
                                         "Take over kernel times from nccl-tests, PyTorch profiler traces, "
                                         "SimuMax system files or a GPU's profile.json");
  command->add_option("files", o.files, "Files to read")->required()->expected(1, 1000);
  command
      ->add_option("--device", o.device,
                   "Device of the catalog that they were measured on, such as h100-sxm-80gb")
      ->required();
  command->add_option("--operation", o.hints.operation, "Collective of nccl-tests logs that do not name it")
      ->check(CLI::IsMember({"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}));
  command->add_option("--ranks", o.hints.ranks, "Ranks of nccl-tests logs without their header")
      ->check(CLI::Range(2, 10'000'000));
  command->add_option("-o,--output", o.output, "File to write")->capture_default_str();
  return command;
}

int import(const ImportOptions& o) {
  check_writable(o.output, "--output " + o.output);
  profiler::KernelProfile profile;
  profile.device = o.device;
  if (!profiler::cluster_of_device(o.device, {1, 1, 1, 0.0})) {
    throw UserError(Problem{"--device", "\"" + o.device.substr(0, 80) + "\"", "a device of the catalog", ""});
  }
  for (const std::string& file : o.files) profiler::import_times(profile, file, o.hints);
  write_file_atomically(o.output, json_text(to_json(profile), 1) + "\n");
  fmt::print("{} products, {} attention cores and {} collectives of {} from {} files; wrote {}\n",
             profile.products.size(), profile.attention.size(), profile.collectives.size(), profile.device,
             o.files.size(), o.output);
  return kExitOk;
}

int run(int argc, char** argv) {
  Options o;
  ImportOptions imported;
  CLI::App app{"Measures this machine for a model: times of its layers and operators, memory, transport."};
  declare(app, o);
  const CLI::App* import_command = declare_import(app, imported);
  app.require_subcommand(0, 1);
  if (const auto code = parse_command_line(app, argc, argv)) return *code;
  if (app.got_subcommand(import_command)) return import(imported);
  if (o.model.empty()) throw UserError(Problem{"--model", "missing", "a value", "see --help"});
  const auto backend = o.device == "cuda" ? runtime::load_cuda_backend() : nullptr;
  const std::string precision = !o.precision.empty() ? o.precision : backend ? "bf16" : "fp32";
  o.request.precision = *enum_value<Precision>(precision);
  o.request.target = profiler::target_of(backend.get(), o.request.precision);
  o.request.model = models::load_model(o.model);
  for (const int64_t sequence : o.request.sequences) {
    if (sequence <= o.request.model.max_positions) continue;
    throw UserError(Problem{
        "--seq", std::to_string(sequence),
        fmt::format("at most the {} positions of {}", o.request.model.max_positions, o.request.model.name),
        ""});
  }
  o.request.launch = runtime::launch_from_environment();
  if (o.request.launch && o.request.launch->process > 0) {  // the first process speaks for all
    o.request.quiet = true;
    profiler::profile_machine(o.request);
    return kExitOk;
  }
  check_writable(o.output, "--output " + o.output);  // before a minute of measuring, not after it
  const profiler::Profile profile = profiler::profile_machine(o.request);
  write_file_atomically(o.output, profiler::profile_to_text(profile));
  if (!o.request.quiet) fmt::print("{}\nwrote {}\n", profiler::profile_summary(profile), o.output);
  return kExitOk;
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) {
  return mpt::run_program("mpt-profile", [&] { return mpt::run(argc, argv); });
}
