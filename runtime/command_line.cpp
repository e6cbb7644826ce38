// SPDX-License-Identifier: Apache-2.0
#include "runtime/command_line.h"

#include <CLI/CLI.hpp>

#include "core/error.h"
#include "core/json.h"
#include "frameworks/framework.h"
#include "frameworks/supports.h"
#include "runtime/data/dataset.h"
#include "runtime/nn/rank_sizes.h"

namespace mpt::runtime {
namespace {

constexpr int64_t kMostThreads = 1024;

void check_output(const char* option, const std::string& file) {
  if (file.empty()) return;
  check_writable(file, fmt::format("{} {}", option, file));
}

}  // namespace

void declare(CLI::App& app, RunOptions& o) {
  TrainOptions& t = o.train;
  app.add_option("plan", o.plan, "plan.json, written by mpt-plan")->required();
  app.add_option(
         "--data", o.data,
         "Files to train on: text (as bytes), Megatron-LM's .bin/.idx, token files of 16 or 32 bits; with "
         "weights before them (0.7 a 0.3 b) they are blended")
      ->expected(1, -1);
  app.add_option("--data-format", o.data_format, "What the files are")
      ->capture_default_str()
      ->check(CLI::IsMember(enum_names<DataFormat>()));
  app.add_option("--validation-share", o.validation_share, "Share of the data kept for validation")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 0.5));
  app.add_option("--evaluate-every", t.evaluate_every, "Steps between validation losses; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  app.add_option("--evaluation-steps", t.evaluation_steps, "Global batches of a validation loss")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  app.add_option("--checkpoints", t.checkpoints, "Folder to save to: at the end, and on SIGTERM or SIGINT");
  app.add_option("--save-every", t.save_every, "Steps between checkpoints; 0: at the end only")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  app.add_option("--keep", t.keep, "Newest checkpoints that stay")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  app.add_option(
      "--resume", o.resume,
      "Go on from a checkpoint, or from the newest whole one in a folder; auto: from --checkpoints, or "
      "from the start if there is none");
  app.add_option("--init", o.init, "Start with the weights of a Hugging Face folder or a checkpoint")
      ->excludes("--resume");
  app.add_option("--max-restarts", o.max_restarts, "Times to resume by itself when the run dies")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1000}));
  app.add_option("--steps", t.steps, "Optimizer steps")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  app.add_option("--lr", t.learning_rate, "Learning rate after warm-up")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e3));
  app.add_option("--min-lr", t.minimum_learning_rate, "Learning rate at the end of the cosine")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e3));
  app.add_option("--warmup", t.warmup_steps, "Steps of linear warm-up")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  app.add_option("--clip", t.clip, "Largest gradient norm; 0 is no clipping")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("--most-skipped", t.most_skipped,
                 "Steps in a row with a loss or gradients that are not finite, which are skipped")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1000}));
  app.add_option("--weight-decay", t.weight_decay, "Of matrices")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--seed", t.seed, "Of weights and of the order of the data")->capture_default_str();
  app.add_option("--ranks", o.ranks, "Ranks to run; must be the plan's (default)")
      ->check(CLI::Range(int64_t{1}, int64_t{10'000'000}));
  app.add_option(
         "--device", o.device,
         "auto (the plan's), cpu, cuda, or emulate: sleeps the plan's durations instead of computing, for "
         "any cluster")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cpu", "cuda", "emulate"}));
  app.add_flag("--cuda-graphs", o.graphs,
               "On GPUs: launch operators that repeat as CUDA graphs, which helps where kernels are small");
  app.add_option("--time-scale", o.time_scale,
                 "Of emulation: 10 sleeps ten times as long, for more exact times")
      ->capture_default_str()
      ->check(CLI::Range(1e-3, 1e6));
  app.add_option("--slow-rank", o.slow_rank, "Of emulation: this rank computes longer, such as 3:1.5");
  app.add_option(
      "--slow-link", o.slow_link,
      "Of emulation: traffic of this kind (tensor, context, expert, sharding, transfer, gradients) takes "
      "longer, such as transfer:4");
  app.add_option("--slow-data", o.slow_data_s, "Of emulation: seconds that each step waits for its data")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--log", o.log, "Write one JSON object per step to this file");
  app.add_option("--trace", o.trace, "Write the median step as a trace for Perfetto to this file");
  app.add_option("--report", o.report, "Write an HTML report to this file");
  app.add_option(
         "--transport", o.transport,
         "Between processes that a launcher started: auto or tcp, or mpi, which mpirun must have started")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "tcp", "mpi"}));
  app.add_option("--timeout", o.timeout_s, "Seconds after which a rank that others wait for counts as hung")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1e6));
  app.add_option("--metrics-port", o.metrics_port, "Serve the newest step as Prometheus text on 127.0.0.1")
      ->check(CLI::Range(1, 65535));
  app.add_flag("--quiet", o.quiet, "Print nothing but errors");
  app.add_flag(
         "--watch", o.watch,
         "Show every rank's step: compute, communication, memory; and what GPUs count of their own work")
      ->excludes("--quiet");
}

void check_plan(const Plan& plan, RunOptions& o) {
  const auto refuse = [](std::string where, std::string found, std::string expected, std::string remedy) {
    throw UserError(Problem{std::move(where), std::move(found), std::move(expected), std::move(remedy)});
  };
  if (o.device == "auto") o.device = plan.cluster.device.kind == DeviceKind::gpu ? "cuda" : "cpu";
  const bool emulates = o.device == "emulate";
  if (o.graphs && o.device != "cuda")
    refuse("--cuda-graphs", "--device " + o.device, "ranks on GPUs", "leave it out");
  if (!emulates && o.data.empty()) refuse("--data", "missing", "files to train on", "see --help");
  if (!emulates) check_supported(plan.model);
  const auto rejection =
      frameworks::supports(frameworks::own_runtime(), plan.model, plan.layout, plan.workload);
  if (!emulates && rejection) {
    refuse(o.plan + " at /layout", rejection->reason, "a layout that mpt-run can run",
           "plan again with --framework mpt; or try it with --device emulate");
  }
  if (o.ranks != 0 && o.ranks != plan.layout.ranks()) {
    refuse("--ranks", std::to_string(o.ranks), fmt::format("{}, the plan's ranks", plan.layout.ranks()),
           fmt::format("plan again for {} devices", o.ranks));
  }
  if (plan.layout.ranks() > kMostThreads) {
    refuse(o.plan + " at /layout", fmt::format("{} ranks", plan.layout.ranks()),
           fmt::format("at most {} as threads of one machine", kMostThreads), "");
  }
  if ((o.resume == "auto" || o.max_restarts > 0 || o.train.save_every > 0) && o.train.checkpoints.empty()) {
    refuse(o.resume == "auto"   ? "--resume auto"
           : o.max_restarts > 0 ? "--max-restarts"
                                : "--save-every",
           "without --checkpoints", "a folder to save to", "add --checkpoints FOLDER");
  }
  if (o.transport == "mpi") {
    if (!o.launch)
      refuse("--transport mpi", "one process", "processes that mpirun or srun started",
             "mpirun -np 4 mpt-run ... --transport mpi");
    if (o.max_restarts > 0)
      refuse("--transport mpi", "excludes --max-restarts", "one or the other",
             "let the job's script start it again with --resume auto");
    o.launch->through_mpi = true;
  }
  if (o.train.evaluate_every > 0 && o.validation_share <= 0.0)
    refuse("--evaluate-every", "without --validation-share", "data to validate on",
           "add --validation-share 0.05");
  check_output("--log", o.log);
  check_output("--trace", o.trace);
  check_output("--report", o.report);
  o.train.timeout = std::chrono::milliseconds(int64_t(o.timeout_s * 1000));
}

}  // namespace mpt::runtime
