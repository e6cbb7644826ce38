// SPDX-License-Identifier: Apache-2.0
#include "core/schedules/generated.h"

#include <array>
#include <deque>

#include "base/error.h"

namespace mpt {
namespace {

// Period in time units: two chunks of one micro-batch, with F, I and W of one unit each.
constexpr int kPeriod = 6;

// Time units from one rank to the next for a micro-batch: forward of the first chunk (down the ranks), of the
// second (up), input gradient of the second (down), of the first (up). The memory of a rank grows with the
// sum of the first and the last, and with that of the two in the middle.
struct Steps {
  int forward_down, forward_up, gradient_down, gradient_up;
};

// Start of one micro-batch's four passes, by rank: F lower, F upper, I upper, I lower stage.
using Block = std::vector<std::array<int, 4>>;

Block block_of(int ranks, const Steps& steps, const std::array<int, 3>& pauses) {
  Block block;
  const int last = ranks - 1;
  const int forward_end = steps.forward_down * last + 1 + pauses[0];
  const int top = forward_end + steps.forward_up * last + 1 + pauses[1];
  const int gradient_end = top + steps.gradient_down * last + 1 + pauses[2];
  for (int r = 0; r < ranks; ++r)
    block.push_back({steps.forward_down * r, forward_end + steps.forward_up * (last - r),
                     top + steps.gradient_down * r, gradient_end + steps.gradient_up * (last - r)});
  return block;
}

// Whether two passes fall on the same unit of a rank when the block repeats every kPeriod units.
bool meets_itself(const Block& block) {
  return any_of(block, [](const std::array<int, 4>& start) {
    for (size_t a = 0; a < start.size(); ++a)
      for (size_t b = a + 1; b < start.size(); ++b)
        if (start[a] % kPeriod == start[b] % kPeriod) return true;
    return false;
  });
}

// The block that does not meet itself and has the shortest pauses at the V's turning points.
Block shortest_block(int ranks, const Steps& steps) {
  std::optional<Block> best;
  int best_pause = 3 * kPeriod;
  for (int a = 0; a < kPeriod; ++a)
    for (int b = 0; b < kPeriod; ++b)
      for (int c = 0; c < kPeriod; ++c) {
        if (a + b + c >= best_pause) continue;
        Block block = block_of(ranks, steps, {a, b, c});
        if (meets_itself(block)) continue;
        best_pause = a + b + c;
        best = std::move(block);
      }
  MPT_CHECK(best.has_value(), "no building block for {} ranks", ranks);
  return *best;
}

// Most chunks that a rank holds if every weight gradient runs in the first free unit after its input
// gradient, in the block's steady state.
int steady_held(const std::array<int, 4>& start) {
  const auto taken = [&](int at) {
    return any_of(start, [&](int s) { return s % kPeriod == at % kPeriod; });
  };
  int upper = start[2] + 1;
  while (taken(upper)) ++upper;
  int lower = start[3] + 1;
  while (taken(lower) || lower % kPeriod == upper % kPeriod) ++lower;
  int most = 0;
  for (int at = 0; at < kPeriod; ++at) {
    // Forwards less weight gradients that began before `at` modulo the period, in the steady state.
    const auto begun = [&](int first) { return (lower + kPeriod + at - first) / kPeriod; };
    most = std::max(most, begun(start[0]) + begun(start[1]) - begun(upper + 1) - begun(lower + 1));
  }
  return most;
}

Schedule generate_from_block(const char* name, int ranks, int chunks, int micro_batches, const Steps& steps) {
  Schedule schedule{name, ranks, 2, micro_batches, v_placement(ranks, chunks), {}};
  schedule.rows.resize(size_t(ranks));
  const Block block = shortest_block(ranks, steps);
  int held = 0;
  for (int r = 0; r < ranks; ++r) {
    const std::array<int, 4>& start = block[size_t(r)];
    const int lower = r, upper = 2 * ranks - 1 - r;
    const Action passes[] = {{ActionKind::forward, lower, 0},
                             {ActionKind::forward, upper, 0},
                             {ActionKind::input_gradient, upper, 0},
                             {ActionKind::input_gradient, lower, 0}};
    std::vector<std::pair<int, Action>> timed;
    for (int m = 0; m < micro_batches; ++m)
      for (size_t p = 0; p < start.size(); ++p)
        timed.emplace_back(start[p] + kPeriod * m, Action{passes[p].kind, passes[p].stage, m});
    std::sort(timed.begin(), timed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [at, action] : timed) schedule.rows[size_t(r)].push_back(action);
    held = std::max(held, steady_held(start));
  }
  fill_weight_gradients(schedule, std::vector<int>(size_t(ranks), held));
  return schedule;
}

// One rank of DualPipe-V, in its published phases.
class DualPipeRow {
 public:
  DualPipeRow(int ranks, int rank) : stages_{rank, 2 * ranks - 1 - rank} {}

  void forward(int chunk) {
    row_.push_back({ActionKind::forward, stages_[size_t(chunk)], forwards_[size_t(chunk)]++});
  }
  void backward(int chunk, bool weight_later) {
    const int m = backwards_[size_t(chunk)]++;
    row_.push_back({ActionKind::input_gradient, stages_[size_t(chunk)], m});
    later_.push_back({ActionKind::weight_gradient, stages_[size_t(chunk)], m});
    if (weight_later) return;
    row_.push_back(later_.back());
    later_.pop_back();
  }
  void weight() {
    row_.push_back(later_.front());
    later_.pop_front();
  }
  std::vector<Action> take() {
    MPT_CHECK(later_.empty(), "{} weight gradients left", later_.size());
    return std::move(row_);
  }

 private:
  std::array<int, 2> stages_;
  std::array<int, 2> forwards_{}, backwards_{};
  std::deque<Action> later_;
  std::vector<Action> row_;
};

std::vector<Action> dualpipe_row(int ranks, int rank, int micro_batches) {
  DualPipeRow row(ranks, rank);
  const int below = ranks - rank - 1, own = rank + 1;
  for (int i = 0; i < 2 * below; ++i) row.forward(0);
  for (int i = 0; i < own; ++i) {
    row.forward(0);
    row.forward(1);
  }
  for (int i = 0; i < below; ++i) {
    row.backward(1, true);
    row.weight();
    row.forward(1);
  }
  for (int i = 0; i < micro_batches - 2 * ranks + own; ++i) {
    row.forward(0);
    row.backward(1, false);
    row.forward(1);
    row.backward(0, false);
  }
  for (int i = 0; i < below; ++i) {
    row.backward(1, false);
    row.forward(1);
    row.backward(0, false);
  }
  // In the second half of the last pairs, weight gradients wait for later gaps.
  for (int i = 0; i < 2 * own; ++i) row.backward(1 - i % 2, i >= own);
  for (int i = 0; i < below; ++i) {
    row.weight();
    row.backward(0, true);
  }
  for (int i = 0; i < own; ++i) row.weight();
  return row.take();
}

}  // namespace

Schedule generate_zb_v(int ranks, int chunks, int micro_batches) {
  return generate_from_block("zb-v", ranks, chunks, micro_batches, {4, 2, 4, 2});
}

Schedule generate_v_half(int ranks, int chunks, int micro_batches) {
  return generate_from_block("v-half", ranks, chunks, micro_batches, {2, 1, 2, 1});
}

Schedule generate_v_min(int ranks, int chunks, int micro_batches) {
  return generate_from_block("v-min", ranks, chunks, micro_batches, {1, 1, 1, 1});
}

Schedule generate_dualpipe_v(int ranks, int chunks, int micro_batches) {
  Schedule schedule{"dualpipe-v", ranks, 2, micro_batches, v_placement(ranks, chunks), {}};
  // The pattern needs at least two micro-batches per rank. Without all actions of the surplus ones, the
  // others stay valid.
  const int made = std::max(micro_batches, 2 * ranks);
  for (int r = 0; r < ranks; ++r) {
    auto row = dualpipe_row(ranks, r, made);
    std::erase_if(row, [&](const Action& a) { return a.micro_batch >= micro_batches; });
    schedule.rows.push_back(std::move(row));
  }
  return schedule;
}

}  // namespace mpt
