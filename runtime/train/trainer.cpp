// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <mutex>
#include <thread>

#include "core/clock.h"
#include "core/error.h"
#include "runtime/execute/thread_lanes.h"
#include "runtime/nn/rank_sizes.h"
#include "runtime/train/rank_worker.h"

namespace mpt::runtime {
namespace {

// One training run: what the rank threads share.
class Run {
 public:
  Run(const Plan& plan, const TrainOptions& options, const TextCorpus& corpus, const OnStep& on_step,
      const std::atomic<bool>& stop, DataType type)
      : plan_(plan),
        options_(options),
        corpus_(corpus),
        on_step_(on_step),
        stop_(stop),
        type_(type),
        program_(program_of(plan)),
        world_(options.timeout),
        spans_(size_t(program_.ranks), std::vector<Span>(program_.instructions.size())),
        data_wait_s_(size_t(plan.layout.ranks()), 0.0) {
    result_.peak_bytes.assign(size_t(program_.ranks), 0);
  }

  reports::RunResult run() {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < int(plan_.layout.ranks()); ++rank) {
      threads.emplace_back([this, rank] { run_rank_guarded(rank); });
    }
    for (std::thread& thread : threads) thread.join();
    if (!failure_.empty()) throw RunError(failure_);
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
    const auto lanes = make_thread_lanes(
        program_, worker.pipeline_rank(), [&](const std::string& name, const std::string& what) {
          fail(fmt::format("rank {}, step {}, {}: {}", rank, step_.load() + 1, name, what));
        });
    Executor executor(program_, worker.pipeline_rank(), *lanes, worker);
    std::vector<int> everybody;
    for (int r = 0; r < int(plan_.layout.ranks()); ++r) everybody.push_back(r);
    const auto group = world_.communicator(rank, everybody, "step");
    for (int64_t step = 0; step < options_.steps; ++step) {
      group->barrier();
      if (rank == 0) {
        step_.store(step);
        stopping_ = stop_.load();
        step_start_s_ = now_s();
      }
      group->barrier();
      if (stopping_) break;
      const double before = now_s();
      worker.begin_step(step, corpus_);
      data_wait_s_[size_t(rank)] = now_s() - before;
      executor.run_step();
      if (worker.is_representative()) collect_spans(worker.pipeline_rank(), *lanes);
      group->barrier();
      if (rank == 0) finish_step(step, worker);
    }
    const std::lock_guard lock(mutex_);
    int64_t& peak = result_.peak_bytes[size_t(worker.pipeline_rank())];
    peak = std::max(peak, worker.device().peak_bytes());
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

  void finish_step(int64_t step, const RankWorker& worker) {
    if (!std::isfinite(worker.loss()) || !std::isfinite(worker.gradient_norm())) {
      throw RunError(fmt::format("the loss is {} and the gradient norm {}: lower the learning rate (--lr)",
                                 worker.loss(), worker.gradient_norm()));
    }
    reports::StepRecord record;
    record.step = step + 1;
    record.loss = worker.loss();
    record.gradient_norm = worker.gradient_norm();
    record.learning_rate = learning_rate_at(options_, step);
    record.step_time_s = now_s() - step_start_s_;
    record.tokens_per_s = double(plan_.workload.tokens_per_step()) / record.step_time_s;
    Timeline timeline = assemble();
    record.bubble_share = bubble_share(program_, timeline);
    record.data_wait_s = *std::max_element(data_wait_s_.begin(), data_wait_s_.end());
    result_.steps.push_back(record);
    recent_.push_back(std::move(timeline));
    if (recent_.size() > kTimelinesKept) recent_.erase(recent_.begin());
    if (on_step_) on_step_(record);
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
  const TextCorpus& corpus_;
  const OnStep& on_step_;
  const std::atomic<bool>& stop_;
  DataType type_;
  StepProgram program_;
  ThreadWorld world_;
  std::vector<std::vector<Span>> spans_;  // [pipeline rank][instruction], of the first replica
  std::vector<double> data_wait_s_;
  std::vector<Timeline> recent_;
  std::mutex mutex_;
  std::string failure_;
  std::atomic<int64_t> step_{0};
  bool stopping_ = false;  // written by rank 0 between two barriers, read after
  double step_start_s_ = 0.0;
  reports::RunResult result_;
};

}  // namespace

reports::RunResult train(const Plan& plan, const TrainOptions& options, const TextCorpus& corpus,
                         const OnStep& on_step, const std::atomic<bool>& stop, DataType type) {
  check_supported(plan.model, plan.layout);
  return Run(plan, options, corpus, on_step, stop, type).run();
}

}  // namespace mpt::runtime
