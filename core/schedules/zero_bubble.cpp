// SPDX-License-Identifier: Apache-2.0
#include "core/schedules/generated.h"

#include "base/error.h"

namespace mpt {

Schedule generate_zb_h1(int ranks, int chunks, int micro_batches) {
  Schedule schedule = generate_one_f_one_b(ranks, chunks, micro_batches);
  schedule.name = "zb-h1";
  for (auto& row : schedule.rows)
    for (Action& action : row)
      if (action.kind == ActionKind::backward) action.kind = ActionKind::input_gradient;
  fill_weight_gradients(schedule, std::vector<int>(size_t(ranks), ranks));
  return schedule;
}

Schedule generate_zb_h2(int ranks, int chunks, int micro_batches) {
  MPT_CHECK(chunks == 1, "zb-h2 has one stage per rank, not {}", chunks);
  Schedule schedule{"zb-h2", ranks, 1, micro_batches, round_robin_placement(ranks, 1), {}};
  schedule.rows.resize(size_t(ranks));
  for (int r = 0; r < ranks; ++r) {
    auto& row = schedule.rows[size_t(r)];
    const int warm_up = std::min(2 * (ranks - r) - 1, micro_batches);
    for (int m = 0; m < warm_up; ++m) row.push_back({ActionKind::forward, r, m});
    for (int m = 0; m < micro_batches; ++m) {
      row.push_back({ActionKind::input_gradient, r, m});
      if (m + warm_up < micro_batches) row.push_back({ActionKind::forward, r, m + warm_up});
    }
  }
  fill_weight_gradients(schedule, std::vector<int>(size_t(ranks), 2 * ranks - 1));
  return schedule;
}

}  // namespace mpt
