// SPDX-License-Identifier: Apache-2.0
#pragma once

// The streams of a device's threads, and the memory that single calls use in them.

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/device/cuda/memory_pool.h"
#include "runtime/device/cuda/staging.h"

namespace mpt::runtime::cuda {

/// Raises `highest` to `value`, safe against concurrent calls.
void raise_to(std::atomic<int64_t>& highest, int64_t value);

/// One T for each thread that asks. Only that thread uses it until the owner ends.
template <class T>
class PerThread {
 public:
  explicit PerThread(std::function<std::unique_ptr<T>()> make) : make_(std::move(make)), id_(next_id()++) {}

  /// The calling thread's.
  T& mine() {
    // Ids are never reused, so entries of destroyed owners are never found.
    thread_local std::unordered_map<uint64_t, T*> known;
    T*& own = known[id_];
    if (own == nullptr) {
      auto made = make_();
      own = made.get();
      const std::lock_guard lock(mutex_);
      all_.push_back(std::move(made));
    }
    return *own;
  }

  std::vector<T*> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<T*> pointers;
    for (const auto& one : all_) pointers.push_back(one.get());
    return pointers;
  }

 private:
  static std::atomic<uint64_t>& next_id() {
    static std::atomic<uint64_t> next{1};
    return next;
  }

  const std::function<std::unique_ptr<T>()> make_;
  const uint64_t id_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<T>> all_;
};

class CallStreams {
 public:
  /// For GPU `device`, with memory from `pool`, which must outlive this.
  CallStreams(int device, MemoryPool& pool) : device_(device), pool_(pool) {}
  /// Waits for all streams.
  ~CallStreams();

  /// The calling thread's stream; makes the device its current one.
  cudaStream_t mine() { return lane().stream; }
  /// The calling thread's staging.
  Staging& staging() { return lane().staging; }
  /// Waits for all streams, even if their work failed.
  void finish();
  /// The most memory that calls had at the same time.
  int64_t peak_bytes() const { return scratch_peak_; }

 private:
  friend class Scratch;
  // The state of one thread.
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

/// Memory for one call; its stream gets the memory again before other streams do.
class Scratch {
 public:
  Scratch(CallStreams& streams, int64_t bytes);
  Scratch(const Scratch&) = delete;
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
