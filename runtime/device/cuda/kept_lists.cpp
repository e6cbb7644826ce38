// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/kept_lists.h"

#include "runtime/device/cuda/launch.h"

namespace mpt::runtime::cuda {

KeptLists::~KeptLists() {
  for (const auto& [content, data] : lists_) cudaFree(data);
}

const void* KeptLists::find(const void* list, int64_t bytes, cudaStream_t stream) {
  if (bytes == 0) return list;
  const char* const begin = static_cast<const char*>(list);
  const std::lock_guard lock(mutex_);
  void*& data = lists_[std::vector<char>(begin, begin + bytes)];
  if (data != nullptr) return data;
  check(cudaMalloc(&data, size_t(bytes)), "cudaMalloc of a list");
  bytes_ += bytes;
  check(cudaMemcpyAsync(data, list, size_t(bytes), cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  // The next stream to read the list may be another thread's.
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return data;
}

}  // namespace mpt::runtime::cuda
