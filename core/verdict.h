// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/fields.h"

namespace mpt {

/// Whether a framework runs a model, and whether MPT writes the model for it.
enum class VerdictKind : uint8_t {
  exported,     // it runs, and MPT writes it
  not_written,  // it runs, and MPT does not write it yet
  not_run,      // it does not run
  not_judged,   // MPT does not know
};

struct ModelVerdict {
#include "generated/ModelVerdict.inc"
};

/// Whether a layout is known to give the same training as one GPU that takes one sequence at a time.
struct Objective {
#include "generated/Objective.inc"
};

}  // namespace mpt
