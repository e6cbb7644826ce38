// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/staging.h"

#include <cstring>

#include "runtime/device/cuda/launch.h"

namespace mpt::runtime::cuda {
namespace {

constexpr int64_t kAnswerBytes = 256;  // the slots after it are aligned

}  // namespace

Staging::~Staging() {
  for (const cudaEvent_t sent : sent_)
    if (sent != nullptr) cudaEventDestroy(sent);
  if (room_ != nullptr) cudaFreeHost(room_);
}

char* Staging::room() {
  if (room_ != nullptr) return room_;
  for (cudaEvent_t& sent : sent_)
    check(cudaEventCreateWithFlags(&sent, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  void* data = nullptr;
  const int64_t bytes = kAnswerBytes + int64_t(sent_.size()) * slot_bytes_;
  check(cudaHostAlloc(&data, size_t(bytes), cudaHostAllocDefault), "cudaHostAlloc");
  return room_ = static_cast<char*>(data);
}

void Staging::send(const void* list, int64_t bytes, void* to, cudaStream_t stream,
                   const std::function<void(cudaEvent_t)>& wait) {
  char* const slots = room() + kAnswerBytes;
  for (int64_t done = 0; done < bytes; done += slot_bytes_) {
    const size_t number = next_++ % sent_.size();
    char* const slot = slots + int64_t(number) * slot_bytes_;
    const auto piece = size_t(std::min(slot_bytes_, bytes - done));
    wait(sent_[number]);  // never recorded: it does not wait
    std::memcpy(slot, static_cast<const char*>(list) + done, piece);
    check(cudaMemcpyAsync(static_cast<char*>(to) + done, slot, piece, cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync");
    check(cudaEventRecord(sent_[number], stream), "cudaEventRecord");
  }
}

double* Staging::answer() { return reinterpret_cast<double*>(room()); }

}  // namespace mpt::runtime::cuda
