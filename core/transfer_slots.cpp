// SPDX-License-Identifier: Apache-2.0
#include "core/lower.h"

#include <algorithm>
#include <cstdint>

namespace mpt {
namespace {

// A micro-batch that a stage sends, and the time. `used_up`: when the neighbour is done with each
// micro-batch.
struct Sent {
  int micro_batch;
  int64_t at;
};

int receive_slots(const std::vector<Sent>& sent, const std::vector<int64_t>& used_up) {
  int needed = 1;
  size_t consumed = 0;  // of those sent, nominally used up before the next arrives
  for (size_t k = 0; k < sent.size(); ++k) {
    while (consumed < k && used_up[size_t(sent[consumed].micro_batch)] <= sent[k].at) ++consumed;
    needed = std::max(needed, int(k - consumed) + 1);
  }
  return std::min(needed + 1, int(sent.size()));
}

}  // namespace

std::vector<StageSlots> transfer_slots(const Schedule& schedule, const NominalPlacement& placement) {
  const auto stages = size_t(schedule.stages());
  std::vector<std::vector<Sent>> forward(stages), home(stages);
  std::vector<std::vector<int64_t>> forward_end(stages, std::vector<int64_t>(size_t(schedule.micro_batches)));
  std::vector<std::vector<int64_t>> home_end = forward_end;
  for (size_t r = 0; r < schedule.rows.size(); ++r)
    for (size_t i = 0; i < schedule.rows[r].size(); ++i) {
      const Action& action = schedule.rows[r][i];
      if (action.kind == ActionKind::weight_gradient) continue;
      const int64_t end = placement.start[r][i] + nominal_duration(action.kind);
      const bool onward = action.kind == ActionKind::forward;
      (onward ? forward : home)[size_t(action.stage)].push_back({action.micro_batch, end});
      (onward ? forward_end : home_end)[size_t(action.stage)][size_t(action.micro_batch)] = end;
    }
  std::vector<StageSlots> slots(stages);
  for (size_t s = 0; s + 1 < stages; ++s) {
    if (schedule.rank_of_stage[s] == schedule.rank_of_stage[s + 1]) continue;
    slots[s].send_activation = slots[s + 1].send_gradient = std::min(2, schedule.micro_batches);
    slots[s + 1].receive_activation = receive_slots(forward[s], forward_end[s + 1]);
    slots[s].receive_gradient = receive_slots(home[s + 1], home_end[s]);
  }
  return slots;
}

std::vector<StageSlots> transfer_slots(const Schedule& schedule) {
  return transfer_slots(schedule, place_nominally(schedule));
}

}  // namespace mpt
