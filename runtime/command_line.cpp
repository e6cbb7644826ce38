// SPDX-License-Identifier: Apache-2.0
#include "runtime/command_line.h"

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
#include "runtime/program.h"

namespace mpt::runtime {
namespace {

constexpr int64_t kMostThreads = 1024;

// The data files are opened after the checkpoint folder is locked, so they are only declared here.
void check_outputs(const RunOptions& o) {
  FileLedger& files = files_of_program();
  for (const DataPart& part : parse_data_argument(o.data))
    for (const std::string& path : part.paths) {
      files.reads(path);
      for (const std::filesystem::path& file : indexed_pair(path)) files.reads(file);
    }
  for (const std::string& folder : {o.init, own_checkpoint_step(o.resume) ? o.resume : std::string()}) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) files.reads(entry.path());
  }
  if (!o.tokenizer.empty()) files.reads(o.tokenizer);
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

void settle_training(RunOptions& o) {
  if (o.train.evaluate_every > 0 && o.validation_share <= 0.0)
    refuse_input("--evaluate-every", "without --validation-share", "data to validate on",
                 "add --validation-share 0.05");
  const double peak = o.train.learning_rate;
  if (o.minimum_learning_rate.value_or(0.0) > peak)
    refuse_input("--min-lr", fmt::format("{:g}", *o.minimum_learning_rate),
                 fmt::format("at most --lr, which is {:g}", peak),
                 "the learning rate decays to --min-lr: lower it, or raise --lr");
  o.train.minimum_learning_rate =
      o.minimum_learning_rate.value_or(std::min(peak, o.train.minimum_learning_rate));
}

}  // namespace

void declare(CLI::App& app, RunOptions& o) {
#include "generated/RunOptions.inc"
}

void check_plan(const Plan& plan, RunOptions& o) {
  if (o.device == "auto") o.device = plan.cluster.device.kind == DeviceKind::gpu ? "cuda" : "cpu";
  if (o.data.empty())
    refuse_input("--data", "missing", "files to train on", "for example " + reports::data_options(plan));
  frameworks::check_own_runtime(plan.model);
  const auto rejection =
      frameworks::supports(frameworks::own_runtime(), plan.model, plan.layout, plan.workload);
  if (rejection)
    refuse_input(o.plan + " at /layout", rejection->reason, "a layout that mpt-run can run",
                 "plan again with --framework mpt");
  if (o.ranks != 0 && o.ranks != plan.layout.ranks())
    refuse_input("--ranks", std::to_string(o.ranks), fmt::format("{}, the plan's ranks", plan.layout.ranks()),
                 "leave it out, or plan again: " + plan_for_ranks(plan, o.plan, o.ranks));
  if (plan.layout.ranks() > kMostThreads)
    refuse_input(
        o.plan + " at /layout", fmt::format("{} ranks", plan.layout.ranks()),
        fmt::format("at most {}, which mpt-run can start", kMostThreads),
        "plan for fewer GPUs (mpt-plan --ranks), or give the plan to another framework (mpt-plan export)");
  if ((o.resume == "auto" || o.max_restarts > 0 || o.train.save_every > 0 || !o.sample.empty()) &&
      o.train.checkpoints.empty())
    refuse_input(o.resume == "auto"   ? "--resume auto"
                 : o.max_restarts > 0 ? "--max-restarts"
                 : o.sample.empty()   ? "--save-every"
                                      : "--sample",
                 "without --checkpoints", "a folder to save to", "add --checkpoints FOLDER");
  if (o.transport == "mpi" && (!o.launch || o.max_restarts > 0 || o.device == "cuda"))
    refuse_input("--transport mpi",
                 !o.launch            ? "a single process"
                 : o.max_restarts > 0 ? "given with --max-restarts"
                                      : "given for ranks on GPUs",
                 "ranks on CPUs, in processes that mpirun or srun starts once", "leave --transport out");
  if (o.max_restarts > 0) o.transport = "sockets";  // MPI takes no process that is started again
  settle_training(o);
  if (o.device == "cpu") check_memory(plan, o.launch, machine_memory_bytes(), o.plan);
  check_outputs(o);
  o.train.timeout = std::chrono::milliseconds(int64_t(o.timeout_s * 1000));
}

}  // namespace mpt::runtime
