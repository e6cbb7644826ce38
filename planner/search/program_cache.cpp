// SPDX-License-Identifier: Apache-2.0
#include "planner/search/program_cache.h"

#include "core/lower.h"
#include "frameworks/framework.h"
#include "frameworks/supports/supports.h"
#include "planner/simulate/rounds.h"

namespace mpt::planner {

namespace {

// Whether the framework makes rounds of another size than the number of pipeline ranks.
bool has_equal_rounds(const Layout& layout, int64_t micro_batches) {
  if (micro_batches % layout.pipeline == 0) return false;
  const auto* const framework = frameworks::find_framework(layout.execution->framework);
  return framework != nullptr && frameworks::deals_equal_rounds(*framework, layout.schedule);
}

}  // namespace

Schedule named_schedule(const Layout& layout, int64_t micro_batches) {
  const ScheduleEntry& entry = leanest_schedule(find_schedule(layout.schedule, "layout"), int(layout.chunks));
  return make_schedule(entry, int(layout.pipeline), int(layout.chunks), int(micro_batches),
                       has_equal_rounds(layout, micro_batches));
}
namespace {

// What the cache may hold of each, about 100 MB.
constexpr size_t kMostBytes = 100'000'000;

size_t bytes_of(const Schedule& s) {
  return size_t(s.stages()) * size_t(s.micro_batches) * 2 * sizeof(Action);
}
size_t bytes_of(const ActivationPeaks& p) { return p.bytes(); }
size_t bytes_of(const StepProgram& p) {
  return p.instructions.size() * sizeof(Instruction) + p.lane_table.size() * sizeof(Lane) +
         p.wait_table.size() * sizeof(InstructionId);
}

}  // namespace

std::vector<StageFootprint> structure_footprints(const Layout& layout, bool tied) {
  std::vector<StageFootprint> no_bytes(size_t(layout.stages()));
  if (tied) no_bytes.front().tied_embedding_bytes = no_bytes.back().tied_embedding_bytes = 1;
  return no_bytes;
}

ProgramCache::Key ProgramCache::key_of(const Layout& l, int64_t micro_batches, bool tied) {
  return {&leanest_schedule(find_schedule(l.schedule, "layout"), int(l.chunks)),
          l.pipeline,
          l.chunks,
          micro_batches,
          has_equal_rounds(l, micro_batches),
          l.reduces_gradients(),
          l.changes_shares_of_whole_weights(),
          tied,
          l.overlap_transfer};
}

// A schedule depends on the pipeline alone.
ProgramCache::Key ProgramCache::schedule_key(const Layout& layout, int64_t micro_batches) {
  Key key = key_of(layout, micro_batches, false);
  key.reduces = key.gathers = key.overlap_transfer = false;
  return key;
}

template <class T, class Make>
std::shared_ptr<const T> ProgramCache::kept(Entries<T>& entries, const Key& key, Make&& make) {
  if (const auto found = entries.by_key.find(key); found != entries.by_key.end()) return found->second;
  auto value = std::make_shared<const T>(make());
  entries.bytes += bytes_of(*value);
  entries.oldest_first.push_back(key);
  entries.by_key[key] = value;
  while (entries.bytes > kMostBytes && entries.oldest_first.size() > 1) {
    const auto oldest = entries.by_key.find(entries.oldest_first.front());
    entries.bytes -= bytes_of(*oldest->second);
    entries.by_key.erase(oldest);
    entries.oldest_first.pop_front();
  }
  return value;
}

std::shared_ptr<const Schedule> ProgramCache::schedule(const Layout& layout, int64_t micro_batches) {
  return kept(schedules_, schedule_key(layout, micro_batches),
              [&] { return named_schedule(layout, micro_batches); });
}

// Layouts that differ in their number of micro-batches share what they hold at most.
ProgramCache::Key ProgramCache::peaks_key(const Layout& layout, int64_t micro_batches) {
  Key key = schedule_key(layout, micro_batches);
  // The size of equal rounds depends on their number.
  if (!key.equal_rounds)
    key.micro_batches = equivalent_micro_batches(*key.schedule, key.pipeline, micro_batches);
  return key;
}

std::shared_ptr<const ActivationPeaks> ProgramCache::peaks(const Layout& layout, int64_t micro_batches) {
  const Key key = peaks_key(layout, micro_batches);
  return kept(peaks_, key, [&] { return ActivationPeaks(schedule(layout, key.micro_batches)); });
}

std::shared_ptr<const ActivationPeaks> ProgramCache::known_peaks(const Layout& layout,
                                                                 int64_t micro_batches) const {
  return copy_of(peaks_.by_key, peaks_key(layout, micro_batches)).value_or(nullptr);
}

std::shared_ptr<const StepProgram> ProgramCache::program(const Layout& layout, int64_t micro_batches,
                                                         bool tied) {
  return kept(programs_, key_of(layout, micro_batches, tied), [&] {
    return lower(layout, *schedule(layout, micro_batches), structure_footprints(layout, tied));
  });
}

void ProgramCache::simulate(const StepTask& task, SimulatedStep& step) {
  constexpr double kDigits = 1e-12;  // sums in another order
  const int64_t all = task.micro_batches, round = task.layout.pipeline;
  const auto take = [&](int64_t count) {
    step.program = program(task.layout, count, task.tied);
    step.more_micro_batches = all - count;
    task.cost.durations(*step.program, step.durations_s);
  };
  const bool repeats = key_of(task.layout, all, task.tied).schedule->repeats &&
                       !has_equal_rounds(task.layout, all) && task.contention.rate_by_active_ranks.empty();
  for (int64_t few = kFewestRounds * round; repeats && 2 * few <= all; few *= 2) {
    take(few + all % round);
    step.timeline = planner::simulate(*step.program, step.durations_s);
    const auto range = with_more_rounds(*step.program, step.timeline, step.more_micro_batches / round);
    step.step_time_s = range.most_s;
    if (range.most_s - range.least_s <= kDigits * range.most_s) return;
    step.step_time_s = std::numeric_limits<double>::infinity();
    if (range.least_s > task.limit_s * (1.0 + kDigits)) return;
  }
  take(all);
  step.step_time_s =
      step_time_within(*step.program, step.durations_s, task.contention, task.limit_s, step.timeline);
}

}  // namespace mpt::planner
