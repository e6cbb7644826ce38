// SPDX-License-Identifier: Apache-2.0
#pragma once

// Curves of a run as event files, which TensorBoard reads: TFRecords (length, its CRC, an Event message, its
// CRC) as tensorflow/core/lib/io/record_writer.h and tensorflow/core/util/event.proto describe them.

#include <memory>

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

}  // namespace mpt::runtime
