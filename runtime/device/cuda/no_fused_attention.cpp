// SPDX-License-Identifier: Apache-2.0

// Used if cuDNN's headers are missing.

#include "runtime/device/cuda/fused_attention.h"

namespace mpt::runtime::cuda {

std::unique_ptr<FusedAttention> make_fused_attention() { return nullptr; }

}  // namespace mpt::runtime::cuda
