// SPDX-License-Identifier: Apache-2.0

// Calls for memory and copies.

#include <algorithm>
#include <cstring>
#include <vector>

#include "memory.h"
#include "streams.h"

namespace cuda_on_cpu {
namespace {

// Copies of up to this from pageable memory are read before the call returns; larger ones may wait for the
// stream (CUDA runtime API, "API synchronization behavior").
constexpr size_t kStaged = 64 << 10;

bool is_pageable(const void* data) { return !is_in_arena(data); }

int own_gpu() {
  int gpu = 0;
  cudaGetDevice(&gpu);
  return gpu;
}

// May wait for the GPU's work, as the first launch of a kernel and the end of memory do ("Implicit
// Synchronization" in CUDA's programming guide names allocations of device and pinned memory).
cudaError_t allocate(void** data, size_t bytes, int part, cudaError_t none) {
  if (const cudaError_t status = drain_gpu(own_gpu()); status != cudaSuccess) return status;
  *data = take(part, bytes);
  return *data == nullptr ? none : cudaSuccess;
}

// Waits for the GPU's work (the same page).
cudaError_t release(void* data, int part) {
  if (data == nullptr) return cudaSuccess;
  if (is_pageable(data) || (part != kPinned && part_of(data) == kPinned)) return cudaErrorInvalidValue;
  // After a failure there is nothing to wait for.
  drain_gpu(part == kPinned ? own_gpu() : part_of(data));
  return give_back(part_of(data), data) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t copy(cudaStream_t stream, void* to, const void* from, size_t bytes) {
  return submit(
      stream,
      [=] {
        reads(from, bytes);
        writes(to, bytes);
        std::memmove(to, from, bytes);
        return cudaSuccess;
      },
      "a copy");
}

}  // namespace

bool kernel_may_have(cudaStream_t stream, const void* pointer) {
  if (pointer == nullptr) return true;
  if (is_pageable(pointer)) return false;
  return part_of(pointer) == kPinned || part_of(pointer) == stream->stream.gpu;
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cudaError_t cudaDeviceSynchronize() { return drain_gpu(own_gpu()); }
cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaMalloc(void** data, size_t bytes) {
  return allocate(data, bytes, own_gpu(), cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* data) { return release(data, own_gpu()); }
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  return allocate(data, bytes, kPinned, cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* data) { return release(data, kPinned); }
cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  const Fill now = fill(own_gpu());
  *total = now.limit;
  *available = now.limit - std::min(now.used, now.limit);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  attributes->type = is_pageable(data)          ? cudaMemoryTypeUnregistered
                     : part_of(data) == kPinned ? cudaMemoryTypeHost
                                                : cudaMemoryTypeDevice;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (!is_pageable(to) && !is_pageable(from)) return copy(stream, to, from, bytes);
  if (!is_pageable(to) && bytes <= kStaged) {
    const auto* const begin = static_cast<const char*>(from);
    return submit(
        stream,
        [to, staged = std::vector<char>(begin, begin + bytes)] {
          writes(to, staged.size());
          std::memcpy(to, staged.data(), staged.size());
          return cudaSuccess;
        },
        "a copy");
  }
  if (const cudaError_t status = copy(stream, to, from, bytes); status != cudaSuccess) return status;
  return drain(stream->stream);
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  if (is_pageable(data)) return cudaErrorInvalidValue;
  return submit(
      stream,
      [=] {
        writes(data, bytes);
        std::memset(data, value, bytes);
        return cudaSuccess;
      },
      "setting memory");
}
