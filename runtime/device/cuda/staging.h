// SPDX-License-Identifier: Apache-2.0
#pragma once

// Staging: pinned memory of one thread. Through it the thread's stream sends lists to the GPU and gets
// numbers back. Copies from pageable memory may wait for the stream inside the driver (CUDA runtime API, "API
// synchronization behavior"). Pinned memory is allocated once and kept: the driver may wait for all work of
// the GPU in both allocation and release, and that work may depend on this thread's next action.

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <functional>

namespace mpt::runtime::cuda {

class Staging {
 public:
  /// Longer lists go in several pieces.
  explicit Staging(int64_t slot_bytes = 64 << 10) : slot_bytes_(slot_bytes) {}
  Staging(const Staging&) = delete;
  ~Staging();

  /// `list` has been read on return. Calls `wait` for an earlier piece that may still be in transit.
  void send(const void* list, int64_t bytes, void* to, cudaStream_t stream,
            const std::function<void(cudaEvent_t)>& wait);
  /// Memory for one number from the GPU.
  double* answer();

 private:
  char* room();

  const int64_t slot_bytes_;
  std::array<cudaEvent_t, 32> sent_{};  // by slot, used in turn
  size_t next_ = 0;
  char* room_ = nullptr;  // first the answer, then the slots
};

}  // namespace mpt::runtime::cuda
