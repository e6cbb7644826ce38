// SPDX-License-Identifier: Apache-2.0
#include "core/schedules/generated.h"

#include "base/error.h"

namespace mpt {

Schedule generate_gpipe(int ranks, int chunks, int micro_batches) {
  MPT_CHECK(chunks == 1, "gpipe has one stage per rank, not {}", chunks);
  Schedule schedule{"gpipe", ranks, 1, micro_batches, round_robin_placement(ranks, 1), {}};
  schedule.rows.resize(size_t(ranks));
  for (int r = 0; r < ranks; ++r) {
    auto& row = schedule.rows[size_t(r)];
    for (int m = 0; m < micro_batches; ++m) row.push_back({ActionKind::forward, r, m});
    for (int m = 0; m < micro_batches; ++m) row.push_back({ActionKind::backward, r, m});
  }
  return schedule;
}

}  // namespace mpt
