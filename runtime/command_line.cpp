// SPDX-License-Identifier: Apache-2.0
#include "runtime/command_line.h"

#include <algorithm>

#include "base/command_line.h"
#include "base/error.h"
#include "base/files.h"
#include "base/terminal.h"
#include "frameworks/framework.h"
#include "frameworks/supports/supports.h"
#include "reports/next_steps.h"
#include "runtime/checkpoint/checkpoint_saver.h"
#include "runtime/checkpoint/folder_lock.h"
#include "runtime/data/dataset.h"
#include "runtime/nn/rank_sizes.h"
#include "runtime/program.h"

namespace mpt::runtime {
namespace {

constexpr int64_t kMostThreads = 1024;

// The data files are opened after the checkpoint folder is locked, so they are only declared here.
void check_outputs(const RunOptions& o) {
  FileLedger& files = files_of_program();
  for (const DataPart& part : parse_data_argument(o.data)) {
    for (const std::string& path : part.paths) {
      files.reads(path);
      for (const std::filesystem::path& file : indexed_pair(path)) files.reads(file);
    }
  }
  for (const std::string& folder : {o.init, own_checkpoint_step(o.resume) ? o.resume : std::string()}) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) files.reads(entry.path());
  }
  const std::filesystem::path saved = o.train.checkpoints;
  if (!saved.empty()) files.makes({"--checkpoints", saved}, is_name_of_saver);
  if (!o.launch || o.launch->process == 0) files.check_writable();  // only the first process writes them
  if (!saved.empty()) files.writes({"--checkpoints", saved / kLockFile});
}

// The command that plans the same request for another number of ranks.
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
  add_choice(app, "--data-format", o.data_format, "What the files are", enum_names<DataFormat>());
  add_number(app, "--validation-share", o.validation_share, "Share of the data kept for validation, 0 to 0.5",
             between(0.0, 0.5), "SHARE");
  add_number(app, "--evaluate-every", t.evaluate_every, "Steps between two validation losses; 0: none",
             between(0, kMostSteps), "STEPS");
  add_number(app, "--evaluation-steps", t.evaluation_steps, "Global batches in each validation loss",
             between(1, kMostCount));
}

void declare_training(CLI::App& app, RunOptions& o) {
  TrainOptions& t = o.train;
  add_number(app, "--steps", t.steps, "Optimizer steps, counted from the start of training",
             between(1, kMostSteps), "STEPS");
  add_number(app, "--lr", t.learning_rate, "Learning rate after the warm-up", between(0.0, 1e3));
  add_number(app, "--min-lr", o.minimum_learning_rate,
             "Learning rate at the last step (cosine decay; default: 0.0001, or --lr if that is lower)",
             between(0.0, 1e3));
  add_number(app, "--warmup", t.warmup_steps, "Steps in which the learning rate rises from 0",
             between(0, kMostSteps), "STEPS");
  add_number(app, "--clip", t.clip, "Clip the gradient norm to this; 0: no clipping", between(0.0, 1e9));
  add_number(app, "--weight-decay", t.weight_decay, "Weight decay of matrices (biases and norms have none)",
             between(0.0, 1.0));
  add_number(app, "--next-token-weight", t.next_token_weight,
             "Factor on the mean loss of next-token modules, which is added to the model's own",
             between(0.0, 1e3));
  add_number(app, "--most-skipped", t.most_skipped,
             "Stop after more than this many NaN/Inf steps in a row; they leave the weights as they are",
             between(0, 1000));
  add_number(app, "--seed", t.seed, "Seed of the first weights and of the order of the data", at_least(0));
}

void declare_checkpoints(CLI::App& app, RunOptions& o) {
  TrainOptions& t = o.train;
  app.add_option("--checkpoints", t.checkpoints,
                 "Folder to save to: at the last step, and when Ctrl-C or SIGTERM stops the run")
      ->type_name("FOLDER");
  add_number(app, "--save-every", t.save_every, "Also save every this many steps; 0: no",
             between(0, kMostSteps), "STEPS");
  add_number(app, "--keep", t.keep, "Keep this many of the newest checkpoints", between(1, kMostCount));
  app.add_option("--resume", o.resume,
                 "Continue from this checkpoint, or from the newest good one in this folder. auto: from the "
                 "folder of --checkpoints, or from step 1 if it has none. Any layout can continue")
      ->type_name("PATH");
  app.add_option("--init", o.init, "Start with the weights of a Hugging Face folder or a checkpoint")
      ->type_name("PATH")
      ->excludes("--resume");
  add_number(app, "--max-restarts", o.max_restarts,
             "Restart from the newest checkpoint if the run crashes, at most this often", between(0, 1000));
}

void declare_place(CLI::App& app, RunOptions& o) {
  add_choice(
      app, "--device", o.device,
      "auto: what the plan is for; cpu: this machine's cores, also for a GPU's plan (slow); cuda: GPUs",
      {"auto", "cpu", "cuda"});
  add_number(app, "--ranks", o.ranks, "Number of ranks, as a check: it must be the plan's",
             between(1, 10'000'000));
  add_number(app, "--master-port", o.master_port, kMasterPortHelp, between(1, 65535), "PORT");
  add_number(app, "--timeout", o.timeout_s, "Seconds to wait for a rank before it counts as hung",
             between(0.1, 1e6), "SECONDS");
}

void declare_output(CLI::App& app, RunOptions& o) {
  add_output(app, "--log", o.log, "Write a line of JSON per step to this file; mpt-plan diagnose reads it");
  add_output(app, "--trace", o.trace, "Write the median step as a trace for ui.perfetto.dev to this file");
  add_output(app, "--report", o.report, "Write a report to this HTML file");
  app.add_flag("--quiet", o.quiet, "Print errors only");
  app.add_flag("--watch", o.watch,
               "Show every rank in each step: compute, communication, memory, and the load of GPUs")
      ->excludes("--quiet");
}

// Groups the options of `declare_options` under a heading of --help.
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
}

void check_plan(const Plan& plan, RunOptions& o) {
  const auto refuse = [](std::string where, std::string found, std::string expected, std::string remedy) {
    throw UserError(Problem{std::move(where), std::move(found), std::move(expected), std::move(remedy)});
  };
  if (o.device == "auto") o.device = plan.cluster.device.kind == DeviceKind::gpu ? "cuda" : "cpu";
  if (o.data.empty())
    refuse("--data", "missing", "files to train on", "for example " + reports::data_options(plan));
  check_supported(plan.model);
  const auto rejection =
      frameworks::supports(frameworks::own_runtime(), plan.model, plan.layout, plan.workload);
  if (rejection) {
    refuse(o.plan + " at /layout", rejection->reason, "a layout that mpt-run can run",
           "plan again with --framework mpt");
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
  settle_training(o);
  if (o.device == "cpu") check_memory(plan, o.launch, machine_memory_bytes(), o.plan);
  check_outputs(o);
  o.train.timeout = std::chrono::milliseconds(int64_t(o.timeout_s * 1000));
}

}  // namespace mpt::runtime
