// SPDX-License-Identifier: Apache-2.0

// MPT's rows against the order that PyTorch's schedule classes have, as asked from the package:
// tests/frameworks/torch_orders_test.py compares the file with the installed version.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/digest.h"
#include "base/json.h"
#include "core/schedule_catalog.h"

namespace mpt {
namespace {

// Chunks whose forward is done and whose weight gradient is not, at most.
int most_held(const std::vector<Action>& row) {
  int held = 0, most = 0;
  for (const Action& a : row) {
    held += a.kind == ActionKind::forward ? 1 : 0;
    most = std::max(most, held);
    held -= a.kind == ActionKind::backward || a.kind == ActionKind::weight_gradient ? 1 : 0;
  }
  return most;
}

struct TorchOrder {
  std::string schedule;
  int ranks, chunks, micro_batches;
  std::string digest;
  std::vector<int> held;  // by rank

  std::string name() const {
    return fmt::format("{} of {} ranks, {} chunks, {} micro-batches", schedule, ranks, chunks, micro_batches);
  }
  Schedule own(bool equal_rounds) const {
    return make_schedule(find_schedule(schedule, "test"), ranks, chunks, micro_batches, equal_rounds);
  }
};

std::vector<TorchOrder> torch_orders() {
  std::vector<TorchOrder> orders;
  const Json file = load_json(MPT_SOURCE_DIR "/tests/frameworks/torch_orders.json", 1 << 20);
  for (const Json& line : file["asked"]) {
    for (const auto& [micro_batches, order] : line["orders"].items())
      orders.push_back(
          {line["schedule"], line["ranks"], line["chunks"], std::stoi(micro_batches), order[0], order[1]});
  }
  return orders;
}

std::string digest_of(const Schedule& schedule) {
  std::vector<std::string> rows;
  for (const auto& row : schedule.rows) rows.push_back(row_to_text(row, true));
  return text_digest(fmt::format("{}", fmt::join(rows, "\n")));
}

std::vector<int> held_by(const Schedule& schedule) {
  std::vector<int> held;
  for (const auto& row : schedule.rows) held.push_back(most_held(row));
  return held;
}

TEST(TorchOrders, RowsAreThoseOfPyTorchsClasses) {
  std::map<std::string, int> compared;
  for (const TorchOrder& order : torch_orders()) {
    if (order.schedule.empty() || order.schedule == "zb-v" || order.schedule == "dualpipe-v") continue;
    ++compared[order.schedule];
    const Schedule own = order.own(true);
    EXPECT_EQ(find_defect(own), std::nullopt);
    EXPECT_EQ(held_by(own), order.held) << order.name();
    EXPECT_EQ(digest_of(own), order.digest) << order.name();
  }
  EXPECT_GE(compared["interleaved"], 150);
  EXPECT_GE(compared["zb-interleaved"], 150);
  EXPECT_GE(compared["1f1b"], 100);
  EXPECT_GE(compared["gpipe"], 100);
}

// These are made by MPT's own rules: other orders, which hold at least as much. zb-v fills its warm-up with
// forwards where PyTorch's class does weight gradients with few micro-batches.
TEST(TorchOrders, VShapedRowsHoldNoLessThanPyTorchsClasses) {
  int compared = 0;
  for (const TorchOrder& order : torch_orders()) {
    if (order.schedule != "zb-v" && order.schedule != "dualpipe-v") continue;
    ++compared;
    const std::vector<int> own = held_by(order.own(true));
    for (size_t r = 0; r < own.size(); ++r) EXPECT_GE(own[r], order.held[r]) << order.name();
    EXPECT_EQ(own, std::vector<int>(own.size(), own.front())) << "as much on each rank";
    EXPECT_EQ(own.front(), *std::max_element(order.held.begin(), order.held.end())) << order.name();
  }
  EXPECT_GE(compared, 200);
}

// Where micro-batches are a multiple of ranks both ways of dealing are one; else PyTorch's rounds hold more.
TEST(TorchOrders, RoundsDifferFromGroupsOfRanksWhereMicroBatchesDoNotDivide) {
  const ScheduleEntry& interleaved = find_schedule("interleaved", "test");
  const auto first_holds = [&](int micro_batches, bool equal_rounds) {
    return most_held(make_schedule(interleaved, 4, 2, micro_batches, equal_rounds).rows.front());
  };
  for (const int m : {4, 8, 12, 16}) EXPECT_EQ(first_holds(m, true), first_holds(m, false)) << m;
  EXPECT_EQ(first_holds(7, true), 14);
  EXPECT_EQ(first_holds(7, false), 11);
  EXPECT_EQ(first_holds(10, true), 12);
  EXPECT_EQ(first_holds(10, false), 11);
}

}  // namespace
}  // namespace mpt
