// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/timeline.h"

namespace mpt::reports {

struct NamedTimeline {
  std::string name;  // "predicted", "measured"
  Timeline timeline;
};

/// Chrome trace events, which Perfetto loads: one process per timeline and pipeline rank, one thread per
/// stream, and the rank's memory as a counter.
std::string trace_json(const StepProgram& program, const std::vector<NamedTimeline>& timelines);

}  // namespace mpt::reports
