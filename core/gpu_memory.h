// SPDX-License-Identifier: Apache-2.0
#pragma once

// Memory that mpt-run takes of a GPU in addition to its tensors, and the padding of the vocabulary there. The
// runtime applies both, and the planner prices them.

#include <cstdint>

namespace mpt {

/// Most channels of a communicator. Each takes one multiprocessor during an operation. Six lanes and three
/// side streams fit on a GPU of 132 multiprocessors. NCCL has buffers for each channel.
inline constexpr int kMostChannels = 14;

/// The pool's gaps between tensors, as a share of the tensors, and its memory for single calls. The backward
/// of fused attention takes most of that. tests/runtime/train/gpu_room_test.cpp counts both.
inline constexpr double kPoolGaps = 1.0 / 32;
inline constexpr int64_t kCallBytes = int64_t{192} << 20;

/// Bytes that the pool reserves for at most `tensors` bytes of tensors; tensors_of_pool() is the inverse.
constexpr int64_t pool_bytes(int64_t tensors) {
  return int64_t(double(tensors) * (1.0 + kPoolGaps)) + kCallBytes;
}
constexpr int64_t tensors_of_pool(int64_t bytes) {
  return int64_t(double(bytes - kCallBytes) / (1.0 + kPoolGaps));
}

/// On GPUs the vocabulary of every tensor rank is padded to a multiple of this. Products with an odd number
/// of columns are several times slower there, because their kernels load single elements.
inline constexpr int64_t kVocabularyMultipleOnGpus = 128;

}  // namespace mpt
