// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/call_streams.h"

#include <algorithm>

#include "base/allocation.h"
#include "base/error.h"
#include "runtime/device/cuda/launch.h"

namespace mpt::runtime::cuda {

void raise_to(std::atomic<int64_t>& highest, int64_t value) {
  int64_t before = highest.load();
  while (before < value && !highest.compare_exchange_weak(before, value)) {
  }
}

void CallStreams::finish() {
  cudaSetDevice(device_);
  for (const Lane* lane : lanes_.all()) cudaStreamSynchronize(lane->stream);
}

CallStreams::~CallStreams() {
  finish();
  for (const Lane* lane : lanes_.all()) {
    for (const Room& room : lane->rooms)
      pool_.release(MemoryUse::scratch, room.data, room.bytes, lane->stream);
    cudaStreamDestroy(lane->stream);
  }
}

std::unique_ptr<CallStreams::Lane> CallStreams::make_lane() {
  auto made = std::make_unique<Lane>();
  check(cudaStreamCreateWithFlags(&made->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return made;
}

CallStreams::Lane& CallStreams::lane() {
  check(cudaSetDevice(device_), "cudaSetDevice");
  return lanes_.mine();
}

cudaGraphExec_t CallStreams::capture(const std::function<void()>& work) {
  Lane& own = lane();
  if (own.room().bytes < own.most_scratch) {
    own.rooms.push_back({pool_.allocate(MemoryUse::scratch, own.most_scratch, own.stream), own.most_scratch});
    room_bytes_ += rounded_bytes(own.most_scratch);
  }
  check(cudaStreamBeginCapture(own.stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  own.capturing = true;
  cudaGraph_t graph = nullptr;
  try {
    work();
  } catch (...) {
    own.capturing = false;
    if (cudaStreamEndCapture(own.stream, &graph) == cudaSuccess) cudaGraphDestroy(graph);
    cudaGetLastError();  // it would come back with the next call
    throw;
  }
  own.capturing = false;
  check(cudaStreamEndCapture(own.stream, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t made = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&made, graph, 0);
  cudaGraphDestroy(graph);
  check(status, "cudaGraphInstantiate");
  return made;
}

Scratch::Scratch(CallStreams& streams, int64_t bytes)
    : streams_(streams), lane_(streams.lane()), bytes_(bytes), captured_(lane_.capturing) {
  const int64_t before = lane_.scratch;
  lane_.scratch += rounded_bytes(bytes);
  if (captured_) {
    MPT_CHECK(lane_.scratch <= lane_.room().bytes, "a captured call needs more room than it did before");
    data_ = static_cast<char*>(lane_.room().data) + before;
  } else {
    data_ = streams.pool_.allocate(MemoryUse::scratch, bytes, lane_.stream);
    lane_.most_scratch = std::max(lane_.most_scratch, lane_.scratch);
    raise_to(streams.scratch_peak_, streams.scratch_ += rounded_bytes(bytes));
  }
}

Scratch::~Scratch() {
  lane_.scratch -= rounded_bytes(bytes_);
  if (captured_) return;
  streams_.scratch_ -= rounded_bytes(bytes_);
  streams_.pool_.release(MemoryUse::scratch, data_, bytes_, lane_.stream);
}

}  // namespace mpt::runtime::cuda
