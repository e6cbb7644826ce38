// SPDX-License-Identifier: Apache-2.0
#include "core/schedules/generated.h"

#include "base/error.h"

namespace mpt {

Schedule generate_one_f_one_b(int ranks, int chunks, int micro_batches) {
  MPT_CHECK(chunks == 1, "1f1b has one stage per rank, not {}", chunks);
  Schedule schedule{"1f1b", ranks, 1, micro_batches, round_robin_placement(ranks, 1), {}};
  schedule.rows.resize(size_t(ranks));
  for (int r = 0; r < ranks; ++r) {
    auto& row = schedule.rows[size_t(r)];
    const int warm_up = std::min(ranks - 1 - r, micro_batches);
    for (int m = 0; m < warm_up; ++m) row.push_back({ActionKind::forward, r, m});
    for (int m = 0; m + warm_up < micro_batches; ++m) {
      row.push_back({ActionKind::forward, r, m + warm_up});
      row.push_back({ActionKind::backward, r, m});
    }
    for (int m = micro_batches - warm_up; m < micro_batches; ++m) row.push_back({ActionKind::backward, r, m});
  }
  return schedule;
}

}  // namespace mpt
