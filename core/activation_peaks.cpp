// SPDX-License-Identifier: Apache-2.0
#include "core/activation_peaks.h"

#include <algorithm>

#include "core/action_memory.h"

namespace mpt {
namespace {

// Footprints of one unit, from which memory_of() gives counts instead of bytes.
constexpr StageFootprint kSaved{.saved_bytes = 1};
constexpr StageFootprint kForWeight{.saved_for_weight_bytes = 1};

// Of activations and workspace. A rank's instructions are listed in the order of its row, so the row has the
// activations' peak.
int64_t peak_of_row(const std::vector<Action>& row, const std::vector<StageFootprint>& footprints) {
  int64_t held = 0, most = 0;
  for (const Action& action : row) {
    const ActionMemory memory = memory_of(action.kind, footprints[size_t(action.stage)]);
    most = std::max(most, held + memory.transient_bytes());
    held += memory.acquire_bytes - memory.release_bytes;
  }
  return most;
}

constexpr int kMostChunks = 4;  // with more, moments cost more than the row

}  // namespace

std::vector<int64_t> peak_bytes_without_slots(const Schedule& schedule,
                                              const std::vector<StageFootprint>& footprints) {
  std::vector<int64_t> peaks;
  for (const auto& row : schedule.rows) peaks.push_back(peak_of_row(row, footprints));
  for (size_t s = 0; s < footprints.size(); ++s)
    peaks[size_t(schedule.rank_of_stage[s])] += footprints[s].static_bytes();
  return peaks;
}

ActivationPeaks::ActivationPeaks(std::shared_ptr<const Schedule> schedule)
    : schedule_(std::move(schedule)), stages_(schedule_->rows.size()), moments_(schedule_->rows.size()) {
  for (size_t s = 0; s < schedule_->rank_of_stage.size(); ++s)
    stages_[size_t(schedule_->rank_of_stage[s])].push_back(int(s));
  if (schedule_->chunks > kMostChunks) return;
  for (size_t r = 0; r < stages_.size(); ++r) find_moments(r);
}

void ActivationPeaks::find_moments(size_t rank) {
  const std::vector<int>& stages = stages_[rank];
  std::vector<Moment>& moments = moments_[rank];
  std::vector<int32_t> saved(stages.size(), 0), for_weight = saved;
  const auto note = [&](const Action& a, size_t at) {
    const Moment moment{a.kind, int32_t(at), saved, for_weight};
    // The latest ones are the likeliest to hold as much.
    if (std::any_of(moments.rbegin(), moments.rend(), [&](const Moment& m) { return m.covers(moment); }))
      return;
    std::erase_if(moments, [&](const Moment& m) { return moment.covers(m); });
    moments.push_back(moment);
  };
  for (const Action& a : schedule_->rows[rank]) {
    const auto at = size_t(std::find(stages.begin(), stages.end(), a.stage) - stages.begin());
    const ActionMemory s = memory_of(a.kind, kSaved), w = memory_of(a.kind, kForWeight);
    // An input gradient holds what it found or what it leaves, whichever is more.
    if (a.kind == ActionKind::input_gradient) note(a, at);
    if (a.kind == ActionKind::input_gradient) saved[at] -= int32_t(s.release_bytes);
    saved[at] += int32_t(s.acquire_bytes);
    for_weight[at] += int32_t(w.acquire_bytes);
    note(a, at);
    if (a.kind != ActionKind::input_gradient) saved[at] -= int32_t(s.release_bytes);
    for_weight[at] -= int32_t(w.release_bytes);
  }
}

// No less of anything is held, and its workspace is the same.
bool ActivationPeaks::Moment::covers(const Moment& other) const {
  if (at != other.at || kind != other.kind) return false;
  return std::equal(saved.begin(), saved.end(), other.saved.begin(), std::greater_equal<>()) &&
         std::equal(for_weight.begin(), for_weight.end(), other.for_weight.begin(), std::greater_equal<>());
}

int64_t ActivationPeaks::peak_of_moments(size_t rank, const std::vector<StageFootprint>& footprints) const {
  const std::vector<int>& stages = stages_[rank];
  int64_t most = 0;
  for (const Moment& m : moments_[rank]) {
    // What the action acquires is counted as held, so only its workspace comes on top.
    int64_t held = memory_of(m.kind, footprints[size_t(stages[size_t(m.at)])]).workspace_bytes;
    for (size_t i = 0; i < stages.size(); ++i) {
      const StageFootprint& f = footprints[size_t(stages[i])];
      held += m.saved[i] * f.saved_bytes + m.for_weight[i] * f.saved_for_weight_bytes;
    }
    most = std::max(most, held);
  }
  return most;
}

int64_t ActivationPeaks::rank_peak_bytes(size_t rank, const std::vector<StageFootprint>& footprints) const {
  int64_t statics = 0;
  for (const int s : stages_[rank]) statics += footprints[size_t(s)].static_bytes();
  return statics + (moments_[rank].empty() ? peak_of_row(schedule_->rows[rank], footprints)
                                           : peak_of_moments(rank, footprints));
}

std::vector<int64_t> ActivationPeaks::peak_bytes(const std::vector<StageFootprint>& footprints) const {
  std::vector<int64_t> peaks;
  for (size_t r = 0; r < moments_.size(); ++r) peaks.push_back(rank_peak_bytes(r, footprints));
  return peaks;
}

size_t ActivationPeaks::bytes() const {
  size_t bytes = 0;
  for (size_t r = 0; r < moments_.size(); ++r)
    bytes += moments_[r].size() * (sizeof(Moment) + 2 * sizeof(int32_t) * stages_[r].size());
  return bytes;
}

}  // namespace mpt
