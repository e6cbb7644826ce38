// SPDX-License-Identifier: Apache-2.0
#pragma once

// The newest step's figures in Prometheus' text format, for the node exporter's textfile collector.

#include <string>
#include <vector>

#include "reports/run_result.h"

namespace mpt::runtime {

/// The text of a file. `run` is the label of all its rows: a collector refuses two files with equal rows.
/// `hosts` are those of the ranks; figures that nothing measured are left out.
std::string metrics_of(const reports::StepRecord& step, const std::string& run,
                       const std::vector<std::string>& hosts);

}  // namespace mpt::runtime
