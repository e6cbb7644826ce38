// SPDX-License-Identifier: Apache-2.0

// Takes the door out of the planner's library into libmpt.

#include "planner/door/door.h"

// NOLINTNEXTLINE(misc-use-internal-linkage): referred to, so that the linker keeps both
void* const mpt_door_functions[] = {reinterpret_cast<void*>(&mpt_answer), reinterpret_cast<void*>(&mpt_free)};
