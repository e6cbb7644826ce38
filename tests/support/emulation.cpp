// SPDX-License-Identifier: Apache-2.0
#include "tests/support/emulation.h"

#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "core/rank_grid.h"
#include "reports/utilisation.h"
#include "runtime/comm/threads/thread_world.h"
#include "runtime/execute/executor.h"
#include "runtime/execute/thread_lanes.h"

namespace mpt::runtime {
namespace {

// Threads wake late, the more of them the later, and a chain of instructions would add that up. So an
// instruction lasts from when it was due: when what it waited for was due to end, here and on the ranks that
// it meets. What is later than this is no thread's waking any more, and counts.
constexpr double kMostLate_s = 5e-3;

// Meets the other ranks of an instruction, then sleeps.
class EmulatedRank final : public InstructionHandler {
 public:
  EmulatedRank(const Plan& plan, const StepProgram& program, const std::vector<double>& durations_s,
               double scale, const EmulatedFaults& faults, int rank, World& world)
      : program_(program),
        durations_s_(durations_s),
        scale_(scale),
        faults_(faults),
        rank_(rank),
        inside_(reports::inside_shares(plan, program, durations_s)),
        pipeline_rank_(int(RankGrid(plan.layout).coordinates(rank).pipeline)) {
    const RankGrid grid(plan.layout);
    // Ranks of a tensor or context group wait for each other within every layer.
    for (const Axis axis : {Axis::tensor, Axis::context}) {
      const std::vector<int64_t> members = grid.group(rank, axis);
      waits_for_slow_ |= std::find(members.begin(), members.end(), faults.slow_rank) != members.end();
    }
    const auto group = [&](const std::vector<int64_t>& members, const std::string& name) {
      return world.communicator(rank, {members.begin(), members.end()}, name);
    };
    const std::vector<int64_t> pipeline = grid.group(rank, Axis::pipeline);
    activations_ = group(pipeline, "pipeline activations");
    gradients_ = group(pipeline, "pipeline gradients");
    for (int s = 0; s < program.stages; ++s) {
      if (program.rank_of_stage[size_t(s)] == pipeline_rank_)
        replicas_.push_back(group(grid.group(rank, Axis::data), fmt::format("data, stage {}", s)));
      else
        replicas_.push_back(nullptr);
    }
    const int first = program.rank_of_stage.front(), last = program.rank_of_stage.back();
    if (first != last && (pipeline_rank_ == first || pipeline_rank_ == last))
      ends_ = group({pipeline[size_t(first)], pipeline[size_t(last)]}, "tied embedding");
    std::vector<int64_t> everybody(static_cast<size_t>(grid.ranks()));
    std::iota(everybody.begin(), everybody.end(), 0);
    everybody_ = group(everybody, "gradient norm");
  }

  int pipeline_rank() const { return pipeline_rank_; }

  void run(InstructionId id) override {
    // The kernel may wake sleepers late by this much; the default is 50 us.
    thread_local const bool sharp = ::prctl(PR_SET_TIMERSLACK, 1) == 0;
    (void)sharp;
    const Instruction& i = program_.instructions[size_t(id)];
    const double due = std::max(meet(i, due_from(id)), now_s() - kMostLate_s);
    double seconds = durations_s_[size_t(id)];
    if (i.is_compute()) {
      seconds = compute(seconds);
    } else {
      if (is_slow(i)) seconds *= faults_.slow_link_factor;
      const std::lock_guard lock(record_mutex_);
      (i.is_transfer() ? record_.transfer_s : record_.gradients_s) += seconds;
    }
    ends_s_[size_t(id)] = due + seconds * scale_;
    sleep_until(ends_s_[size_t(id)]);
  }

  /// From `start`, on the clock of now_s().
  void begin_step(double start) {
    step_start_s_ = start + faults_.data_wait_s * scale_;
    record_.data_wait_s = faults_.data_wait_s;
    newest_.fill(-1);
    sleep_until(step_start_s_);
  }

  /// Of the step that ended, which took this long.
  reports::RankRecord take_record(double step_time_s) {
    reports::RankRecord record = std::exchange(record_, {});
    record.rank = rank_;
    const double busy =
        record.compute_s + record.tensor_s + record.context_s + record.expert_s + record.sharding_s;
    record.idle_s = std::max(0.0, step_time_s - busy);
    return record;
  }

 private:
  bool is_slow(const Instruction& i) const {
    return faults_.slow_link ==
           (i.is_transfer() ? CommunicationKind::transfer : CommunicationKind::gradients);
  }

  // When the last that it waits for on this rank is due to end: it stands before it in its stream or is
  // named.
  double due_from(InstructionId id) {
    InstructionId& before = newest_[size_t(program_.lane_on(id, pipeline_rank_)->stream)];
    double due = before < 0 ? step_start_s_ : ends_s_[size_t(before)];
    for (const InstructionId wait : program_.waits(id)) {
      if (program_.lane_on(wait, pipeline_rank_)) due = std::max(due, ends_s_[size_t(wait)]);
    }
    before = id;
    return due;
  }

  // Of kernels and the collectives between them, with what is wrong.
  double compute(double seconds) {
    double inside[4] = {}, kernels = seconds, total = 0.0;
    for (size_t kind = 0; kind < 4; ++kind) {
      inside[kind] = seconds * inside_[kind];
      kernels -= inside[kind];
      if (faults_.slow_link == CommunicationKind(kind)) inside[kind] *= faults_.slow_link_factor;
      total += inside[kind];
    }
    const double more = waits_for_slow_ ? kernels * (faults_.slow_rank_factor - 1.0) : 0.0;
    const bool slow = rank_ == faults_.slow_rank;
    const std::lock_guard lock(record_mutex_);
    record_.compute_s += kernels + (slow ? more : 0.0);
    record_.tensor_s += inside[0] + (slow ? 0.0 : more);
    record_.context_s += inside[1];
    record_.expert_s += inside[2];
    record_.sharding_s += inside[3];
    return kernels + more + total;
  }

  static void sleep_until(double end_s) {
    const double seconds = end_s - now_s();
    if (seconds > 0.0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }

  // When the last of the ranks of an instruction is due to start it; this one is at `due`.
  double meet(const Instruction& i, double due) {
    switch (i.kind) {
      case InstructionKind::transfer_activation:
        return transfer(i, *activations_, i.stage + 1, due);
      case InstructionKind::transfer_gradient:
        return transfer(i, *gradients_, i.stage - 1, due);
      case InstructionKind::reduce_gradient:
      case InstructionKind::gather_parameters:
        return latest(*replicas_[size_t(i.stage)], due);
      case InstructionKind::reduce_tied_embedding:
        return ends_ ? latest(*ends_, due) : due;
      case InstructionKind::reduce_norm:
        return latest(*everybody_, due);
      default:
        return due;
    }
  }

  static double latest(Communicator& group, double due) {
    group.all_reduce(&due, 1, DataType::float64, ReduceOperation::maximum);
    return due;
  }

  double transfer(const Instruction& i, Communicator& group, int to_stage, double due) const {
    const int from = program_.rank_of_stage[size_t(i.stage)], to = program_.rank_of_stage[size_t(to_stage)];
    if (pipeline_rank_ == from) {
      group.send(&due, sizeof(due), to);
      return due;
    }
    double sent = 0.0;
    group.receive(&sent, sizeof(sent), from);
    return std::max(sent, due);
  }

  const StepProgram& program_;
  const std::vector<double>& durations_s_;
  double scale_;
  EmulatedFaults faults_;
  int rank_;
  std::array<double, 4> inside_;  // shares, by CommunicationKind
  bool waits_for_slow_ = false;
  int pipeline_rank_;
  double step_start_s_ = 0.0;
  std::vector<double> ends_s_ = std::vector<double>(program_.instructions.size());  // of the step at hand
  std::array<InstructionId, kStreamCount> newest_{};  // by stream, -1 before its first
  std::mutex record_mutex_;
  reports::RankRecord record_;  // of the step at hand
  std::unique_ptr<Communicator> activations_, gradients_, ends_, everybody_;
  std::vector<std::unique_ptr<Communicator>> replicas_;
};

class Emulation {
 public:
  Emulation(const Plan& plan, int64_t steps, double scale, std::chrono::milliseconds timeout,
            const EmulatedFaults& faults, const OnStep& on_step, const std::atomic<bool>& stop)
      : plan_(plan),
        steps_(steps),
        scale_(scale),
        faults_(faults),
        on_step_(on_step),
        stop_(stop),
        program_(program_of(plan)),
        durations_s_(durations_of(plan, program_)),
        world_(timeout, int(plan.layout.ranks())) {
    result_.peak_bytes = mpt::peak_bytes(program_);  // nothing is allocated: what is predicted stands
    result_.timeline.spans.resize(program_.instructions.size());
  }

  reports::RunResult run() {
    std::vector<std::thread> threads;
    for (const int rank : world_.local_ranks()) {
      threads.emplace_back([this, rank] {
        try {
          run_rank(rank);
        } catch (const std::exception& error) {
          fail(fmt::format("rank {}: {}", rank, failure_text(error)));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (!failure_.empty()) throw RunError(failure_);
    return std::move(result_);
  }

 private:
  void fail(const std::string& what) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_.empty()) failure_ = what;
    }
    world_.abort(what);
  }

  void run_rank(int rank) {
    EmulatedRank emulated(plan_, program_, durations_s_, scale_, faults_, rank, world_);
    const auto lanes = make_thread_lanes(program_, emulated.pipeline_rank(),
                                         [&](const std::string& name, const std::string& what) {
                                           fail(fmt::format("rank {}, {}: {}", rank, name, what));
                                         });
    Executor executor(program_, emulated.pipeline_rank(), *lanes, emulated);
    std::vector<int> everybody = world_.local_ranks();
    const auto group = world_.communicator(rank, everybody, "step");
    const RankCoordinates at = RankGrid(plan_.layout).coordinates(rank);
    const bool representative = at.tensor == 0 && at.data == 0 && at.context == 0;
    for (int64_t step = 0; step < steps_; ++step) {
      double asked = stop_.load() ? 1.0 : 0.0;
      group->all_reduce(&asked, 1, DataType::float64, ReduceOperation::maximum);
      if (asked > 0.0) break;
      double start = now_s();
      group->all_reduce(&start, 1, DataType::float64, ReduceOperation::maximum);
      emulated.begin_step(start);
      executor.run_step();
      keep_record(rank, emulated.take_record((now_s() - start) / scale_));
      if (representative) keep_spans(emulated.pipeline_rank(), *lanes, start);
      group->barrier();
      if (rank == 0) finish_step(step);
    }
  }

  void keep_record(int rank, const reports::RankRecord& record) {
    const std::lock_guard lock(mutex_);
    records_[size_t(rank)] = record;
  }

  // A shared instruction counts from the latest start to the latest end, as in training.
  void keep_spans(int pipeline_rank, const Lanes& lanes, double start) {
    const std::lock_guard lock(mutex_);
    for (InstructionId id = 0; id < program_.size(); ++id) {
      if (!program_.lane_on(id, pipeline_rank)) continue;
      const Span span = lanes.span(id);
      Span& kept = current_[size_t(id)];
      kept.start_s = std::max(kept.start_s, (span.start_s - start) / scale_);
      kept.end_s = std::max(kept.end_s, (span.end_s - start) / scale_);
    }
  }

  void finish_step(int64_t step) {
    Timeline timeline{std::exchange(current_, std::vector<Span>(program_.instructions.size()))};
    double last = 0.0;
    for (Span& span : timeline.spans) {
      span = {span.start_s - faults_.data_wait_s, span.end_s - faults_.data_wait_s};
      last = std::max(last, span.end_s);
    }
    reports::StepRecord record;
    record.step = step + 1;
    record.step_time_s = last + faults_.data_wait_s;
    record.data_wait_s = faults_.data_wait_s;
    record.ranks = records_;
    record.instructions = reports::mean_durations(program_, timeline);
    record.tokens_per_s = double(plan_.workload.tokens_per_step()) / record.step_time_s;
    record.bubble_share = bubble_share(program_, timeline);
    result_.steps.push_back(record);
    result_.timeline = std::move(timeline);
    if (on_step_) on_step_(record);
  }

  const Plan& plan_;
  int64_t steps_;
  double scale_;
  EmulatedFaults faults_;
  const OnStep& on_step_;
  const std::atomic<bool>& stop_;
  StepProgram program_;
  std::vector<double> durations_s_;
  ThreadWorld world_;
  std::mutex mutex_;
  std::string failure_;
  std::vector<reports::RankRecord> records_ = std::vector<reports::RankRecord>(size_t(plan_.layout.ranks()));
  std::vector<Span> current_ = std::vector<Span>(program_.instructions.size());
  reports::RunResult result_;
};

}  // namespace

reports::RunResult emulate(const Plan& plan, int64_t steps, double scale, std::chrono::milliseconds timeout,
                           const EmulatedFaults& faults, const OnStep& on_step,
                           const std::atomic<bool>& stop) {
  return Emulation(plan, steps, scale, timeout, faults, on_step, stop).run();
}

}  // namespace mpt::runtime
