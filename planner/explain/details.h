// SPDX-License-Identifier: Apache-2.0
#pragma once

// The details of the answer: the ranking, memory by kind, all reasons, why others were ruled out, published
// runs, and single sentences that several commands print.

#include <string>

#include "core/plan.h"

namespace mpt::planner {

/// One sentence: the origin of the prices.
std::string describe_prices(const Plan& plan);
/// "63.0 of 64.3 GiB", or "800 MiB of 64.3 GiB"; only the first part if `all` is 0.
std::string part_of(double bytes, double all);
/// Host memory while the model is built, and of an offloaded optimizer; empty if there is none.
std::string describe_host_memory(const Plan& plan);
/// One line: layout, step time, idle share, tokens/s and peak memory of the plan's prediction.
std::string describe_prediction(const Plan& plan);
/// Memory of each pipeline stage by kind.
std::string describe_memory_table(const Plan& plan);
/// Evidence as lines for a terminal.
std::string describe_evidence(const Plan& plan);

/// The text that -v adds to the answer, corrected by observed runs.
std::string describe_details(const Plan& plan);

}  // namespace mpt::planner
