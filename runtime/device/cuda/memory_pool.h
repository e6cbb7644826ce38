// SPDX-License-Identifier: Apache-2.0
#pragma once

// MemoryPool: blocks of GPU memory. Those of tensors are cut from one reserve, the smallest gap that is long
// enough first, and joined with their neighbours when they come back. Beyond the reserve, and for scratch,
// blocks are kept by size since most steps repeat their sizes. Memory given back may still be at work in its
// streams: another stream that gets it waits there, on the GPU.

#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace mpt::runtime::cuda {

/// scratch: room for one call, which comes back to later calls alone.
enum class MemoryUse { tensors, scratch };

class MemoryPool {
 public:
  ~MemoryPool();
  /// From now on blocks are cut from one of `bytes`, or of what the GPU has left but for `spare_bytes`, as
  /// far as it lasts. The driver may wait for work of all threads when it is asked for memory.
  void reserve(int64_t bytes, int64_t spare_bytes);
  /// At least `bytes` for work in `stream`. Throws RunError when the GPU has no more, with what it was asked
  /// for.
  void* allocate(MemoryUse use, int64_t bytes, cudaStream_t stream);
  /// `use` and `bytes` as asked for; work in `stream` was its last.
  void release(MemoryUse use, void* data, int64_t bytes, cudaStream_t stream);

 private:
  struct Block {
    void* data;
    cudaStream_t stream;
  };
  // Of the reserve. Streams whose work may still touch it.
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
  std::unordered_map<const void*, int64_t> larger_;  // sizes of blocks that are larger than what has them
  cudaEvent_t event_ = nullptr;
  int64_t reserved_ = 0;
  char* reserve_ = nullptr;
  int64_t reserve_bytes_ = 0;
  Gaps gaps_;  // what no block has
};

}  // namespace mpt::runtime::cuda
