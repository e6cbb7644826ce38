// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/stream_device.h"

#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "runtime/device/cuda/launch.h"

namespace mpt::runtime::cuda {

void fail(cudaError_t status, const char* call) {
  fail_run("{} failed: {}", call, cudaGetErrorString(status));
}

bool is_on_host(const void* data) {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  return attributes.type != cudaMemoryTypeDevice && attributes.type != cudaMemoryTypeManaged;
}

std::string bus_id_of(int index) {
  char id[32] = "";
  check(cudaDeviceGetPCIBusId(id, sizeof id, index), "cudaDeviceGetPCIBusId");
  return id;
}

namespace {

constexpr int64_t kStaged = 1 << 20;   // largest list, in bytes, that goes through pinned memory
constexpr int64_t kSpare = 256 << 20;  // left to the driver and libraries, for kernels that load later
constexpr double kSpin_s = 50e-6;      // a longer wait yields the core and calls the watch

}  // namespace

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

StreamDevice::StreamDevice(int index) : index_(index), streams_(index, pool_) {
  check(cudaSetDevice(index), "cudaSetDevice");
}

StreamDevice::~StreamDevice() { cudaSetDevice(index_); }

cudaStream_t StreamDevice::stream() {
  last_call_s_ = now_s();
  return streams_.mine();
}

void StreamDevice::reserve(int64_t bytes) {
  check(cudaSetDevice(index_), "cudaSetDevice");
  pool_.reserve(bytes, kSpare);
}

void* StreamDevice::allocate(int64_t bytes) {
  void* const data = pool_.allocate(MemoryUse::tensors, bytes, stream());
  const int64_t now = in_use_ += rounded_bytes(bytes);
  raise_to(peak_, now);
  return data;
}

void StreamDevice::release(void* data, int64_t bytes) {
  const int64_t now = in_use_ -= rounded_bytes(bytes);
  MPT_CHECK(now >= 0, "more memory released than allocated");
  pool_.release(MemoryUse::tensors, data, bytes, stream());
}

void* StreamDevice::allocate_host(int64_t bytes) {
  void* data = nullptr;
  check(cudaSetDevice(index_), "cudaSetDevice");
  check(cudaHostAlloc(&data, size_t(std::max(bytes, kAllocationUnit)), cudaHostAllocDefault),
        "cudaHostAlloc");
  return data;
}

void StreamDevice::release_host(void* data) { cudaFreeHost(data); }

void StreamDevice::copy(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  const bool from_host = is_on_host(from), with_host = from_host || is_on_host(to);
  if (from_host && !is_on_host(to) && bytes <= kStaged)
    return streams_.staging().send(from, bytes, to, stream(), [&](cudaEvent_t event) { wait_for(event); });
  // A copy of pageable memory would wait for the stream inside the driver, where no watch can end the wait.
  if (with_host) wait();
  check(cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyDefault, stream()), "cudaMemcpyAsync");
  if (with_host) wait();
}

void StreamDevice::zero(void* data, int64_t bytes) {
  if (bytes > 0) check(cudaMemsetAsync(data, 0, size_t(bytes), stream()), "cudaMemsetAsync");
}

void StreamDevice::upload(DataType type, const double* from, int64_t count, void* to) {
  if (type == DataType::float64) return copy(to, from, count * 8);
  const std::vector<float> floats(from, from + count);
  if (type == DataType::float32) return copy(to, floats.data(), count * 4);
  const Scratch wide(streams_, count * 4);
  copy(wide.data(), floats.data(), count * 4);
  convert(DataType::float32, wide.data(), type, to, count);
}

void StreamDevice::download(DataType type, const void* from, int64_t count, double* to) {
  if (type == DataType::float64) return copy(to, from, count * 8);
  std::vector<float> floats(static_cast<size_t>(count));
  if (type == DataType::float32) {
    copy(floats.data(), from, count * 4);
  } else {
    const Scratch wide(streams_, count * 4);
    convert(type, from, DataType::float32, wide.data(), count);
    copy(floats.data(), wide.data(), count * 4);
  }
  std::copy(floats.begin(), floats.end(), to);
}

void StreamDevice::move(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from)
    check(cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyDefault, stream()), "cudaMemcpyAsync");
}

std::unique_ptr<WorkMarks> StreamDevice::make_marks(int64_t count) { return make_work_marks(*this, count); }

void StreamDevice::wait_for(cudaEvent_t event) {
  poll([event] { return cudaEventQuery(event); });
}

void StreamDevice::wait() {
  poll([stream = stream()] { return cudaStreamQuery(stream); });
}

double StreamDevice::read(const double* from) {
  double* const answer = streams_.staging().answer();
  check(cudaMemcpyAsync(answer, from, sizeof *answer, cudaMemcpyDeviceToHost, stream()), "cudaMemcpyAsync");
  wait();
  return *answer;
}

template <class Query>
void StreamDevice::poll(Query&& query) {
  check(cudaSetDevice(index_), "cudaSetDevice");
  const double start = now_s();
  while (true) {
    const cudaError_t status = query();
    if (status == cudaSuccess) return;
    if (status != cudaErrorNotReady) fail(status, "work on the GPU");
    const double waited_s = (last_call_s_ = now_s()) - start;
    if (waited_s < kSpin_s) continue;
    if (watch_) watch_(waited_s);
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

StreamDevice::Numbers::Numbers(StreamDevice& device, const int32_t* list, int64_t count) : data_(list) {
  if (count == 0 || !is_on_host(list)) return;
  const int64_t bytes = count * int64_t(sizeof(int32_t));
  copy_ = std::make_unique<Scratch>(device.streams_, bytes);
  device.streams_.staging().send(list, bytes, copy_->data(), device.stream(),
                                 [&](cudaEvent_t event) { device.wait_for(event); });
  data_ = as<int32_t>(copy_->data());
}

}  // namespace mpt::runtime::cuda
