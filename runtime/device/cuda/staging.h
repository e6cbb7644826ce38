// SPDX-License-Identifier: Apache-2.0
#pragma once

// Staging: pinned memory through which one thread's stream sends lists to the GPU and gets numbers back. From
// pageable memory copies may wait for the stream inside the driver (CUDA runtime API, "API synchronization
// behavior").

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <functional>

namespace mpt::runtime::cuda {

class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();

  /// `list` was read when this returns. `wait` is called where an earlier list is still on its way.
  void send(const void* list, int64_t bytes, void* to, cudaStream_t stream,
            const std::function<void(cudaEvent_t)>& wait);
  /// Room for one number from the GPU.
  double* answer();

 private:
  struct Slot {
    void* data = nullptr;
    int64_t bytes = 0;
    cudaEvent_t sent = nullptr;
  };
  std::array<Slot, 8> slots_;  // used in turn
  size_t next_ = 0;
  double* answer_ = nullptr;
};

}  // namespace mpt::runtime::cuda
