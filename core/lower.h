// SPDX-License-Identifier: Apache-2.0
#pragma once

// lower(): Schedule and footprints -> StepProgram. The heart: every rule about what happens in a step, in
// which order and after what, is here and nowhere else.

#include <vector>

#include "core/layout.h"
#include "core/schedule.h"
#include "core/stage_footprint.h"
#include "core/step_program.h"

namespace mpt {

/// Lowers a schedule without defects. Instructions are placed by nominal durations (forward 1, backward 2,
/// transfers 0) and listed by nominal start; a pure function of its arguments.
/// Throws UserError if the schedule has a defect or does not fit the layout and the footprints.
StepProgram lower(const Layout& layout, const Schedule& schedule,
                  const std::vector<StageFootprint>& footprints);

/// Gives a program of lower() the bytes of other stages. It is the program that lower() makes of them, if
/// both tie the embedding or neither does.
void set_bytes(const std::vector<StageFootprint>& footprints, StepProgram& program);

}  // namespace mpt
