// SPDX-License-Identifier: Apache-2.0

// mpt-run: loads the plan, trains, and reports measured and predicted values.

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "base/command_line.h"
#include "base/files.h"
#include "base/interruption.h"
#include "base/json.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "core/plan.h"
#include "reports/html.h"
#include "reports/trace.h"
#include "runtime/checkpoint/checkpoint_saver.h"
#include "runtime/checkpoint/folder_lock.h"
#include "runtime/checkpoint/hugging_face.h"
#include "runtime/command_line.h"
#include "runtime/last_screen.h"
#include "runtime/monitor/gpu_load.h"
#include "runtime/monitor/step_monitor.h"
#include "runtime/program.h"
#include "runtime/train/trainer.h"

namespace mpt {
namespace {

constexpr const char* kEarlyEnd = "mpt-run: stopped before the first step as asked; nothing new to save\n";

// The checkpoint of the last step, if it was saved.
std::filesystem::path saved_checkpoint(const runtime::RunOptions& o, const reports::RunResult& result) {
  if (o.train.checkpoints.empty() || result.steps.empty()) return {};
  const std::filesystem::path path =
      std::filesystem::path(o.train.checkpoints) / runtime::checkpoint_name(result.steps.back().step);
  return is_there(path) ? path : std::filesystem::path();
}

void write_outputs(const runtime::RunOptions& o, const Plan& plan, const reports::RunResult& result,
                   const std::map<std::filesystem::path, std::string>& lost) {
  const StepProgram program = program_of(plan);
  const std::optional<Timeline> predicted = stored_timeline(plan);
  if (!o.trace.empty()) {
    std::vector<reports::NamedTimeline> timelines{{"measured", result.timeline}};
    if (predicted) timelines.push_back({"predicted", *predicted});
    write_file_atomically(o.trace, reports::trace_json(program, timelines));
  }
  if (!o.report.empty())
    write_file_atomically(o.report, reports::run_report(plan, program, predicted, result));
  if (o.quiet) return;
  runtime::RunFacts facts{o.plan, o.log, o.tensorboard, o.metrics, o.trace, o.report, o.train.checkpoints};
  facts.saved = saved_checkpoint(o, result);
  facts.lost = lost;
  facts.cores = int64_t(std::thread::hardware_concurrency());
  facts.others_share = o.launch ? 0.0 : o.load.others_share();  // the run's other processes do not count
  print_while_read([&] { fmt::print("{}", runtime::last_screen(plan, result, facts, Palette::of(stdout))); });
}

// The data, weights and earlier state that one attempt opened.
struct Opened {
  std::unique_ptr<runtime::Dataset> data, validation;
  std::unique_ptr<runtime::Checkpoint> checkpoint;
  std::unique_ptr<runtime::TensorSource> weights;
};

void check_model(const Plan& plan, const runtime::Checkpoint& checkpoint) {
  ModelSpec model = checkpoint.info().model;
  model.name = plan.model.name;
  if (model == plan.model) return;
  refuse_input(checkpoint.folder().string(), fmt::format("a checkpoint of {}", checkpoint.info().model.name),
               fmt::format("one of the plan's model, {}, with the same sizes", plan.model.name),
               "resume with a plan of that model");
}

// A run that does not resume from the newest checkpoint of its folder must not save later steps there.
void check_save_folder(const runtime::RunOptions& o, bool restarted, int64_t start_step) {
  std::error_code error;
  const bool from_newest =
      restarted || o.resume == "auto" || std::filesystem::equivalent(o.resume, o.train.checkpoints, error);
  if (o.train.checkpoints.empty() || from_newest) return;
  runtime::check_no_later_checkpoints(
      o.train.checkpoints, start_step,
      !o.resume.empty() ? "say --resume auto to go on from the newest, or name another folder"
      : !o.init.empty() ? "name another folder; or say --resume auto, without --init, to go on from it"
                        : "add --resume auto to go on from it, or name another folder");
}

// A restarted run resumes its own newest checkpoint. Without one it starts as the first attempt did.
std::unique_ptr<runtime::Checkpoint> resumed_checkpoint(const runtime::RunOptions& o, bool restarted) {
  std::unique_ptr<runtime::Checkpoint> newest;
  if (o.resume == "auto" || restarted)
    newest = runtime::open_for_reading(o.train.checkpoints, "--resume", true);
  if (o.resume.empty() || o.resume == "auto") return newest;
  auto named = runtime::open_for_reading(o.resume, "--resume");
  return newest && newest->info().step > named->info().step ? std::move(newest) : std::move(named);
}

void open_weights(const runtime::RunOptions& o, const Plan& plan, bool restarted, Opened& opened) {
  opened.checkpoint = resumed_checkpoint(o, restarted);
  if (opened.checkpoint) check_model(plan, *opened.checkpoint);
  check_save_folder(o, restarted, opened.checkpoint ? opened.checkpoint->info().step : 0);
  if (o.init.empty() || opened.checkpoint) return;
  if (is_there(std::filesystem::path(o.init) / "config.json")) {
    auto weights = std::make_unique<runtime::HuggingFaceWeights>(o.init, plan.model);
    if (weights->lacks_modules())
      warn(fmt::format("mpt-run: note: {} has no next-token modules: theirs start from the seed", o.init));
    opened.weights = std::move(weights);
  } else {
    auto checkpoint = runtime::open_for_reading(o.init, "--init");
    check_model(plan, *checkpoint);
    opened.weights = std::move(checkpoint);
  }
}

Opened open_inputs(const runtime::RunOptions& o, const Plan& plan, bool restarted) {
  Opened opened;
  runtime::DatasetOptions data;
  data.parts = runtime::parse_data_argument(o.data);
  data.format = *enum_value<runtime::DataFormat>(o.data_format);
  data.sequence = plan.workload.sequence;
  data.vocab = plan.model.vocab;
  data.further = plan.model.next_token_layers;
  data.seed = o.train.seed;
  data.validation_share = o.validation_share;
  opened.data = std::make_unique<runtime::Dataset>(data, runtime::DataSplit::training);
  if (o.train.evaluate_every > 0)
    opened.validation = std::make_unique<runtime::Dataset>(data, runtime::DataSplit::validation);
  open_weights(o, plan, restarted, opened);
  return opened;
}

// Prints which weights the run starts with.
void announce_start(const runtime::RunOptions& o, const Opened& opened) {
  if (opened.checkpoint) {
    const runtime::CheckpointInfo& info = opened.checkpoint->info();
    fmt::print("resuming {} after step {}, saved in layout {}; {} steps to go\n",
               opened.checkpoint->folder().string(), info.step, info.layout,
               std::max(int64_t{0}, o.train.steps - info.step));
  } else if (o.resume == "auto") {
    fmt::print("no checkpoint in {} yet: starting at step 1\n", o.train.checkpoints);
  }
  if (opened.weights) fmt::print("starting with the weights of {}\n", o.init);
}

void announce(const runtime::RunOptions& o, const Plan& plan, const Opened& opened) {
  if (const std::string& framework = plan.layout.execution->framework; framework != Execution{}.framework)
    warn(fmt::format(
        "mpt-run: note: time and memory are predicted for {}, not for mpt-run; mpt-plan --framework "
        "mpt predicts them for mpt-run",
        framework));
  if (opened.checkpoint && opened.checkpoint->info().data_digest != opened.data->digest())
    warn(fmt::format(
        "mpt-run: note: {} was trained on other data, or with another --validation-share: windows that were "
        "kept for validation may be trained on",
        opened.checkpoint->folder().string()));
  if (opened.checkpoint && opened.checkpoint->info().seed != int64_t(o.train.seed))
    warn(fmt::format("mpt-run: note: --seed is {}, the checkpoint's was {}: the data come in another order",
                     o.train.seed, opened.checkpoint->info().seed));
  if (o.quiet) return;
  fmt::print("{} on {} {} ranks: {}; predicted {} per step\n",
             Palette::of(stdout).heading("Training " + plan.model.name), plan.layout.ranks(),
             o.device == "cuda" ? "GPU" : "CPU", layout_name(plan.layout),
             format_seconds(plan.prediction.step_time_s));
  const int64_t windows = opened.data->windows(), batch = plan.workload.global_batch;
  fmt::print("{} tokens of data, {} sequences of {}: each is seen once in {} steps\n",
             format_count(opened.data->tokens()), format_count(windows), plan.workload.sequence,
             format_count((windows + batch - 1) / batch));
  if (o.launch)
    fmt::print("{} processes started by {}, {} ranks in each\n", o.launch->processes, o.launch->launcher,
               plan.layout.ranks() / o.launch->processes);
  announce_start(o, opened);
}

// Prints which checkpoint a stopped run has saved.
void tell_stop(const runtime::RunOptions& o, int64_t done, const reports::RunResult& result) {
  if (o.launch && o.launch->process > 0) return;
  const int64_t step = done + int64_t(result.steps.size());
  const auto saved = std::filesystem::path(o.train.checkpoints) / runtime::checkpoint_name(step);
  warn(fmt::format("mpt-run: stopped {} as asked; {}",
                   step == 0 ? "before the first step" : fmt::format("after step {}", step),
                   result.steps.empty()          ? "nothing new to save"
                   : o.train.checkpoints.empty() ? "nothing was saved, for there was no --checkpoints FOLDER"
                                                 : fmt::format("saved {}", saved.string())));
}

// Text of a new checkpoint's model. What goes wrong with it must not end the training, nor hold it up for
// long.
void say_sample(const runtime::RunOptions& o, const std::filesystem::path& saved, int64_t step,
                const auto& say) {
  if (o.sample.empty() || stop_requested()) return;
  try {
    const runtime::SampleOptions sample{
        .checkpoint = saved.string(), .prompt = o.sample, .tokenizer = o.tokenizer, .most_s = 30.0};
    say(fmt::format("{}: {}", runtime::checkpoint_name(step), runtime::sample_text(sample)));
  } catch (const std::exception& error) {
    warn(fmt::format("mpt-run: no sample of {}: {}", saved.string(), error.what()));
  }
}

// A thread is stuck in a driver, so destructors cannot run.
void end_at_once(const std::string& what) {
  warn(fmt::format("mpt-run: run failed: {}", what));
  std::fflush(stdout);
  ::_exit(kExitRunFailed);
}

int train(const runtime::RunOptions& o, const Plan& plan, const runtime::Attempt& attempt,
          runtime::Backend* backend) {
  const Opened opened = open_inputs(o, plan, attempt.restarted);
  try {
    print_while_read([&] {
      if (backend != nullptr && !o.quiet) fmt::print("{}\n", backend->description());
      announce(o, plan, opened);
    });
  } catch (const std::system_error&) {  // the monitor reports it
  }
  catch_signals(o.max_restarts > 0 ? RepeatedSignal::ignored : RepeatedSignal::ends);
  const int64_t done = opened.checkpoint ? opened.checkpoint->info().step : 0;
  reports::RunResult result;
  std::map<std::filesystem::path, std::string> lost;
  {
    files_of_program().check();  // before the log is opened
    runtime::StepMonitor monitor(plan,
                                 {o.train.steps, o.log, o.tensorboard, o.metrics, done, o.quiet, o.watch});
    const auto gpus = backend != nullptr && o.reads_gpus ? runtime::open_gpu_monitor() : nullptr;
    const auto read_gpu = [&](const auto& bus_id, auto& record) {
      if (gpus) gpus->read(bus_id, record);
    };
    const auto say = [&](const std::string& text) { monitor.say(text); };
    result = runtime::train(
        plan, o.train,
        {opened.data.get(), opened.validation.get(), opened.checkpoint.get(), opened.weights.get(), o.launch,
         backend, end_at_once, o.transport, say,
         [&](const auto& saved, int64_t step) { say_sample(o, saved, step, say); }, read_gpu},
        [&](const auto& record) { monitor.on_step(record); }, stop_requested());
    lost = monitor.failures();
  }
  attempt.has_trained = true;
  if (result.stopped) tell_stop(o, done, result);
  if (!result.steps.empty()) write_outputs(o, plan, result, lost);
  if (result.steps.empty() && !result.stopped && !o.quiet)
    fmt::print(
        "nothing to do: the checkpoint is at step {}, and --steps is {}; ask for more steps to go on\n", done,
        o.train.steps);
  if (result.stopped) return kExitInterrupted;
  if (!lost.empty()) throw RunError(lost.begin()->second);
  return kExitOk;
}

std::string without_gpu(const std::string& plan) {
  return fmt::format(
      "without a GPU: --device cpu trains on this machine's cores (slowly),\n"
      "    mpt-plan export {} --to FRAMEWORK writes another framework's files (mpt-plan export --help)",
      shell_word(plan));
}

int run(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "inspect") return runtime::inspect(argc - 1, argv + 1);
  if (command == "export") return runtime::export_weights(argc - 1, argv + 1);
  if (command == "sample") return runtime::sample(argc - 1, argv + 1);
  if (command == "tokenize") return runtime::tokenize(argc - 1, argv + 1);
  runtime::RunOptions o;
  CLI::App app{
      "Trains the model of a plan in the plan's layout, and compares time and memory with the prediction. "
      "Ranks are threads of this machine, or processes that torchrun, mpirun or srun starts."};
  runtime::declare(app, o);
  app.footer(app.get_footer() + kExitCodes);
  if (const auto code = parse_command_line(app, argc, argv)) return *code;
  o.launch = runtime::launch_from_environment(o.master_port);
  o.reads_gpus = o.watch || !o.log.empty() || !o.metrics.empty();
  if (o.launch && o.launch->process > 0) {  // the first process prints for all
    o.quiet = true;
    o.sample = "";
    o.log = o.tensorboard = o.metrics = o.trace = o.report = "";
  }
  end_on_signals(kEarlyEnd);
  if (!o.init.empty() && is_there(std::filesystem::path(o.init) / "config.json"))
    o.train.like = std::filesystem::absolute(o.init);
  if (!o.tokenizer.empty()) o.train.tokenizer = std::filesystem::absolute(o.tokenizer);
  const Plan plan = load_plan(o.plan);
  runtime::check_plan(plan, o);
  if (!o.sample.empty() || !o.tokenizer.empty())
    runtime::check_sample({.prompt = o.sample.empty() ? "." : o.sample, .tokenizer = o.tokenizer},
                          plan.model);
  // Held over all attempts. The processes of a launched run count as one run.
  std::optional<runtime::FolderLock> lock;
  if (!o.train.checkpoints.empty() && (!o.launch || o.launch->process == 0))
    lock.emplace(o.train.checkpoints);
  const auto start = [&](const runtime::Attempt& attempt) {
    end_on_signals(kEarlyEnd);
    // Loaded in each attempt's own process: CUDA does not survive a fork.
    const auto backend = o.device == "cuda" ? runtime::load_cuda_backend(without_gpu(o.plan)) : nullptr;
    return train(o, plan, attempt, backend.get());
  };
  std::atomic<bool> has_trained{false};
  return o.max_restarts == 0 ? start({false, has_trained}) : runtime::run_supervised(o.max_restarts, start);
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) {
  return mpt::run_program("mpt-run", [&] { return mpt::run(argc, argv); });
}
