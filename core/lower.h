// SPDX-License-Identifier: Apache-2.0
#pragma once

// lower(): Schedule and footprints -> StepProgram. Every rule about the contents, the order and the waits of
// a step is here and nowhere else. The schedule alone determines the number of transfer buffers between
// stages.

#include <vector>

#include "core/layout.h"
#include "core/schedule.h"
#include "core/stage_footprint.h"
#include "core/step_program.h"

namespace mpt {

/// Slots by stage. Transfers leave and arrive through a fixed number of slots. The sending side has two, so
/// that the next can be filled while one is sent. The receiving side has the number that the nominal timeline
/// needs, plus one so that a late consumer does not delay the next transfer. `placement`: the schedule's
/// nominal placement, complete.
std::vector<StageSlots> transfer_slots(const Schedule& schedule, const NominalPlacement& placement);
std::vector<StageSlots> transfer_slots(const Schedule& schedule);

/// Lowers a schedule without defects. Instructions are placed by nominal durations (forward 1, backward 2,
/// transfers 0) and listed by nominal start; a pure function of its arguments.
/// Throws UserError if the schedule has a defect or does not fit the layout and the footprints.
StepProgram lower(const Layout& layout, const Schedule& schedule,
                  const std::vector<StageFootprint>& footprints);

/// Gives a program of lower() the bytes of other stages. The result equals the program that lower() makes of
/// them, if both tie the embedding or neither does.
void set_bytes(const std::vector<StageFootprint>& footprints, StepProgram& program);

}  // namespace mpt
