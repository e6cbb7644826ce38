// SPDX-License-Identifier: Apache-2.0
#include "core/schedules/interleaved.h"

#include <algorithm>

#include "base/error.h"

namespace mpt {

Schedule generate_interleaved(int ranks, int chunks, int micro_batches) {
  MPT_CHECK(chunks >= 2, "interleaved needs two stages per rank, not {}", chunks);
  Schedule schedule{"interleaved", ranks, chunks, micro_batches, round_robin_placement(ranks, chunks), {}};
  schedule.rows.resize(size_t(ranks));
  const int groups = (micro_batches + ranks - 1) / ranks;
  const int per_group = ranks * chunks;
  const int total = groups * per_group;
  for (int r = 0; r < ranks; ++r) {
    auto& row = schedule.rows[size_t(r)];
    // The i-th forward: groups of `ranks` micro-batches, through each chunk in turn; backward, last chunk
    // first.
    const auto append = [&](ActionKind kind, int i) {
      const int chunk = i % per_group / ranks;
      const int micro_batch = i / per_group * ranks + i % ranks;
      // Leaving out every action of a micro-batch cannot break the others, so a ragged last group stays
      // valid.
      if (micro_batch >= micro_batches) return;
      const int from = kind == ActionKind::forward ? chunk : chunks - 1 - chunk;
      row.push_back({kind, from * ranks + r, micro_batch});
    };
    const int warm_up = std::min((ranks - 1 - r) * 2 + (chunks - 1) * ranks, total);
    for (int i = 0; i < warm_up; ++i) append(ActionKind::forward, i);
    for (int i = 0; i + warm_up < total; ++i) {
      append(ActionKind::forward, i + warm_up);
      append(ActionKind::backward, i);
    }
    for (int i = total - warm_up; i < total; ++i) append(ActionKind::backward, i);
  }
  return schedule;
}

}  // namespace mpt
