// SPDX-License-Identifier: Apache-2.0
#include "planner/search/made_to_measure.h"

#include "core/lower.h"
#include "core/schedules/list_scheduler.h"
#include "planner/search/split_model.h"
#include "planner/search/step_bounds.h"

namespace mpt::planner {
namespace {

class ScheduleMaker {
 public:
  ScheduleMaker(const SearchProblem& problem, const Layout& layout,
                const std::vector<StageFootprint>& footprints, const StepCost& cost, ProgramCache& programs,
                double slowest_s)
      : problem_(problem),
        layout_(layout),
        footprints_(footprints),
        cost_(cost),
        programs_(programs),
        slowest_s_(slowest_s),
        micro_batches_(micro_batches(layout, problem.workload)),
        contention_(contention_of(problem, layout)),
        limits_(limits_of_ranks(problem, layout)) {}

  std::optional<MadeSchedule> run() {
    for (const ScheduleEntry& entry : schedule_catalog()) try_named(entry);
    // A layout whose memory holds no named schedule counts as over memory, though a list of fewer
    // micro-batches at a time might yet fit.
    if (best_ && layout_.chunks <= kMostListedChunks) try_lists();
    return std::move(best_);
  }

 private:
  void try_named(const ScheduleEntry& entry) {
    const auto chunks = int(layout_.chunks), ranks = int(layout_.pipeline);
    if (entry.made_to_measure || chunks < entry.min_chunks || chunks > entry.max_chunks) return;
    if (entry.placement(ranks, chunks) != placement()) return;
    Layout named = layout_;
    named.schedule = entry.name;
    const bool tied = models::trains_shared_table(problem_.model, layout_);
    SlowPaths& paths = programs_.slow_paths(named, micro_batches_, tied);
    // One that fits is known, and this one is no faster.
    if (first_ && paths.take_longer_than(limit_s(), cost_, contention_.best(layout_.pipeline).of_one)) return;
    const auto peaks = programs_.peaks(named, micro_batches_);
    if (!peaks->fit(footprints_, limits_)) return;
    if (!first_) first_ = peaks;
    const auto program = programs_.program(named, micro_batches_, tied);
    if (!keep(programs_.schedule(named, micro_batches_), program, peaks->peak_bytes(footprints_)))
      paths.add(*program, timeline_);
  }

  std::vector<int> placement() const {
    return find_schedule(layout_.schedule, "layout").placement(int(layout_.pipeline), int(layout_.chunks));
  }

  // The policy that promises most is simulated; where its transfer buffers do not fit, once more with less
  // room for activations. A promise is never above the simulated time, which has the same order and transfers
  // that can only be later.
  void try_lists() {
    // Lists split every backward.
    const StepBounds bounds =
        lower_bounds_s(layout_, cost_, placement(), micro_batches_, contention_.best(layout_.pipeline));
    if (bounds.split_s > limit_s()) return;
    ListTask task = this->task();
    const double give_up_s = std::min(slowest_s_, best_->step_time_s) - step_end_s();
    for (int attempt = 0; attempt < 2; ++attempt) {
      std::optional<TimedSchedule> promising;
      for (const ListPolicy& policy : list_policies()) {
        auto made = list_schedule(task, policy, promising ? promising->end_s : give_up_s);
        if (made && (!promising || made->end_s < promising->end_s)) promising = std::move(made);
      }
      if (!promising) return;
      auto schedule = std::make_shared<const Schedule>(std::move(promising->schedule));
      std::vector<int64_t> peaks = peak_bytes(*schedule, footprints_);
      const int64_t over = excess_bytes(peaks, limits_);
      if (over <= 0) {
        keep(schedule,
             std::make_shared<const StepProgram>(
                 lower(layout_, *schedule,
                       structure_footprints(layout_, models::trains_shared_table(problem_.model, layout_)))),
             peaks);
        return;
      }
      for (int64_t& limit : task.limit_bytes) limit -= over;
    }
  }

  // Behind the last action come the norm and the optimizer at least.
  double step_end_s() const {
    return cost_.reduce_norm_s + max_of<double>(cost_.stages, 0.0, [](const StageCost& stage) {
             return stage.of(InstructionKind::optimizer_step);
           });
  }

  // With room for as many transfer buffers as the first named schedule has that fits.
  ListTask task() const {
    ListTask task{
        int(layout_.pipeline), int(layout_.chunks), int(micro_batches_), placement(), {}, footprints_, {}};
    task.limit_bytes = limits_;
    for (size_t s = 0; s < footprints_.size(); ++s) {
      const StageCost& c = cost_.stages[s];
      task.seconds.push_back({c.of(InstructionKind::forward), c.of(InstructionKind::input_gradient),
                              c.of(InstructionKind::weight_gradient),
                              c.of(InstructionKind::transfer_activation),
                              c.of(InstructionKind::transfer_gradient)});
      if (const int64_t slot_bytes = footprints_[s].slot_bytes(); slot_bytes > 0)
        task.limit_bytes[size_t(task.rank_of_stage[s])] -= first_->slots()[s].total() * slot_bytes;
    }
    return task;
  }

  double limit_s() const { return best_ ? std::min(slowest_s_, best_->step_time_s) : slowest_s_; }

  // Where it is the fastest so far; whether it is.
  bool keep(std::shared_ptr<const Schedule> schedule, std::shared_ptr<const StepProgram> program,
            const std::vector<int64_t>& peaks) {
    const int64_t peak = *std::max_element(peaks.begin(), peaks.end());
    // Infinite where it would be slower than what is known; it fits all the same.
    const double seconds =
        step_time_within(*program, cost_.durations(*program), contention_, limit_s(), timeline_);
    if (best_ && seconds >= best_->step_time_s) return false;
    best_ = MadeSchedule{std::move(schedule), std::move(program), peak, seconds};
    return true;
  }

  const SearchProblem& problem_;
  const Layout& layout_;
  const std::vector<StageFootprint>& footprints_;
  const StepCost& cost_;
  ProgramCache& programs_;
  const double slowest_s_;
  const int64_t micro_batches_;
  const Contention contention_;
  const std::vector<int64_t> limits_;             // by rank
  std::shared_ptr<const ActivationPeaks> first_;  // of the named schedules that fit
  std::optional<MadeSchedule> best_;
  Timeline timeline_;  // of the schedule that was simulated last
};

}  // namespace

std::optional<MadeSchedule> make_to_measure(const SearchProblem& problem, const Layout& layout,
                                            const std::vector<StageFootprint>& footprints,
                                            const StepCost& cost, ProgramCache& programs, double slowest_s) {
  return ScheduleMaker(problem, layout, footprints, cost, programs, slowest_s).run();
}

}  // namespace mpt::planner
