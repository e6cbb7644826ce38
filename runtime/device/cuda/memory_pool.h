// SPDX-License-Identifier: Apache-2.0
#pragma once

// MemoryPool: blocks of GPU memory. Blocks of tensors come from one reserve: the smallest gap that is long
// enough is cut. When released, a block is merged with adjacent gaps. Beyond the reserve, and for scratch,
// blocks are kept by size, since most steps repeat their sizes. Streams may still use released memory:
// another stream that gets it waits for them on the GPU.

#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace mpt::runtime::cuda {

/// scratch: memory for one call, reused by later calls only.
enum class MemoryUse { tensors, scratch };

class MemoryPool {
 public:
  ~MemoryPool();
  /// From now on blocks come from a reserve of `bytes`, or of the GPU's free memory minus `spare_bytes` if
  /// that is less, until it is used up. A request to the driver for memory may wait for work of all threads.
  void reserve(int64_t bytes, int64_t spare_bytes);
  /// At least `bytes` for work in `stream`. Throws RunError with the request when the GPU has no more memory.
  void* allocate(MemoryUse use, int64_t bytes, cudaStream_t stream);
  /// `use` and `bytes` as in allocate(); the block's last work was in `stream`.
  void release(MemoryUse use, void* data, int64_t bytes, cudaStream_t stream);

 private:
  struct Block {
    void* data;
    cudaStream_t stream;
  };
  // A free part of the reserve, and the streams with work that may still use it.
  struct Gap {
    int64_t length;
    std::vector<cudaStream_t> users;
  };
  using Gaps = std::map<char*, Gap>;
  void* of_reserve(int64_t size, cudaStream_t stream);
  void* kept(MemoryUse use, int64_t size, cudaStream_t stream);
  void* fresh(int64_t size, cudaStream_t stream);
  void wait_for(cudaStream_t user, cudaStream_t stream);
  void give_back(char* data, int64_t size, cudaStream_t stream);
  bool is_reserved(const void* data) const;
  void free_all();

  std::mutex mutex_;
  std::map<std::pair<MemoryUse, int64_t>, std::vector<Block>> free_;  // by use and size, then by address
  std::unordered_map<const void*, int64_t> larger_;  // sizes of blocks larger than their request
  cudaEvent_t event_ = nullptr;
  int64_t reserved_ = 0;
  char* reserve_ = nullptr;
  int64_t reserve_bytes_ = 0;
  Gaps gaps_;  // free parts of the reserve
};

}  // namespace mpt::runtime::cuda
