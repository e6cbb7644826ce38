// SPDX-License-Identifier: Apache-2.0
#pragma once

// MemoryPool: blocks of GPU memory, kept by size since steps repeat their sizes. A block given back may still
// be at work in its stream: another stream that gets it waits there, on the GPU.

#include <cuda_runtime.h>

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace mpt::runtime::cuda {

class MemoryPool {
 public:
  ~MemoryPool();
  /// At least `bytes` for work in `stream`. Throws RunError when the GPU has no more, with what it was asked
  /// for.
  void* allocate(int64_t bytes, cudaStream_t stream);
  /// `bytes` as asked for; work in `stream` was its last.
  void release(void* data, int64_t bytes, cudaStream_t stream);

 private:
  struct Block {
    void* data;
    cudaStream_t stream;
  };
  void* fresh(int64_t size);
  void free_all();

  std::mutex mutex_;
  std::unordered_map<int64_t, std::vector<Block>> free_;
  cudaEvent_t event_ = nullptr;
  int64_t reserved_ = 0;
};

}  // namespace mpt::runtime::cuda
