// SPDX-License-Identifier: Apache-2.0
#pragma once

// CudaDevice: one rank's part of a GPU. Each thread that calls it has a stream of its own; memory goes back
// and forth between them in stream order. It is also the mover of its rank's buffers within a process.

#include <cuda_runtime.h>

#include <functional>
#include <memory>

#include "runtime/comm/mover.h"
#include "runtime/device/device.h"

namespace mpt::runtime::cuda {

class CudaDevice : public Device, public Mover {
 public:
  /// The calling thread's stream.
  virtual cudaStream_t stream() = 0;
  /// Waits for what was recorded last, as synchronize() waits.
  virtual void wait_for(cudaEvent_t event) = 0;
  /// Called again and again while the host waits for the GPU, with the seconds of that wait; ends it by
  /// throwing. Set before use.
  virtual void set_watch(std::function<void(double waited_s)> watch) = 0;
  /// Memory beside what callers allocated: workspaces, lists of numbers, and room that kernels need.
  virtual int64_t scratch_bytes() const = 0;
};

/// Whether `data` is memory of the host, pinned or not.
bool is_on_host(const void* data);

struct CudaOptions {
  // The first use of a matrix product times several algorithms for it. The bits of results then depend on
  // the outcome.
  bool times_products = false;
};
/// Of GPU `index`. Throws RunError if it cannot be used.
std::unique_ptr<CudaDevice> make_cuda_device(int index, const CudaOptions& options = {});

}  // namespace mpt::runtime::cuda
