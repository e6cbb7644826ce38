// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/memory_pool.h"

#include <algorithm>

#include "core/allocation.h"
#include "core/error.h"
#include "core/quantity.h"
#include "runtime/device/cuda/launch.h"

namespace mpt::runtime::cuda {

MemoryPool::~MemoryPool() {
  free_all();
  if (event_ != nullptr) cudaEventDestroy(event_);
}

void* MemoryPool::allocate(int64_t bytes, cudaStream_t stream) {
  const int64_t size = std::max(rounded_bytes(bytes), kAllocationUnit);
  const std::lock_guard lock(mutex_);
  std::vector<Block>& blocks = free_[size];
  if (blocks.empty()) return fresh(size);
  // The stream's own blocks need no waiting.
  auto found =
      std::find_if(blocks.rbegin(), blocks.rend(), [&](const Block& b) { return b.stream == stream; });
  if (found == blocks.rend()) found = blocks.rbegin();
  const Block block = *found;
  blocks.erase(std::next(found).base());
  if (block.stream == stream) return block.data;
  if (event_ == nullptr)
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  // Later than the release, and so after it.
  check(cudaEventRecord(event_, block.stream), "cudaEventRecord");
  check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
  return block.data;
}

void MemoryPool::release(void* data, int64_t bytes, cudaStream_t stream) {
  const int64_t size = std::max(rounded_bytes(bytes), kAllocationUnit);
  const std::lock_guard lock(mutex_);
  free_[size].push_back({data, stream});
}

void* MemoryPool::fresh(int64_t size) {
  void* data = nullptr;
  cudaError_t status = cudaMalloc(&data, size_t(size));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it would come back with the next call
    free_all();
    status = cudaMalloc(&data, size_t(size));
  }
  if (status == cudaErrorMemoryAllocation) {
    size_t available = 0, total = 0;
    cudaGetLastError();
    cudaMemGetInfo(&available, &total);
    throw RunError(fmt::format(
        "out of GPU memory: {} were asked for, {} of {} are free, {} are in use by this rank; plan with a "
        "lower --memory, or for more devices",
        format_bytes(double(size)), format_bytes(double(available)), format_bytes(double(total)),
        format_bytes(double(reserved_))));
  }
  check(status, "cudaMalloc");
  reserved_ += size;
  return data;
}

void MemoryPool::free_all() {
  for (auto& [size, blocks] : free_) {
    for (const Block& block : blocks) {
      cudaFree(block.data);  // waits for the block's work
      reserved_ -= size;
    }
    blocks.clear();
  }
}

}  // namespace mpt::runtime::cuda
