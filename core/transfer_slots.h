// SPDX-License-Identifier: Apache-2.0
#pragma once

// How many buffers the transfers between stages need: a schedule alone says it.

#include <vector>

#include "core/schedule.h"
#include "core/step_program.h"

namespace mpt {

/// By stage. Transfers leave and arrive through a fixed number of slots. On the sending side there are two,
/// so that the next can be filled while one is sent; on the receiving side as many as the nominal timeline
/// needs, plus one so that a late consumer does not delay the transfer behind it.
/// `placement`: the schedule's own, of all its actions.
std::vector<StageSlots> transfer_slots(const Schedule& schedule, const NominalPlacement& placement);
std::vector<StageSlots> transfer_slots(const Schedule& schedule);

}  // namespace mpt
