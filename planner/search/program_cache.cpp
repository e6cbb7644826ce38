// SPDX-License-Identifier: Apache-2.0
#include "planner/search/program_cache.h"

#include "core/lower.h"
#include "core/schedule_catalog.h"
#include "planner/search/evaluate.h"

namespace mpt::planner {
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
          l.gathers_after_step(),
          tied,
          l.overlap_transfer};
}

// A schedule depends on the pipeline alone.
ProgramCache::Key ProgramCache::schedule_key(const Layout& layout, int64_t micro_batches) {
  return {&leanest_schedule(find_schedule(layout.schedule, "layout"), int(layout.chunks)),
          layout.pipeline,
          layout.chunks,
          micro_batches,
          has_equal_rounds(layout, micro_batches),
          false,
          false,
          false,
          false};
}

template <class T>
void ProgramCache::keep(Entries<T>& entries, const Key& key, std::shared_ptr<const T> value) {
  entries.bytes += bytes_of(*value);
  entries.oldest_first.push_back(key);
  entries.by_key[key] = std::move(value);
  while (entries.bytes > kMostBytes && entries.oldest_first.size() > 1) {
    const auto oldest = entries.by_key.find(entries.oldest_first.front());
    entries.bytes -= bytes_of(*oldest->second);
    entries.by_key.erase(oldest);
    entries.oldest_first.pop_front();
  }
}

std::shared_ptr<const Schedule> ProgramCache::schedule(const Layout& layout, int64_t micro_batches) {
  const Key key = schedule_key(layout, micro_batches);
  if (const auto found = schedules_.by_key.find(key); found != schedules_.by_key.end()) return found->second;
  auto made = std::make_shared<const Schedule>(named_schedule(layout, micro_batches));
  keep(schedules_, key, made);
  return made;
}

// Layouts that differ in their number of micro-batches share what they hold at most.
ProgramCache::Key ProgramCache::peaks_key(const Layout& layout, int64_t micro_batches) {
  Key key = schedule_key(layout, micro_batches);
  // The size of equal rounds depends on their number.
  if (!key.equal_rounds)
    key.micro_batches = micro_batches_that_hold_as_much(*key.schedule, key.pipeline, micro_batches);
  return key;
}

std::shared_ptr<const ActivationPeaks> ProgramCache::peaks(const Layout& layout, int64_t micro_batches) {
  const Key key = peaks_key(layout, micro_batches);
  if (const auto found = peaks_.by_key.find(key); found != peaks_.by_key.end()) return found->second;
  auto made = std::make_shared<const ActivationPeaks>(schedule(layout, key.micro_batches));
  keep(peaks_, key, made);
  return made;
}

std::shared_ptr<const ActivationPeaks> ProgramCache::known_peaks(const Layout& layout,
                                                                 int64_t micro_batches) const {
  const auto found = peaks_.by_key.find(peaks_key(layout, micro_batches));
  return found == peaks_.by_key.end() ? nullptr : found->second;
}

std::shared_ptr<const StepProgram> ProgramCache::program(const Layout& layout, int64_t micro_batches,
                                                         bool tied) {
  const Key key = key_of(layout, micro_batches, tied);
  if (const auto found = programs_.by_key.find(key); found != programs_.by_key.end()) return found->second;
  auto made = std::make_shared<const StepProgram>(
      lower(layout, *schedule(layout, micro_batches), structure_footprints(layout, tied)));
  keep(programs_, key, made);
  return made;
}

}  // namespace mpt::planner
