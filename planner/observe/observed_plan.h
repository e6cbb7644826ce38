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

namespace mpt::planner {

/// One of the layouts to choose from, with the inputs of its correction.
struct Choosable {
  CorrectedPoint time;
  double predicted_s = 0.0;
  double likely_to_fit = 1.0;
  bool ran = false;
};

/// The layout to recommend. Among layouts that are likely to fit: the one with the least expected time, or
/// one that ran and is expected to be as fast. Otherwise the likeliest to fit.
size_t recommended(std::span<const Choosable> layouts, const Posterior& posterior);

/// The next layout to measure, apart from the recommended one, and the loss by the choice now and then.
struct NextRun {
  std::optional<size_t> layout;  // nothing: no run is worth its time
  double loss = 0.0, loss_after = 0.0;
  double likely_loss = 0.0;  // in 95 of 100 cases at most
};
/// The recommended layout if none has run yet; otherwise the one with the most valuable run.
NextRun next_run(std::span<const Choosable> layouts, const Posterior& posterior, size_t recommended);

/// Nothing if no layout fits; `why` then has the reason.
std::optional<Plan> observed_plan(const Resolved& resolved, const Watch& watch, Problem& why);
/// Sets `corrected` of an estimated layout by the runs of its request. Runs on other nodes or of other
/// software do not count; a note says so.
void correct(const PlanRequest& asked, Estimated& estimated);

/// The answer. If observed runs corrected the plan, it has their findings and the next layout to measure.
std::string plan_screen(const Plan& plan, const ScreenOptions& options = {});

}  // namespace mpt::planner
