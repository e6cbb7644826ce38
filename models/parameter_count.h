// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/model_spec.h"

namespace mpt::models {

struct ParameterCount {
  int64_t total = 0;
  int64_t active = 0;     // with only experts_per_token of each layer's experts; the whole token table
  int64_t embedding = 0;  // token table, positions, and the head if it is not tied
};

/// Exact, summed over the model's layer programs. Multi-token-prediction layers are not counted, as
/// publishers leave them out (DeepSeek-V3: 671B without them).
ParameterCount count_parameters(const ModelSpec& model);

}  // namespace mpt::models
