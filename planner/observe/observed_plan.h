// SPDX-License-Identifier: Apache-2.0
#pragma once

// The plan of a request with observed runs: predictions of the layouts near the best, corrected.

#include <optional>
#include <span>
#include <string>

#include "base/error.h"
#include "planner/api.h"
#include "planner/explain/screen.h"
#include "planner/observe/features.h"
#include "planner/observe/next_run.h"

namespace mpt::planner {

/// One of the layouts to choose from, by what its correction depends on.
struct Choosable {
  CorrectedPoint time;
  double predicted_s = 0.0;
  double likely_to_fit = 1.0;
  bool ran = false;
};

/// Of layouts that are likely to fit, the one to recommend: the fastest as expected, or one that ran and is
/// expected to be as fast. Of others the likeliest.
size_t recommended(std::span<const Choosable> layouts, const Posterior& posterior);

/// What to measure next beside the recommended layout, and what choosing loses now and then.
struct NextRun {
  std::optional<size_t> layout;  // nothing: no run is worth its time
  double loss = 0.0, loss_after = 0.0;
  double likely_loss = 0.0;  // in 95 of 100 cases at most
};
/// The recommended one first; then the one whose run is worth most.
NextRun next_run(std::span<const Choosable> layouts, const Posterior& posterior, size_t recommended);

/// Nothing where no layout fits, which `why` then says.
std::optional<Plan> observed_plan(const Resolved& resolved, const Watch& watch, Problem& why);
/// Sets `corrected` of an estimated layout by the runs of its request. Those of other nodes or software do
/// not count, which a note says.
void correct(const PlanRequest& asked, Estimated& estimated);

/// The answer: where observed runs corrected the plan, with what they show and what to measure next.
std::string plan_screen(const Plan& plan, const ScreenOptions& options = {});

}  // namespace mpt::planner
