// SPDX-License-Identifier: Apache-2.0
#include "core/ties.h"

#include <gtest/gtest.h>

namespace mpt {
namespace {

Layout recomputing(Recompute recompute, std::vector<int64_t> layers = {}) {
  Layout l;
  l.pipeline = 2;
  l.layers_per_stage = {4, 4};
  l.recompute = recompute;
  l.recomputed_layers = std::move(layers);
  return l;
}

TEST(Ties, CountsKindsOfParallelism) {
  EXPECT_EQ(kinds_of_parallelism({}, 1), 0);
  EXPECT_EQ(kinds_of_parallelism({8, 1, 1, 4}, 1), 2);
  EXPECT_EQ(kinds_of_parallelism({2, 2, 2, 2}, 4), 5);
}

TEST(Ties, OrdersWhatIsRecomputed) {
  const Layout none = recomputing(Recompute::none), selective = recomputing(Recompute::selective),
               full = recomputing(Recompute::full), all = recomputing(Recompute::full, {4, 4}),
               half = recomputing(Recompute::full, {4, 0}), no_layer = recomputing(Recompute::full, {0, 0});
  for (const Layout* more : {&selective, &half, &full}) EXPECT_TRUE(does_more(*more, none));
  EXPECT_TRUE(does_more(full, half) && does_more(full, selective));
  EXPECT_FALSE(does_more(full, all) || does_more(all, full) || does_more(no_layer, none));
  // Some layers in full, or a part of each: neither is more.
  EXPECT_FALSE(does_more(half, selective) || does_more(selective, half));
}

TEST(Ties, CountsOffloadBesideRecompute) {
  Layout plain = recomputing(Recompute::none), offloads = plain;
  offloads.offload_optimizer = true;
  const Layout full = recomputing(Recompute::full);
  EXPECT_TRUE(does_more(offloads, plain));
  EXPECT_FALSE(does_more(plain, offloads) || does_more(plain, plain));
  EXPECT_FALSE(does_more(offloads, full) || does_more(full, offloads));
}

struct Timed {
  double step_time_s;
  int64_t peak_bytes;
  Layout layout;
};

TEST(Ties, WorkForNothingIsNeitherFasterNorSmaller) {
  const Layout none = recomputing(Recompute::none), full = recomputing(Recompute::full);
  const Timed plain{1.0, 1000, none};
  EXPECT_TRUE(is_dominated({1.0, 1000, full}, plain));
  EXPECT_TRUE(is_dominated({1.1, 1100, full}, plain));
  EXPECT_TRUE(is_dominated({0.995, 999, full}, plain)) << "a tie, and called the same memory";
  EXPECT_FALSE(is_dominated({0.985, 1000, full}, plain)) << "faster";
  EXPECT_FALSE(is_dominated({1.0, 990, full}, plain)) << "smaller";
  EXPECT_FALSE(is_dominated(plain, {1.0, 1000, full})) << "does less";
}

}  // namespace
}  // namespace mpt
