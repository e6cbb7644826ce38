// SPDX-License-Identifier: Apache-2.0
#pragma once

// lower(): Schedule and footprints -> StepProgram. The heart: every rule about what happens in a step, in
// which order and after what, is here and nowhere else. How many buffers the transfers between stages need a
// schedule alone says.

#include <vector>

#include "core/layout.h"
#include "core/schedule.h"
#include "core/stage_footprint.h"
#include "core/step_program.h"

namespace mpt {

/// By stage. Transfers leave and arrive through a fixed number of slots. On the sending side there are two,
/// so that the next can be filled while one is sent; on the receiving side as many as the nominal timeline
/// needs, plus one so that a late consumer does not delay the transfer behind it.
/// `placement`: the schedule's own, of all its actions.
std::vector<StageSlots> transfer_slots(const Schedule& schedule, const NominalPlacement& placement);
std::vector<StageSlots> transfer_slots(const Schedule& schedule);

/// Lowers a schedule without defects. Instructions are placed by nominal durations (forward 1, backward 2,
/// transfers 0) and listed by nominal start; a pure function of its arguments.
/// Throws UserError if the schedule has a defect or does not fit the layout and the footprints.
StepProgram lower(const Layout& layout, const Schedule& schedule,
                  const std::vector<StageFootprint>& footprints);

/// Gives a program of lower() the bytes of other stages. It is the program that lower() makes of them, if
/// both tie the embedding or neither does.
void set_bytes(const std::vector<StageFootprint>& footprints, StepProgram& program);

}  // namespace mpt
