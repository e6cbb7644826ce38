// SPDX-License-Identifier: Apache-2.0
#pragma once

// What mpt-run takes of a GPU beside its tensors, and how it pads the vocabulary there. The runtime does so,
// and the planner prices it.

#include <cstdint>

namespace mpt {

/// Channels of a communicator at most: multiprocessors that one operation of it takes. Six lanes and three
/// side streams fit on a GPU of 132. NCCL has buffers for each channel.
inline constexpr int kMostChannels = 14;

/// Of the pool: gaps between tensors, as a share of these, and room for single calls, of which the backward
/// of fused attention takes most. tests/runtime/train/gpu_room_test.cpp counts both.
inline constexpr double kPoolGaps = 1.0 / 32;
inline constexpr int64_t kCallBytes = int64_t{192} << 20;

/// What the pool reserves for tensors that take `tensors` bytes at most, and the other way round.
constexpr int64_t pool_bytes(int64_t tensors) {
  return int64_t(double(tensors) * (1.0 + kPoolGaps)) + kCallBytes;
}
constexpr int64_t tensors_of_pool(int64_t bytes) {
  return int64_t(double(bytes - kCallBytes) / (1.0 + kPoolGaps));
}

/// On GPUs the vocabulary of every tensor rank is padded to a multiple of this. Products with an odd number
/// of columns are several times slower there: their kernels load single elements.
inline constexpr int64_t kVocabularyMultipleOnGpus = 128;

}  // namespace mpt
