// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/call_streams.h"

#include "base/allocation.h"
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
  for (const Lane* lane : lanes_.all()) cudaStreamDestroy(lane->stream);
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

Scratch::Scratch(CallStreams& streams, int64_t bytes)
    : streams_(streams),
      stream_(streams.mine()),
      bytes_(bytes),
      data_(streams.pool_.allocate(MemoryUse::scratch, bytes, stream_)) {
  raise_to(streams.scratch_peak_, streams.scratch_ += rounded_bytes(bytes));
}

Scratch::~Scratch() {
  streams_.scratch_ -= rounded_bytes(bytes_);
  streams_.pool_.release(MemoryUse::scratch, data_, bytes_, stream_);
}

}  // namespace mpt::runtime::cuda
