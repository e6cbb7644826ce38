// SPDX-License-Identifier: Apache-2.0
#include "core/activation_peaks.h"

#include "core/lower.h"

namespace mpt {
namespace {

// Footprints of one unit. With them memory_of() gives counts instead of bytes.
constexpr StageFootprint kSaved{.saved_bytes = 1};
constexpr StageFootprint kForWeight{.saved_for_weight_bytes = 1};

constexpr size_t kCodes = 8;  // kinds of actions, each without and with first gradients

// The stages of each rank, lowest first.
std::vector<std::vector<int>> stages_of_ranks(const Schedule& schedule) {
  std::vector<std::vector<int>> stages(schedule.rows.size());
  for (size_t s = 0; s < schedule.rank_of_stage.size(); ++s)
    stages[size_t(schedule.rank_of_stage[s])].push_back(int(s));
  return stages;
}

// Of each action of a rank: its stage among the rank's, its kind, and whether it makes first gradients.
std::vector<uint16_t> codes_of(const std::vector<Action>& row, const std::vector<int>& stages) {
  FirstGradients gradients;
  return mapped<uint16_t>(row, [&](const Action& a) {
    const size_t first = gradients.are_made(a.kind, a.stage) ? 1 : 0;
    const auto index = std::lower_bound(stages.begin(), stages.end(), a.stage) - stages.begin();
    return uint16_t(size_t(index) * kCodes + size_t(a.kind) * 2 + first);
  });
}

// By code of an action: bytes that it needs in addition to those held, while it runs or afterwards, and by
// which it changes these. Gradients that come late may need more than the backward that makes them.
struct Change {
  int64_t transient, kept;
};
std::vector<Change> changes_of(const std::vector<int>& stages, const FootprintsByStage& footprints) {
  std::vector<Change> changes;
  changes.reserve(stages.size() * kCodes);
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageFootprint& f = footprints[size_t(stages[i])];
    if (i > 0 && &f == &footprints[size_t(stages[i - 1])]) {
      for (size_t code = 0; code < kCodes; ++code) changes.push_back(changes[changes.size() - kCodes]);
      continue;
    }
    for (size_t code = 0; code < kCodes; ++code) {
      const ActionMemory m = memory_of(ActionKind(code / 2), f, code % 2 == 1);
      const int64_t kept = m.acquire_bytes - m.release_bytes;
      changes.push_back({std::max(m.transient_bytes(), kept), kept});
    }
  }
  return changes;
}

// The largest workspace of an action of these stages.
int64_t most_workspace(const std::vector<int>& stages, const FootprintsByStage& footprints) {
  int64_t most = 0;
  for (const int s : stages) {
    const StageFootprint& f = footprints[size_t(s)];
    most = std::max({most, f.forward_workspace_bytes, f.backward_workspace_bytes,
                     f.input_gradient_workspace_bytes, f.weight_gradient_workspace_bytes,
                     f.first_backward_workspace_bytes - f.late_gradient_bytes});
  }
  return most;
}

// Peak of activations and workspace; a value above `enough` if the peak is above it. A rank's instructions
// are listed in the order of its row, so the row has the activations' peak.
int64_t peak_of_row(const std::vector<uint16_t>& row, const std::vector<Change>& changes,
                    int64_t enough = std::numeric_limits<int64_t>::max()) {
  int64_t held = 0, most = 0;
  for (const uint16_t code : row) {
    most = std::max(most, held + changes[code].transient);
    if (most > enough) break;
    held += changes[code].kept;
  }
  return most;
}

}  // namespace

std::vector<int64_t> peak_bytes(const Schedule& schedule, const std::vector<StageFootprint>& footprints) {
  const std::vector<StageSlots> slots = transfer_slots(schedule);
  const std::vector<std::vector<int>> stages = stages_of_ranks(schedule);
  std::vector<int64_t> peaks;
  for (size_t r = 0; r < stages.size(); ++r)
    peaks.push_back(peak_of_row(codes_of(schedule.rows[r], stages[r]), changes_of(stages[r], footprints)));
  for (size_t s = 0; s < footprints.size(); ++s)
    peaks[size_t(schedule.rank_of_stage[s])] +=
        footprints[s].static_bytes() + slots[s].total() * footprints[s].slot_bytes();
  return peaks;
}

ActivationPeaks::ActivationPeaks(std::shared_ptr<const Schedule> schedule)
    : schedule_(std::move(schedule)), stages_(stages_of_ranks(*schedule_)) {
  for (size_t r = 0; r < stages_.size(); ++r) ranks_.push_back(rank_of(schedule_->rows[r], stages_[r]));
}

ActivationPeaks::Rank ActivationPeaks::rank_of(const std::vector<Action>& row,
                                               const std::vector<int>& stages) const {
  Rank rank(stages.size());
  rank.row = codes_of(row, stages);
  Counts held(stages.size());
  int64_t sum = 0, most = -1;
  for (const uint16_t code : rank.row) {
    const size_t at = code / kCodes;
    const auto kind = ActionKind(code % kCodes / 2);
    const ActionMemory s = memory_of(kind, kSaved, false), w = memory_of(kind, kForWeight, false);
    if (code % 2 == 1) held.gradients[at] = 1;
    // An action that runs has the memory that it acquires, and still the memory that it releases.
    held.saved[at] += int32_t(s.acquire_bytes);
    held.for_weight[at] += int32_t(w.acquire_bytes);
    rank.most.saved[at] = std::max(rank.most.saved[at], held.saved[at]);
    rank.most.for_weight[at] = std::max(rank.most.for_weight[at], held.for_weight[at]);
    rank.most.gradients[at] = held.gradients[at];
    sum += s.acquire_bytes + w.acquire_bytes;
    if (kind != ActionKind::input_gradient && sum >= most) {
      most = sum;
      rank.code = code;
      rank.fullest = held;
    }
    held.saved[at] -= int32_t(s.release_bytes);
    held.for_weight[at] -= int32_t(w.release_bytes);
    sum -= s.release_bytes + w.release_bytes;
  }
  return rank;
}

int64_t ActivationPeaks::bytes_of(const Counts& counts, const std::vector<int>& stages,
                                  const FootprintsByStage& footprints) {
  int64_t bytes = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageFootprint& f = footprints[size_t(stages[i])];
    bytes += counts.saved[i] * f.saved_bytes + counts.for_weight[i] * f.saved_for_weight_bytes +
             counts.gradients[i] * f.late_gradient_bytes;
  }
  return bytes;
}

const std::vector<StageSlots>& ActivationPeaks::slots() const {
  if (slots_.empty()) slots_ = transfer_slots(*schedule_);
  return slots_;
}

int64_t ActivationPeaks::static_bytes(size_t rank, const FootprintsByStage& footprints) const {
  int64_t bytes = 0;
  for (const int s : stages_[rank]) {
    const StageFootprint& f = footprints[size_t(s)];
    bytes += f.static_bytes();
    if (f.slot_bytes() > 0) bytes += slots()[size_t(s)].total() * f.slot_bytes();
  }
  return bytes;
}

int64_t ActivationPeaks::peak_within(size_t rank, const FootprintsByStage& footprints, int64_t enough) const {
  const std::vector<int>& stages = stages_[rank];
  const int64_t statics = static_bytes(rank, footprints);
  return statics + peak_of_row(ranks_[rank].row, changes_of(stages, footprints), enough - statics);
}

int64_t ActivationPeaks::rank_peak_bytes(size_t rank, const FootprintsByStage& footprints) const {
  return peak_within(rank, footprints, std::numeric_limits<int64_t>::max());
}

bool ActivationPeaks::rank_fits(size_t rank, const FootprintsByStage& footprints, int64_t limit_bytes) const {
  const std::vector<int>& stages = stages_[rank];
  const Rank& r = ranks_[rank];
  const int64_t left = limit_bytes - static_bytes(rank, footprints);
  // The counts of a moment include what its action acquires.
  const StageFootprint& own = footprints[size_t(stages[r.code / kCodes])];
  const int64_t beside = memory_of(ActionKind(r.code % kCodes / 2), own, r.code % 2 == 1).workspace_bytes;
  if (bytes_of(r.fullest, stages, footprints) + beside > left) return false;
  return bytes_of(r.most, stages, footprints) + most_workspace(stages, footprints) <= left ||
         peak_of_row(r.row, changes_of(stages, footprints), left) <= left;
}

std::vector<int64_t> ActivationPeaks::peak_bytes(const FootprintsByStage& footprints) const {
  std::vector<int64_t> peaks;
  for (size_t r = 0; r < stages_.size(); ++r) peaks.push_back(rank_peak_bytes(r, footprints));
  return peaks;
}

bool ActivationPeaks::fit(const FootprintsByStage& footprints, std::span<const int64_t> limits_bytes) const {
  for (size_t r = 0; r < stages_.size(); ++r)
    if (!rank_fits(r, footprints, limits_bytes[r])) return false;
  return true;
}

size_t ActivationPeaks::bytes() const {
  return sum_of<size_t>(ranks_, [](const Rank& r) { return r.row.size() * sizeof(uint16_t); });
}

}  // namespace mpt
