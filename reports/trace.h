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

/// What goes on inside an instruction, on a track of its own beside the rank's streams.
struct InnerSpan {
  InstructionId instruction = 0;
  int track = 0;  // kOperators, or behind it those of CommunicationKind that lie inside compute
  std::string name;
  double start_s = 0.0, end_s = 0.0;
};
inline constexpr int kOperators = 0, kInnerTracks = 5;

/// Chrome trace events, which Perfetto loads: one process per timeline and pipeline rank, one thread per
/// stream, and the rank's memory as a counter. `inside`: of the first timeline.
std::string trace_json(const StepProgram& program, const std::vector<NamedTimeline>& timelines,
                       const std::vector<InnerSpan>& inside = {});

}  // namespace mpt::reports
