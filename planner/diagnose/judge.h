// SPDX-License-Identifier: Apache-2.0
#pragma once

// The one judge of a measured figure: how it compares with the prediction and with published runs, and
// which way of counting explains it better.

#include <optional>
#include <string>
#include <vector>

#include "planner/diagnose/measurement.h"
#include "planner/explain/evidence.h"

namespace mpt::planner {

/// A measured time that is this far from the predicted one, as a share, wants an explanation.
inline constexpr double kWorthExplaining = 0.05;

/// Eight in ten published runs of the plan's framework and kind of model took `low` to `high` times the
/// predicted time.
struct PublishedRange {
  double low = 0.0, high = 0.0;
  size_t runs = 0;
};
/// Nothing where too few runs were published, or where a profile of the user's machine has the prices.
std::optional<PublishedRange> published_range(const Plan& plan, const std::vector<Evidence>& published);
/// "8 in 10 of 149 published runs of megatron-core took 0.92 to 1.19 times the predicted time."
std::string describe_range(const PublishedRange& range, const Plan& plan);

/// One claim a line, the verdict first.
std::vector<std::string> judge(const Plan& plan, const Measurement& measured,
                               const std::vector<Evidence>& published);

/// What the best layout would give beside a measurement of `plan`, a sentence; empty without a measurement.
std::string describe_against_best(const Plan& plan, const Plan& best, const std::string& text);

/// For a terminal, `text` as parse_measurement() takes it; empty of an empty one.
std::string describe_judgement(const Plan& plan, const std::string& text);

}  // namespace mpt::planner
