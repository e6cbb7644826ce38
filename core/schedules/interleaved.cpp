// SPDX-License-Identifier: Apache-2.0
#include "core/schedules/generated.h"

#include "base/error.h"

namespace mpt {
namespace {

Schedule interleave(const char* name, bool splits_backward, int ranks, int chunks, int micro_batches,
                    int group) {
  MPT_CHECK(chunks >= 2, "{} needs two stages per rank, not {}", name, chunks);
  Schedule schedule{name, ranks, chunks, micro_batches, round_robin_placement(ranks, chunks), {}};
  schedule.rows.resize(size_t(ranks));
  const int per_group = group * chunks;
  const int total = (micro_batches + group - 1) / group * per_group;
  for (int r = 0; r < ranks; ++r) {
    auto& row = schedule.rows[size_t(r)];
    // The i-th forward: groups of micro-batches, through each chunk in turn. Backward: last chunk first.
    const auto append = [&](ActionKind kind, int i) {
      const int chunk = i % per_group / group;
      const int micro_batch = i / per_group * group + i % group;
      // Without all actions of one micro-batch, the others stay valid. The last group may therefore be
      // smaller than the rest.
      if (i < 0 || i >= total || micro_batch >= micro_batches) return;
      const int from = kind == ActionKind::forward ? chunk : chunks - 1 - chunk;
      row.push_back({kind, from * ranks + r, micro_batch});
    };
    const int warm_up = std::min((ranks - 1 - r) * (splits_backward ? 1 : 2) + (chunks - 1) * group, total);
    const ActionKind backward = splits_backward ? ActionKind::input_gradient : ActionKind::backward;
    for (int i = 0; i < total + warm_up + r; ++i) {
      append(ActionKind::forward, i);
      append(backward, i - warm_up);
      if (splits_backward) append(ActionKind::weight_gradient, i - warm_up - r);
    }
  }
  return schedule;
}

}  // namespace

Schedule generate_interleaved(int ranks, int chunks, int micro_batches, int group) {
  return interleave("interleaved", false, ranks, chunks, micro_batches, group);
}

Schedule generate_zb_interleaved(int ranks, int chunks, int micro_batches, int group) {
  return interleave("zb-interleaved", true, ranks, chunks, micro_batches, group);
}

}  // namespace mpt
