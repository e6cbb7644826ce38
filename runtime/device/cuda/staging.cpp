// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "runtime/device/cuda/launch.h"

namespace mpt::runtime::cuda {

Staging::~Staging() {
  for (const Slot& slot : slots_) {
    if (slot.sent != nullptr) cudaEventDestroy(slot.sent);
    if (slot.data != nullptr) cudaFreeHost(slot.data);
  }
  if (answer_ != nullptr) cudaFreeHost(answer_);
}

void Staging::send(const void* list, int64_t bytes, void* to, cudaStream_t stream,
                   const std::function<void(cudaEvent_t)>& wait) {
  Slot& slot = slots_[next_++ % slots_.size()];
  if (slot.sent == nullptr) {
    check(cudaEventCreateWithFlags(&slot.sent, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  } else {
    wait(slot.sent);
  }
  constexpr int64_t kSmallest = 64 << 10;
  if (slot.bytes < bytes) {
    const int64_t room = std::max(bytes, kSmallest);
    if (slot.data != nullptr) check(cudaFreeHost(slot.data), "cudaFreeHost");
    slot = {nullptr, 0, slot.sent};
    check(cudaHostAlloc(&slot.data, size_t(room), cudaHostAllocDefault), "cudaHostAlloc");
    slot.bytes = room;
  }
  std::memcpy(slot.data, list, size_t(bytes));
  check(cudaMemcpyAsync(to, slot.data, size_t(bytes), cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  check(cudaEventRecord(slot.sent, stream), "cudaEventRecord");
}

double* Staging::answer() {
  if (answer_ == nullptr) {
    void* data = nullptr;
    check(cudaHostAlloc(&data, sizeof *answer_, cudaHostAllocDefault), "cudaHostAlloc");
    answer_ = static_cast<double*>(data);
  }
  return answer_;
}

}  // namespace mpt::runtime::cuda
