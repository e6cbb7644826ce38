// SPDX-License-Identifier: Apache-2.0
#pragma once

// The streams of a device's threads, and the memory that single calls need in them.

#include <cuda_runtime.h>

#include <atomic>
#include <memory>

#include "runtime/device/cuda/memory_pool.h"
#include "runtime/device/cuda/per_thread.h"
#include "runtime/device/cuda/staging.h"

namespace mpt::runtime::cuda {

/// Raises `highest` to `value`, whoever else does the same.
void raise_to(std::atomic<int64_t>& highest, int64_t value);

class CallStreams {
 public:
  /// Of GPU `device`, with memory from `pool`, which must outlive it.
  CallStreams(int device, MemoryPool& pool) : device_(device), pool_(pool) {}
  CallStreams(const CallStreams&) = delete;
  CallStreams& operator=(const CallStreams&) = delete;
  /// Waits for all of them.
  ~CallStreams();

  /// The calling thread's; makes the device its current one.
  cudaStream_t mine() { return lane().stream; }
  /// The calling thread's.
  Staging& staging() { return lane().staging; }
  /// Waits for all of them, whatever became of their work.
  void finish();
  /// The most that calls had at once.
  int64_t peak_bytes() const { return scratch_peak_; }

 private:
  friend class Scratch;
  // What belongs to a thread.
  struct Lane {
    cudaStream_t stream = nullptr;
    Staging staging;
  };

  static std::unique_ptr<Lane> make_lane();
  Lane& lane();

  const int device_;
  MemoryPool& pool_;
  std::atomic<int64_t> scratch_{0}, scratch_peak_{0};
  PerThread<Lane> lanes_{[] { return make_lane(); }};
};

/// Room for one call; the stream that used it is the first to get it again.
class Scratch {
 public:
  Scratch(CallStreams& streams, int64_t bytes);
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch();

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  CallStreams& streams_;
  const cudaStream_t stream_;
  const int64_t bytes_;
  void* const data_;
};

}  // namespace mpt::runtime::cuda
