// SPDX-License-Identifier: Apache-2.0
#include "runtime/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/number_between.h"
#include "base/outputs.h"
#include "base/terminal.h"
#include "frameworks/framework.h"
#include "frameworks/supports/supports.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/data/dataset.h"
#include "runtime/memory_check.h"
#include "runtime/nn/rank_sizes.h"

namespace mpt::runtime {
namespace {

constexpr int64_t kMostThreads = 1024;

// Adds a file, or the files of a folder.
void add_files(const std::string& where, const std::filesystem::path& path, std::vector<NamedFile>& files) {
  files.push_back({where, path});
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error))
    files.push_back({where, entry.path()});
}

std::vector<NamedFile> inputs_of(const RunOptions& o) {
  std::vector<NamedFile> inputs{{"the plan", o.plan}};
  for (const DataPart& part : parse_data_argument(o.data)) {
    for (const std::string& path : part.paths) {
      inputs.push_back({"--data", path});
      for (const std::filesystem::path& file : indexed_pair(path)) inputs.push_back({"--data", file});
    }
  }
  if (!o.init.empty()) add_files("--init", o.init, inputs);
  const std::string& resumed = o.resume == "auto" ? o.train.checkpoints : o.resume;
  if (resumed.empty()) return inputs;
  for (const std::filesystem::path& checkpoint : checkpoints_in(resumed))
    add_files("--resume", checkpoint, inputs);
  if (own_checkpoint_step(resumed)) add_files("--resume", resumed, inputs);
  return inputs;
}

void check_outputs(const RunOptions& o) {
  const std::vector<NamedFile> outputs{{"--log", o.log}, {"--trace", o.trace}, {"--report", o.report}};
  check_distinct_files(inputs_of(o), outputs);
  for (const auto& [option, file] : outputs) {
    if (!file.empty()) check_writable(file, fmt::format("{} {}", option, file.string()));
  }
}

// The command that plans the same for another number of ranks.
std::string plan_for_ranks(const Plan& plan, const std::string& file, int64_t ranks) {
  const std::string again = "mpt-plan --request " + shell_word(file);
  if (plan.cluster.device.kind == DeviceKind::cpu)
    return fmt::format("{} --cluster this-machine:{}", again, ranks);
  if (!plan.cluster.mixed() && ranks <= plan.cluster.devices)
    return fmt::format("{} --gpus {}", again, ranks);
  return fmt::format("{} --cluster NAME, of {} GPUs", again, ranks);
}

constexpr int64_t kMostSteps = int64_t{1} << 40;
constexpr int64_t kMostCount = int64_t{1} << 30;

void declare_data(CLI::App& app, RunOptions& o) {
  TrainOptions& t = o.train;
  app.add_option("--data", o.data,
                 "Files to train on: text (each byte is a token), Megatron-LM's .bin/.idx, or token files of "
                 "16 or 32 bits. Weights blend them: 0.7 a.txt 0.3 b.txt")
      ->type_name("FILES")
      ->expected(1, -1);
  app.add_option("--data-format", o.data_format, "What the files are")
      ->type_name("NAME")
      ->capture_default_str()
      ->check(CLI::IsMember(enum_names<DataFormat>()));
  app.add_option("--validation-share", o.validation_share, "Share of the data kept for validation, 0 to 0.5")
      ->type_name("SHARE")
      ->capture_default_str()
      ->check(number_between(0.0, 0.5));
  app.add_option("--evaluate-every", t.evaluate_every, "Steps between two validation losses; 0: none")
      ->type_name("STEPS")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, kMostSteps));
  app.add_option("--evaluation-steps", t.evaluation_steps, "Global batches in each validation loss")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, kMostCount));
}

void declare_training(CLI::App& app, RunOptions& o) {
  TrainOptions& t = o.train;
  app.add_option("--steps", t.steps, "Optimizer steps, counted from the start of training")
      ->type_name("STEPS")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, kMostSteps));
  app.add_option("--lr", t.learning_rate, "Learning rate after the warm-up")
      ->capture_default_str()
      ->check(number_between(0.0, 1e3));
  app.add_option("--min-lr", o.minimum_learning_rate,
                 "Learning rate at the last step (cosine decay; default: 0.0001, or --lr if that is lower)")
      ->check(number_between(0.0, 1e3));
  app.add_option("--warmup", t.warmup_steps, "Steps in which the learning rate rises from 0")
      ->type_name("STEPS")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, kMostSteps));
  app.add_option("--clip", t.clip, "Clip the gradient norm to this; 0: no clipping")
      ->capture_default_str()
      ->check(number_between(0.0, 1e9));
  app.add_option("--weight-decay", t.weight_decay, "Weight decay of matrices (biases and norms have none)")
      ->capture_default_str()
      ->check(number_between(0.0, 1.0));
  app.add_option("--next-token-weight", t.next_token_weight,
                 "Factor on the mean loss of next-token modules, which is added to the model's own")
      ->capture_default_str()
      ->check(number_between(0.0, 1e3));
  app.add_option("--most-skipped", t.most_skipped,
                 "Stop after more than this many NaN/Inf steps in a row; they leave the weights as they are")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1000}));
  app.add_option("--seed", t.seed, "Seed of the first weights and of the order of the data")
      ->capture_default_str();
}

void declare_checkpoints(CLI::App& app, RunOptions& o) {
  TrainOptions& t = o.train;
  app.add_option("--checkpoints", t.checkpoints,
                 "Folder to save to: at the last step, and when Ctrl-C or SIGTERM stops the run")
      ->type_name("FOLDER");
  app.add_option("--save-every", t.save_every, "Also save every this many steps; 0: no")
      ->type_name("STEPS")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, kMostSteps));
  app.add_option("--keep", t.keep, "Keep this many of the newest checkpoints")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, kMostCount));
  app.add_option("--resume", o.resume,
                 "Continue from this checkpoint, or from the newest good one in this folder. auto: from the "
                 "folder of --checkpoints, or from step 1 if it has none. Any layout can continue")
      ->type_name("PATH");
  app.add_option("--init", o.init, "Start with the weights of a Hugging Face folder or a checkpoint")
      ->type_name("PATH")
      ->excludes("--resume");
  app.add_option("--max-restarts", o.max_restarts,
                 "Restart from the newest checkpoint if the run crashes, at most this often")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1000}));
}

void declare_place(CLI::App& app, RunOptions& o) {
  app.add_option("--device", o.device,
                 "auto: what the plan is for; cpu: this machine's cores, also for a GPU's plan (slow); cuda: "
                 "GPUs; emulate: waits for the planned times instead of computing, for any cluster")
      ->type_name("NAME")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cpu", "cuda", "emulate"}));
  app.add_option("--ranks", o.ranks, "Number of ranks, as a check: it must be the plan's")
      ->check(CLI::Range(int64_t{1}, int64_t{10'000'000}));
  app.add_flag("--cuda-graphs", o.graphs,
               "On GPUs: launch repeated operators as CUDA graphs; faster where kernels are small");
  app.add_option("--transport", o.transport,
                 "How processes of torchrun, mpirun or srun talk: auto and tcp: TCP; mpi: MPI, only under "
                 "mpirun or srun")
      ->type_name("NAME")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "tcp", "mpi"}));
  app.add_option("--master-port", o.master_port, kMasterPortHelp)
      ->type_name("PORT")
      ->check(CLI::Range(1, 65535));
  app.add_option("--timeout", o.timeout_s, "Seconds to wait for a rank before it counts as hung")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(number_between(0.1, 1e6));
}

void declare_output(CLI::App& app, RunOptions& o) {
  app.add_option("--log", o.log, "Write a line of JSON per step to this file; mpt-plan diagnose reads it")
      ->type_name("FILE");
  app.add_option("--trace", o.trace, "Write the median step as a trace for ui.perfetto.dev to this file")
      ->type_name("FILE");
  app.add_option("--report", o.report, "Write a report to this HTML file")->type_name("FILE");
  app.add_option("--metrics-port", o.metrics_port, "Serve the newest step to Prometheus on 127.0.0.1")
      ->type_name("PORT")
      ->check(CLI::Range(1, 65535));
  app.add_flag("--quiet", o.quiet, "Print errors only");
  app.add_flag("--watch", o.watch,
               "Show every rank in each step: compute, communication, memory, and the load of GPUs")
      ->excludes("--quiet");
}

void declare_emulation(CLI::App& app, RunOptions& o) {
  app.add_option("--time-scale", o.time_scale, "10: wait ten times as long, for more exact times")
      ->type_name("FACTOR")
      ->capture_default_str()
      ->check(number_between(1e-3, 1e6));
  app.add_option("--slow-rank", o.slow_rank, "RANK:FACTOR, such as 3:1.5: this rank computes longer")
      ->type_name("WHAT");
  app.add_option(
         "--slow-link", o.slow_link,
         "KIND:FACTOR, such as transfer:4: this traffic takes longer. Kinds: tensor, context, expert, "
         "sharding, transfer, gradients")
      ->type_name("WHAT");
  app.add_option("--slow-data", o.slow_data_s, "Seconds that each step waits for its data")
      ->type_name("SECONDS")
      ->check(number_between(0.0, 1e6));
}

// Under a heading of --help what `declare_options` adds.
template <class F>
void in_group(CLI::App& app, const std::string& heading, F&& declare_options) {
  const std::vector<CLI::Option*> before = app.get_options();
  declare_options();
  for (CLI::Option* option : app.get_options()) {
    if (std::find(before.begin(), before.end(), option) == before.end()) option->group(heading);
  }
}

void settle_training(RunOptions& o) {
  if (o.train.evaluate_every > 0 && o.validation_share <= 0.0)
    throw UserError(Problem{"--evaluate-every", "without --validation-share", "data to validate on",
                            "add --validation-share 0.05"});
  const double peak = o.train.learning_rate;
  if (o.minimum_learning_rate.value_or(0.0) > peak)
    throw UserError(Problem{"--min-lr", fmt::format("{:g}", *o.minimum_learning_rate),
                            fmt::format("at most --lr, which is {:g}", peak),
                            "the learning rate decays to --min-lr: lower it, or raise --lr"});
  o.train.minimum_learning_rate =
      o.minimum_learning_rate.value_or(std::min(peak, o.train.minimum_learning_rate));
}

}  // namespace

void declare(CLI::App& app, RunOptions& o) {
  app.add_option("plan", o.plan, "plan.json, written by mpt-plan")->required();
  in_group(app, "Data", [&] { declare_data(app, o); });
  in_group(app, "Training", [&] { declare_training(app, o); });
  in_group(app, "Checkpoints", [&] { declare_checkpoints(app, o); });
  in_group(app, "Where it runs", [&] { declare_place(app, o); });
  in_group(app, "What it shows and writes", [&] { declare_output(app, o); });
  in_group(app, "More: emulation (--device emulate)", [&] { declare_emulation(app, o); });
}

void check_plan(const Plan& plan, RunOptions& o) {
  const auto refuse = [](std::string where, std::string found, std::string expected, std::string remedy) {
    throw UserError(Problem{std::move(where), std::move(found), std::move(expected), std::move(remedy)});
  };
  if (o.device == "auto") o.device = plan.cluster.device.kind == DeviceKind::gpu ? "cuda" : "cpu";
  const bool emulates = o.device == "emulate";
  if (o.graphs && o.device != "cuda")
    refuse("--cuda-graphs", "given with --device " + o.device, "ranks on GPUs", "leave it out");
  if (!emulates && o.data.empty())
    refuse("--data", "missing", "files to train on",
           "for example --data text.txt; --device emulate needs none");
  if (!emulates) check_supported(plan.model);
  const auto rejection =
      frameworks::supports(frameworks::own_runtime(), plan.model, plan.layout, plan.workload);
  if (!emulates && rejection) {
    refuse(o.plan + " at /layout", rejection->reason, "a layout that mpt-run can run",
           "plan again with --framework mpt; or try it with --device emulate");
  }
  if (o.ranks != 0 && o.ranks != plan.layout.ranks()) {
    refuse("--ranks", std::to_string(o.ranks), fmt::format("{}, the plan's ranks", plan.layout.ranks()),
           "leave it out, or plan again: " + plan_for_ranks(plan, o.plan, o.ranks));
  }
  if (plan.layout.ranks() > kMostThreads) {
    refuse(o.plan + " at /layout", fmt::format("{} ranks", plan.layout.ranks()),
           fmt::format("at most {}, which mpt-run can start", kMostThreads),
           "plan for fewer GPUs (mpt-plan --ranks), or give the plan to another framework (mpt-plan export)");
  }
  if ((o.resume == "auto" || o.max_restarts > 0 || o.train.save_every > 0) && o.train.checkpoints.empty()) {
    refuse(o.resume == "auto"   ? "--resume auto"
           : o.max_restarts > 0 ? "--max-restarts"
                                : "--save-every",
           "without --checkpoints", "a folder to save to", "add --checkpoints FOLDER");
  }
  if (o.transport == "mpi") {
    if (!o.launch)
      refuse("--transport mpi", "a single process", "processes that mpirun or srun started",
             "start it so: mpirun -np 4 mpt-run ... --transport mpi");
    if (o.max_restarts > 0)
      refuse("--transport mpi", "given with --max-restarts", "one of the two",
             "leave --max-restarts out; let the job's script start mpt-run again with --resume auto");
    o.launch->through_mpi = true;
  }
  settle_training(o);
  if (o.device == "cpu") check_memory(plan, o.launch, machine_memory_bytes(), o.plan);
  check_outputs(o);
  o.train.timeout = std::chrono::milliseconds(int64_t(o.timeout_s * 1000));
}

}  // namespace mpt::runtime
