// SPDX-License-Identifier: Apache-2.0
#pragma once

// Requests that people could make, one for every seed: a model of the zoo that the framework trains, on as
// many GPUs of the catalog as it may fit on.

#include <cstdint>

#include "core/plan_request.h"
#include "frameworks/supports/abilities.h"

namespace mpt::test {

/// Equal seeds give equal requests. Some of them have no answer: nothing fits.
PlanRequest random_request(uint32_t seed, const frameworks::Framework& framework);

}  // namespace mpt::test
