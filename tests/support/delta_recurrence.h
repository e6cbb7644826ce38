// SPDX-License-Identifier: Apache-2.0
#pragma once

// The gated delta rule token by token, in double: the slow reference of the chunked kernels. Gradients come
// from going through the same recurrence backwards, with every state kept.

#include <vector>

#include "runtime/device/operator_shapes.h"

namespace mpt::test {

struct DeltaNumbers {
  std::vector<double> qkv, gates, decay, step_bias;  // as DeltaInputs has them
};

/// [b*s, heads * head_dim]
std::vector<double> delta_recurrence(const runtime::DeltaShape& shape, const DeltaNumbers& in);
/// Of what the inputs of the recurrence are, from the gradient of its output.
DeltaNumbers delta_recurrence_gradients(const runtime::DeltaShape& shape, const DeltaNumbers& in,
                                        const std::vector<double>& dout);

}  // namespace mpt::test
