// SPDX-License-Identifier: Apache-2.0
#pragma once

// Places weight gradients into the gaps of a schedule: what the zero-bubble schedules have in common.

#include <vector>

#include "core/schedule.h"

namespace mpt {

/// `schedule` holds each rank's forwards and input gradients in order. Runs them in units where each action
/// lasts 1 and transfers nothing; a rank that has to wait does its oldest open weight gradient instead, and
/// before a forward that would make it hold more than `most_held[rank]` micro-batches (forward done, weight
/// gradient not; over all its stages) it does one first. What is left comes last.
/// The limit must leave the order able to run: one that the order keeps by itself, with each weight gradient
/// right behind its input gradient, always does.
void fill_weight_gradients(Schedule& schedule, const std::vector<int>& most_held);

}  // namespace mpt
