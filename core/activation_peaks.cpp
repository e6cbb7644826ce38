// SPDX-License-Identifier: Apache-2.0
#include "core/activation_peaks.h"

#include "core/action_memory.h"
#include "core/lower.h"

namespace mpt {
namespace {

// Footprints of one unit. With them memory_of() gives counts instead of bytes.
constexpr StageFootprint kSaved{.saved_bytes = 1};
constexpr StageFootprint kForWeight{.saved_for_weight_bytes = 1};

// Peak of activations and workspace; a value above `enough` if the peak is above it. A rank's instructions
// are listed in the order of its row, so the row has the activations' peak.
// `late`: some stage has late gradients.
int64_t peak_of_row(const std::vector<Action>& row, const FootprintsByStage& footprints, bool late,
                    int64_t enough = std::numeric_limits<int64_t>::max()) {
  int64_t held = 0, most = 0;
  FirstGradients gradients;
  for (const Action& action : row) {
    const ActionMemory memory = memory_of(action.kind, footprints[size_t(action.stage)],
                                          late && gradients.are_made(action.kind, action.stage));
    most = std::max(most, held + memory.transient_bytes());
    if (most > enough) break;
    held += memory.acquire_bytes - memory.release_bytes;
  }
  return most;
}

constexpr size_t kCodes = 8;    // kinds of actions, each with and without first gradients
constexpr int kMostChunks = 4;  // with more chunks, moments cost more than the row

// For each stage of a rank: micro-batches that are saved, or kept for their weight gradient; 1 with
// gradients.
struct Held {
  explicit Held(size_t stages) : saved(stages, 0), for_weight(stages, 0), gradients(stages, 0) {}
  std::vector<int32_t> saved, for_weight, gradients;

  // Calls `note` at each moment of the action that may be a peak: as its memory is acquired. An input
  // gradient holds the larger of the memory before and after it, so `note` is called before, too.
  template <class F>
  void run(const Action& a, size_t at, F&& note) {
    const ActionMemory s = memory_of(a.kind, kSaved, false), w = memory_of(a.kind, kForWeight, false);
    if (a.kind == ActionKind::input_gradient) note();
    if (a.kind == ActionKind::input_gradient) saved[at] -= int32_t(s.release_bytes);
    saved[at] += int32_t(s.acquire_bytes);
    for_weight[at] += int32_t(w.acquire_bytes);
    note();
    if (a.kind != ActionKind::input_gradient) saved[at] -= int32_t(s.release_bytes);
    for_weight[at] -= int32_t(w.release_bytes);
  }
};

bool no_less(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), std::greater_equal<>());
}

size_t index_of(const std::vector<int>& stages, int stage) {
  return size_t(std::lower_bound(stages.begin(), stages.end(), stage) - stages.begin());
}

}  // namespace

std::vector<int64_t> peak_bytes(const Schedule& schedule, const std::vector<StageFootprint>& footprints) {
  const std::vector<StageSlots> slots = transfer_slots(schedule);
  auto peaks =
      mapped<int64_t>(schedule.rows, [&](const auto& row) { return peak_of_row(row, footprints, true); });
  for (size_t s = 0; s < footprints.size(); ++s)
    peaks[size_t(schedule.rank_of_stage[s])] +=
        footprints[s].static_bytes() + slots[s].total() * footprints[s].slot_bytes();
  return peaks;
}

ActivationPeaks::ActivationPeaks(std::shared_ptr<const Schedule> schedule)
    : schedule_(std::move(schedule)), stages_(schedule_->rows.size()), moments_(schedule_->rows.size()) {
  for (size_t s = 0; s < schedule_->rank_of_stage.size(); ++s)
    stages_[size_t(schedule_->rank_of_stage[s])].push_back(int(s));
  for (size_t r = 0; r < stages_.size() && schedule_->chunks <= kMostChunks; ++r)
    for (const Moment& moment : find_moments(r)) add(r, moment);
}

std::vector<ActivationPeaks::Moment> ActivationPeaks::find_moments(size_t rank) const {
  const std::vector<int>& stages = stages_[rank];
  std::vector<Moment> moments;
  Held held(stages.size());
  FirstGradients gradients;
  for (const Action& a : schedule_->rows[rank]) {
    const size_t at = index_of(stages, a.stage);
    const bool first = gradients.are_made(a.kind, a.stage);
    const int32_t code = int32_t(at * kCodes + size_t(a.kind) * 2 + (first ? 1 : 0));
    held.run(a, at, [&] {
      const auto alike = [&](const Moment& m) { return m.code == code; };
      const auto covers = [&](const Moment& m) {
        return alike(m) && no_less(m.saved, held.saved) && no_less(m.for_weight, held.for_weight) &&
               no_less(m.gradients, held.gradients);
      };
      // The latest moments are the most likely to hold as much.
      if (std::any_of(moments.rbegin(), moments.rend(), covers)) return;
      std::erase_if(moments, [&](const Moment& m) {
        return alike(m) && no_less(held.saved, m.saved) && no_less(held.for_weight, m.for_weight) &&
               no_less(held.gradients, m.gradients);
      });
      moments.push_back({code, held.saved, held.for_weight, held.gradients});
    });
    if (first) held.gradients[at] = 1;
  }
  return moments;
}

void ActivationPeaks::add(size_t rank, const Moment& m) {
  std::vector<int32_t>& all = moments_[rank];
  all.push_back(m.code);
  for (const auto* counts : {&m.saved, &m.for_weight, &m.gradients})
    all.insert(all.end(), counts->begin(), counts->end());
}

int64_t ActivationPeaks::peak_of_moments(size_t rank, const FootprintsByStage& footprints,
                                         int64_t enough) const {
  const std::vector<int>& stages = stages_[rank];
  const size_t n = stages.size(), size = 1 + 3 * n;
  const bool late = has_late_gradients(rank, footprints);
  int64_t most = 0;
  for (size_t m = 0; m < moments_[rank].size(); m += size) {
    const int32_t* moment = &moments_[rank][m];
    const size_t code = size_t(moment[0]) % kCodes;
    const bool first = code % 2 == 1;
    // The activations that the action acquires are counted in the moment; first gradients are not.
    const ActionMemory own =
        memory_of(ActionKind(code / 2), footprints[size_t(stages[size_t(moment[0]) / kCodes])], first);
    int64_t held = first ? own.transient_bytes() : own.workspace_bytes;
    for (size_t i = 0; i < n; ++i) {
      const StageFootprint& f = footprints[size_t(stages[i])];
      held += moment[1 + i] * f.saved_bytes + moment[1 + n + i] * f.saved_for_weight_bytes;
      if (late) held += moment[1 + 2 * n + i] * f.late_gradient_bytes;
    }
    most = std::max(most, held);
    if (most > enough) break;
  }
  return most;
}

bool ActivationPeaks::has_late_gradients(size_t rank, const FootprintsByStage& footprints) const {
  return any_of(stages_[rank], [&](int s) { return footprints[size_t(s)].late_gradient_bytes > 0; });
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
  const int64_t statics = static_bytes(rank, footprints);
  const int64_t left = enough - statics;
  return statics + (moments_[rank].empty() ? peak_of_row(schedule_->rows[rank], footprints,
                                                         has_late_gradients(rank, footprints), left)
                                           : peak_of_moments(rank, footprints, left));
}

int64_t ActivationPeaks::rank_peak_bytes(size_t rank, const FootprintsByStage& footprints) const {
  return peak_within(rank, footprints, std::numeric_limits<int64_t>::max());
}

bool ActivationPeaks::rank_fits(size_t rank, const FootprintsByStage& footprints, int64_t limit_bytes) const {
  return peak_within(rank, footprints, limit_bytes) <= limit_bytes;
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
  return sum_of<size_t>(moments_, [](const auto& moments) { return moments.size() * sizeof(int32_t); });
}

}  // namespace mpt
