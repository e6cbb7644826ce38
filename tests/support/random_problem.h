// SPDX-License-Identifier: Apache-2.0
#pragma once

// A small random search problem for every seed: together they cover the space, and each is small enough for
// brute force.

#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "planner/search/space.h"

namespace mpt::test {

/// Of launches: nothing for every other seed, or as much as a little model's work.
inline double dispatch_of(uint32_t seed) { return seed % 2 == 0 ? 0.0 : seed % 4 == 1 ? 1e-5 : 1e-3; }

struct RandomProblem {
  /// `dispatch_s`: what the launch of an instruction costs beside the roofline's times.
  explicit RandomProblem(uint32_t seed, double dispatch_s = 0.0);
  RandomProblem(const RandomProblem&) = delete;

  int64_t pick(std::initializer_list<int64_t> values) { return *(values.begin() + random() % values.size()); }

  std::mt19937 random;
  planner::SearchProblem problem;
  std::unique_ptr<planner::CostSource> source;

 private:
  void limit_space();
  void train_otherwise(uint32_t seed);
  std::shared_ptr<const frameworks::Framework> random_framework();
};

}  // namespace mpt::test

namespace mpt::planner {

/// Of the whole space.
void visit_degrees(const SearchProblem& problem, const VisitDegrees& visit);
/// Calls `visit` with every node of sharding.
void visit_shardings(const SearchProblem& problem, const std::function<void(const Layout&)>& visit);
/// Every layout of the space, resolved, each once; duplicates are left out. For small spaces: the search
/// itself never makes this list.
std::vector<Layout> enumerate_layouts(const SearchProblem& problem);

}  // namespace mpt::planner
