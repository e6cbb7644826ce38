// SPDX-License-Identifier: Apache-2.0
#pragma once

// Figures of steps in the forms of other programs. Event files, which TensorBoard reads, are TFRecords
// (length, its CRC, an Event message, its CRC) as tensorflow/core/lib/io/record_writer.h and
// tensorflow/core/util/event.proto describe them. Prometheus' text format holds the newest step, for the node
// exporter's textfile collector.

#include <memory>
#include <string>

#include "reports/run_result.h"
#include "runtime/monitor/log_file.h"

namespace mpt::runtime {

/// A new event file in the folder, which is made if it is missing. Throws UserError.
std::unique_ptr<LogFile> open_event_file(const std::filesystem::path& folder);
/// The first records of a file, a start at `first_step`: TensorBoard leaves out the points that earlier runs
/// in the folder have from there on.
std::string start_events(int64_t first_step);
/// The record of a step's figures at this moment.
std::string event_of(const reports::StepRecord& step);

/// The text of a file in Prometheus' format. `run` is the label of all its rows: a collector refuses two
/// files with equal rows. `hosts` are those of the ranks; figures that nothing measured are left out.
std::string metrics_of(const reports::StepRecord& step, const std::string& run,
                       const std::vector<std::string>& hosts);

}  // namespace mpt::runtime
