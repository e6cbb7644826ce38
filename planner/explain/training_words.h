// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/training.h"

namespace mpt::planner {

/// "LoRA of rank 16 over nf4 weights, adamw8"; empty for full training by AdamW on sequences of one length.
std::string training_words(const Training& training);

}  // namespace mpt::planner
