// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <thread>

#include "core/clock.h"
#include "core/error.h"
#include "runtime/checkpoint/checkpoint_saver.h"
#include "runtime/execute/thread_lanes.h"
#include "runtime/nn/rank_sizes.h"
#include "runtime/train/rank_worker.h"

namespace mpt::runtime {
namespace {

// One training run: what the rank threads share.
class Run {
 public:
  Run(const Plan& plan, const TrainOptions& options, const RunInputs& inputs, const OnStep& on_step,
      const std::atomic<bool>& stop, DataType type)
      : plan_(plan),
        options_(options),
        inputs_(inputs),
        on_step_(on_step),
        stop_(stop),
        type_(type),
        program_(program_of(plan)),
        world_(options.timeout),
        spans_(size_t(program_.ranks), std::vector<Span>(program_.instructions.size())),
        data_wait_s_(size_t(plan.layout.ranks()), 0.0),
        overflow_(size_t(program_.ranks)) {
    result_.peak_bytes.assign(size_t(program_.ranks), 0);
    const int ranks = int(plan.layout.ranks());
    if (!options.checkpoints.empty()) {
      saver_ = std::make_unique<CheckpointSaver>(
          SaveOptions{options.checkpoints, options.keep, ranks, ranks, true,
                      std::chrono::duration<double>(options.timeout).count()});
    }
  }

  reports::RunResult run() {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < int(plan_.layout.ranks()); ++rank) {
      threads.emplace_back([this, rank] { run_rank_guarded(rank); });
    }
    for (std::thread& thread : threads) thread.join();
    if (!failure_.empty()) throw RunError(failure_);
    if (saver_) saver_->wait();
    keep_median_timeline();
    return std::move(result_);
  }

 private:
  void run_rank_guarded(int rank) {
    try {
      run_rank(rank);
    } catch (const std::exception& error) {
      fail(fmt::format("rank {}, step {}: {}", rank, step_.load() + 1, error.what()));
    }
  }

  // The first failure is the cause; the others are ranks that were woken by it.
  void fail(const std::string& what) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_.empty()) failure_ = what;
    }
    world_.abort(what);
  }

  void run_rank(int rank) {
    RankWorker worker(plan_, program_, rank, world_, options_, type_);
    prepare(worker);
    const auto lanes = make_thread_lanes(
        program_, worker.pipeline_rank(), [&](const std::string& name, const std::string& what) {
          fail(fmt::format("rank {}, step {}, {}: {}", rank, step_.load() + 1, name, what));
        });
    Executor executor(program_, worker.pipeline_rank(), *lanes, worker);
    Executor evaluator(program_, worker.pipeline_rank(), *lanes, worker, Pass::forward);
    std::vector<int> everybody(static_cast<size_t>(plan_.layout.ranks()));
    std::iota(everybody.begin(), everybody.end(), 0);
    const auto group = world_.communicator(rank, everybody, "step");
    int64_t saved = worker.state().step;
    while (worker.state().step < options_.steps) {
      const int64_t step = worker.state().step;
      group->barrier();
      if (rank == 0) {
        step_.store(step);
        stopping_ = stop_.load();
        step_start_s_ = now_s();
      }
      group->barrier();
      if (stopping_) break;
      const double before = now_s();
      worker.begin_step(*inputs_.data);
      data_wait_s_[size_t(rank)] = now_s() - before;
      executor.run_step();
      if (worker.is_representative()) collect_spans(worker.pipeline_rank(), *lanes);
      worker.end_step();
      if (worker.is_representative()) overflow_[size_t(worker.pipeline_rank())] = worker.first_overflow();
      group->barrier();
      if (rank == 0) note_step(worker);
      if (is_due(options_.evaluate_every, worker.state().step)) evaluate(worker, evaluator);
      if (rank == 0) finish_step();
      if (is_due(options_.save_every, worker.state().step)) save(rank, worker, saved);
    }
    if (worker.state().step > saved) save(rank, worker, saved);
    const std::lock_guard lock(mutex_);
    int64_t& peak = result_.peak_bytes[size_t(worker.pipeline_rank())];
    peak = std::max(peak, worker.device().peak_bytes());
  }

  static bool is_due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

  void prepare(RankWorker& worker) const {
    if (inputs_.resume != nullptr) {
      const CheckpointInfo& info = inputs_.resume->info();
      worker.load(*inputs_.resume, true);
      TrainingState state = worker.state();
      state.step = info.step;
      state.optimizer_steps = info.optimizer_steps;
      if (type_ == DataType::float16) {
        state.loss_scale = info.loss_scale;
        state.good_steps = info.good_steps;
      }
      worker.set_state(state);
    } else if (inputs_.weights != nullptr) {
      worker.load(*inputs_.weights, false);
    }
  }

  // The same batches every time, so that losses compare.
  void evaluate(RankWorker& worker, Executor& evaluator) {
    if (inputs_.validation == nullptr) return;
    double sum = 0.0;
    for (int64_t batch = 0; batch < options_.evaluation_steps; ++batch) {
      worker.begin_evaluation(*inputs_.validation, batch);
      evaluator.run_step();
      sum += worker.validation_loss();
    }
    if (worker.is_first_rank()) record_.validation_loss = sum / double(options_.evaluation_steps);
  }

  void save(int rank, RankWorker& worker, int64_t& saved) {
    saved = worker.state().step;
    if (!saver_) return;
    CheckpointInfo info;
    info.step = worker.state().step;
    info.samples = info.step * plan_.workload.global_batch;
    info.optimizer_steps = worker.state().optimizer_steps;
    info.loss_scale = worker.state().loss_scale;
    info.good_steps = worker.state().good_steps;
    info.loss = std::isfinite(worker.loss()) ? worker.loss() : 0.0;
    info.data_digest = inputs_.data->digest();
    info.seed = int64_t(options_.seed);
    info.layout = layout_name(plan_.layout);
    info.model = plan_.model;
    saver_->add(rank, info, worker.snapshot());
  }

  void collect_spans(int pipeline_rank, const Lanes& lanes) {
    for (InstructionId id = 0; id < program_.size(); ++id) {
      if (program_.lane_on(id, pipeline_rank)) spans_[size_t(pipeline_rank)][size_t(id)] = lanes.span(id);
    }
  }

  // An instruction that several ranks share is over when the last of them has it: a transfer at its receiver.
  // It began when the last of them was there.
  Timeline assemble() const {
    Timeline timeline;
    timeline.spans.resize(program_.instructions.size());
    double first = std::numeric_limits<double>::infinity();
    for (InstructionId id = 0; id < program_.size(); ++id) {
      Span& span = timeline.spans[size_t(id)];
      for (const Lane& lane : program_.lanes(id)) {
        const Span& own = spans_[size_t(lane.rank)][size_t(id)];
        span.start_s = std::max(span.start_s, own.start_s);
        span.end_s = std::max(span.end_s, own.end_s);
      }
      first = std::min(first, span.start_s);
    }
    for (Span& span : timeline.spans) span = {span.start_s - first, span.end_s - first};
    return timeline;
  }

  void note_step(const RankWorker& worker) {
    const TrainingState& state = worker.state();
    record_ = {};
    record_.step = state.step;
    record_.loss = worker.loss();
    record_.gradient_norm = worker.gradient_norm();
    record_.learning_rate = learning_rate_at(options_, state.step - 1);
    record_.skipped = !worker.is_finite();
    record_.loss_scale = state.loss_scale;
    record_.step_time_s = now_s() - step_start_s_;
    record_.tokens_per_s = double(plan_.workload.tokens_per_step()) / record_.step_time_s;
    Timeline timeline = assemble();
    record_.bubble_share = bubble_share(program_, timeline);
    record_.data_wait_s = *std::max_element(data_wait_s_.begin(), data_wait_s_.end());
    recent_.push_back(std::move(timeline));
    if (recent_.size() > kTimelinesKept) recent_.erase(recent_.begin());
    // In fp16 a loss scale that is too large shows like this, and is halved.
    if (state.skipped_in_a_row > options_.most_skipped && state.loss_scale <= 1.0) give_up(worker);
  }

  [[noreturn]] void give_up(const RankWorker& worker) const {
    std::string first = "the gradients";
    for (const std::string& place : overflow_) {
      if (place.empty()) continue;
      first = place;
      break;
    }
    throw RunError(
        fmt::format("{} steps in a row were not finite (the loss is {}, the gradient norm {}) and were "
                    "skipped; {} went bad "
                    "first: lower the learning rate (--lr)",
                    worker.state().skipped_in_a_row, worker.loss(), worker.gradient_norm(), first));
  }

  void finish_step() {
    result_.steps.push_back(record_);
    if (on_step_) on_step_(record_);
  }

  // The kept step whose time is nearest to the median stands for the run.
  void keep_median_timeline() {
    const double median = reports::median_step_time_s(result_);
    double best = std::numeric_limits<double>::infinity();
    for (Timeline& timeline : recent_) {
      const double distance = std::fabs(step_time_s(timeline) - median);
      if (distance >= best) continue;
      best = distance;
      result_.timeline = timeline;
    }
  }

  static constexpr size_t kTimelinesKept = 16;

  const Plan& plan_;
  const TrainOptions& options_;
  RunInputs inputs_;
  const OnStep& on_step_;
  const std::atomic<bool>& stop_;
  DataType type_;
  StepProgram program_;
  ThreadWorld world_;
  std::vector<std::vector<Span>> spans_;  // [pipeline rank][instruction], of the first replica
  std::vector<double> data_wait_s_;
  std::vector<std::string> overflow_;  // by pipeline rank
  std::unique_ptr<CheckpointSaver> saver_;
  reports::StepRecord record_;  // of the step at hand; rank 0's
  std::vector<Timeline> recent_;
  std::mutex mutex_;
  std::string failure_;
  std::atomic<int64_t> step_{0};
  bool stopping_ = false;  // written by rank 0 between two barriers, read after
  double step_start_s_ = 0.0;
  reports::RunResult result_;
};

}  // namespace

reports::RunResult train(const Plan& plan, const TrainOptions& options, const RunInputs& inputs,
                         const OnStep& on_step, const std::atomic<bool>& stop, DataType type) {
  check_supported(plan.model, plan.layout);
  return Run(plan, options, inputs, on_step, stop, type).run();
}

reports::RunResult train(const Plan& plan, const TrainOptions& options, const RunInputs& inputs,
                         const OnStep& on_step, const std::atomic<bool>& stop) {
  return train(plan, options, inputs, on_step, stop, compute_type(plan.layout.precision));
}

}  // namespace mpt::runtime
