// SPDX-License-Identifier: Apache-2.0

// Calls for memory, copies and graphs.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "memory.h"
#include "streams.h"

namespace cuda_on_cpu {
namespace {

std::atomic<int64_t> launches{0};
// What CUDA's guide forbids while a stream is captured ("Stream Capture: Prohibited and Unhandled
// Operations") and what the runtime's reference says of cudaStreamBeginCapture() and
// cudaThreadExchangeStreamCaptureMode():
//  - The thread that captures calls nothing that may wait for the GPU, such as cudaMalloc and cudaFree.
//  - Nobody asks the stream, or an event recorded in it, whether it is done.
//  - The stream waits for events of its capture alone, and nobody else waits for them.
//  - A call like that also loses the capture: the error comes once more at its end, which gives no graph.
//  - The thread that began it ends it, and a stream is captured once at a time.
// Copies of pageable memory wait, and so are refused.
thread_local cudaStream_t captures = nullptr;

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
  if (captures != nullptr) return invalidate(captures);
  if (const cudaError_t status = drain_gpu(own_gpu()); status != cudaSuccess) return status;
  *data = take(part, bytes);
  return *data == nullptr ? none : cudaSuccess;
}

// Waits for the GPU's work (the same page).
cudaError_t release(void* data, int part) {
  if (data == nullptr) return cudaSuccess;
  if (captures != nullptr) return invalidate(captures);
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
int64_t graph_launches() { return launches; }

cudaError_t invalidate(cudaStream_t stream, cudaError_t error) {
  stream->captured->invalid = true;
  return error;
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cudaError_t cudaDeviceSynchronize() {
  return captures != nullptr ? invalidate(captures) : drain_gpu(own_gpu());
}
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
  if (stream->captured) return invalidate(stream);
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

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->captured || captures != nullptr) return cudaErrorIllegalState;
  stream->captured = std::make_unique<FakeGraph>();
  stream->captured->thread = std::this_thread::get_id();
  captures = stream;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream->captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!stream->captured) return cudaErrorIllegalState;
  if (stream->captured->thread != std::this_thread::get_id()) {
    stream->captured->invalid = true;
    return cudaErrorStreamCaptureWrongThread;
  }
  captures = nullptr;
  const std::unique_ptr<FakeGraph> made = std::move(stream->captured);
  if (made->invalid) return cudaErrorStreamCaptureInvalidated;
  *graph = new FakeGraph(*made);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  if (graph == nullptr) return cudaErrorInvalidValue;
  // It has memory of the GPU for the nodes.
  if (const cudaError_t status = drain_gpu(own_gpu()); status != cudaSuccess) return status;
  *made = new FakeGraph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return cudaGraphDestroy(graph); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  ++launches;
  for (const FakeGraph::Node& node : graph->nodes) {
    if (const cudaError_t status = submit(stream, node.run, node.name, node.function); status != cudaSuccess)
      return status;
  }
  return cudaSuccess;
}
