// SPDX-License-Identifier: Apache-2.0
#pragma once

// The one judge of a measured figure: how it compares with the prediction and with published runs, and
// which way of counting explains it better.

#include <optional>
#include <string>
#include <vector>

#include "planner/diagnose/measurement.h"
#include "planner/explain/confidence.h"

namespace mpt::planner {

/// A measured time that is this far from the predicted one, as a share, wants an explanation.
inline constexpr double kWorthExplaining = 0.05;

/// Nothing where no published run tells (confidence.h).
std::optional<StepRange> published_range(const Plan& plan, const std::vector<Evidence>& published);
/// "By published runs, 8 of 10 steps take 0.92 to 1.19 times the predicted time."
std::string describe_range(const StepRange& range);

/// One claim a line, the verdict first.
std::vector<std::string> judge(const Plan& plan, const Measurement& measured,
                               const std::vector<Evidence>& published);

/// What the best layout would give beside a measurement of `plan`, a sentence; empty without a measurement.
std::string describe_against_best(const Plan& plan, const Plan& best, const std::string& text);

/// For a terminal, `text` as parse_measurement() takes it; empty of an empty one.
std::string describe_judgement(const Plan& plan, const std::string& text);

}  // namespace mpt::planner
