// SPDX-License-Identifier: Apache-2.0
#pragma once

// Timeline: start and end of every instruction of a StepProgram, by instruction id. The simulator and the
// executor both produce one in the same form. Predicted and measured times join by id.

#include <vector>

#include "core/step_program.h"

namespace mpt {

struct Span {
  double start_s = 0.0;
  double end_s = 0.0;
  double seconds() const { return end_s - start_s; }
  bool operator==(const Span&) const = default;
};

struct Timeline {
  std::vector<Span> spans;  // spans[id], seconds since the step began
  bool operator==(const Timeline&) const = default;
};

/// From the earliest start to the latest end of the step.
double step_time_s(const Timeline& timeline);

/// Share of the ranks' step time in which their compute lane does nothing: 1 - sum of busy / (ranks x step).
/// Contains warm-up, drain, waiting for transfers and exposed communication at the step's end. Of a step of
/// `step_s` that has `times` the program's micro-batches, where they are given.
double bubble_share(const StepProgram& program, const Timeline& timeline, double times = 1.0,
                    double step_s = 0.0);

}  // namespace mpt
