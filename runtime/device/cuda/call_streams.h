// SPDX-License-Identifier: Apache-2.0
#pragma once

// The streams of a device's threads, and the memory that single calls need in them.

#include <cuda_runtime.h>

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

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
  /// CudaDevice::capture().
  cudaGraphExec_t capture(const std::function<void()>& work);
  /// The most that calls had at once, and the rooms of captured graphs.
  int64_t peak_bytes() const { return scratch_peak_.load() + room_bytes_.load(); }

 private:
  friend class Scratch;
  struct Room {
    void* data = nullptr;
    int64_t bytes = 0;
  };

  // What belongs to a thread: its stream, and the room of its captured graphs, which all start at the
  // beginning of one room, for they run one after the other. Earlier, smaller rooms stay: graphs know them.
  struct Lane {
    cudaStream_t stream = nullptr;
    int64_t scratch = 0, most_scratch = 0;  // bytes in use by the call at work, and the most so far
    bool capturing = false;
    std::vector<Room> rooms;
    Staging staging;
    Room room() const { return rooms.empty() ? Room{} : rooms.back(); }
  };

  static std::unique_ptr<Lane> make_lane();
  Lane& lane();

  const int device_;
  MemoryPool& pool_;
  std::atomic<int64_t> scratch_{0}, scratch_peak_{0}, room_bytes_{0};
  PerThread<Lane> lanes_{[] { return make_lane(); }};
};

/// Room for one call; the stream that used it is the first to get it again. A graph's is its own for ever.
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
  CallStreams::Lane& lane_;
  const int64_t bytes_;
  const bool captured_;
  void* data_;
};

}  // namespace mpt::runtime::cuda
