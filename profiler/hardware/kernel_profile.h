// SPDX-License-Identifier: Apache-2.0
#pragma once

// KernelProfile: kernel times that a user measured elsewhere, in the form of kernels.json. They override the
// catalog's tables shape by shape. Other shapes keep the catalog's times.

#include <filesystem>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/json.h"

namespace mpt::profiler {

/// C[m, n] = A[m, k] B[k, n] in bf16 or fp16. Each pass has its own shape: a weight gradient of a layer of
/// `columns` x `inner` over `rows` tokens is m = columns, n = inner, k = rows.
enum class ProductPass { any, forward, input_gradient, weight_gradient };
enum class AttentionPass { forward, backward };

struct ProductTime {
#include "generated/ProductTime.inc"
};

/// A causal attention core in bf16 or fp16.
struct AttentionTime {
#include "generated/AttentionTime.inc"
};

struct CollectiveTime {
#include "generated/CollectiveTime.inc"
};

struct KernelProfile {
#include "generated/KernelProfile.inc"
};

/// Throws UserError.
KernelProfile load_kernel_profile(const std::filesystem::path& file);

/// Facts about an nccl-tests log that the log does not state; empty and 0 if the caller has none.
struct LogHints {
  std::string operation;
  int64_t ranks = 0, hosts = 0;
};
/// Adds the times of a file to a profile. The file is output of nccl-tests (text), a PyTorch profiler
/// (Kineto) trace with recorded shapes, a SimuMax system file, or a profile.json of the same GPU in bf16 or
/// fp16 (the last three are JSON). Of several times of one shape the shortest counts. Throws UserError if the
/// file is none of them, or has no usable time.
void import_times(KernelProfile& profile, const std::filesystem::path& file, const LogHints& hints);

}  // namespace mpt::profiler
