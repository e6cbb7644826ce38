// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/memory_pool.h"

#include <functional>
#include <iterator>

#include "base/allocation.h"
#include "base/error.h"
#include "base/quantity.h"
#include "runtime/device/cuda/launch.h"

namespace mpt::runtime::cuda {
namespace {

constexpr int64_t kReserveUnit = 256;  // cudaMalloc's alignment

int64_t length_in_reserve(int64_t size) { return (size + kReserveUnit - 1) / kReserveUnit * kReserveUnit; }

}  // namespace

MemoryPool::~MemoryPool() {
  free_all();
  if (reserve_ != nullptr) cudaFree(reserve_);
  if (event_ != nullptr) cudaEventDestroy(event_);
}

void* MemoryPool::allocate(MemoryUse use, int64_t bytes, cudaStream_t stream) {
  const int64_t size = std::max(rounded_bytes(bytes), kAllocationUnit);
  const std::lock_guard lock(mutex_);
  void* data = use == MemoryUse::scratch ? kept(use, size, stream) : of_reserve(size, stream);
  if (data == nullptr) data = use == MemoryUse::scratch ? of_reserve(size, stream) : kept(use, size, stream);
  return data != nullptr ? data : fresh(size, stream);
}

// Recorded later than the release, so it covers the work before the release.
void MemoryPool::wait_for(cudaStream_t user, cudaStream_t stream) {
  if (user == stream) return;
  if (event_ == nullptr)
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  check(cudaEventRecord(event_, user), "cudaEventRecord");
  check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
}

void* MemoryPool::kept(MemoryUse use, int64_t size, cudaStream_t stream) {
  // Sizes that depend on routing do not recur exactly, so a large block also serves slightly smaller sizes.
  constexpr int64_t kLarge = 1 << 20;
  const int64_t largest = size < kLarge ? size : size + size / 8;
  for (auto at = free_.lower_bound({use, size}); at != free_.end() && at->first <= std::pair(use, largest);
       ++at) {
    std::vector<Block>& blocks = at->second;
    if (blocks.empty()) continue;
    // The stream's own blocks need no wait.
    auto found =
        std::find_if(blocks.begin(), blocks.end(), [&](const Block& b) { return b.stream == stream; });
    if (found == blocks.end()) found = blocks.begin();
    const Block block = *found;
    blocks.erase(found);
    if (at->first.second > size) larger_[block.data] = at->first.second;
    wait_for(block.stream, stream);
    return block.data;
  }
  return nullptr;
}

// The smallest gap that is long enough. Gaps without a wait come first, and of equal ones the first. Null:
// there is none.
void* MemoryPool::of_reserve(int64_t size, cudaStream_t stream) {
  const int64_t length = length_in_reserve(size);
  auto best = gaps_.end();
  std::pair<bool, int64_t> best_rank;
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    const auto& [all, users] = gap->second;
    if (all < length) continue;
    const bool waits =
        std::any_of(users.begin(), users.end(), [&](cudaStream_t user) { return user != stream; });
    if (best != gaps_.end() && best_rank <= std::pair(waits, all)) continue;
    best = gap;
    best_rank = {waits, all};
  }
  if (best == gaps_.end()) return nullptr;
  const auto [begin, gap] = *best;
  gaps_.erase(best);
  if (gap.length > length) gaps_[begin + length] = {gap.length - length, gap.users};
  for (const cudaStream_t user : gap.users) wait_for(user, stream);
  return begin;
}

void MemoryPool::release(MemoryUse use, void* data, int64_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  if (use == MemoryUse::tensors && is_reserved(data))
    return give_back(static_cast<char*>(data), std::max(rounded_bytes(bytes), kAllocationUnit), stream);
  // It may be larger than requested.
  const auto larger = larger_.find(data);
  const int64_t size =
      larger == larger_.end() ? std::max(rounded_bytes(bytes), kAllocationUnit) : larger->second;
  if (larger != larger_.end()) larger_.erase(larger);
  std::vector<Block>& blocks = free_[{use, size}];
  const auto after = std::upper_bound(blocks.begin(), blocks.end(), data,
                                      [](const void* d, const Block& b) { return std::less<>()(d, b.data); });
  blocks.insert(after, {data, stream});
}

void MemoryPool::reserve(int64_t bytes, int64_t spare_bytes) {
  const std::lock_guard lock(mutex_);
  size_t available = 0, total = 0;
  check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
  bytes = std::min(bytes, int64_t(available) - spare_bytes) / kReserveUnit * kReserveUnit;
  void* data = nullptr;
  if (reserve_ != nullptr || bytes <= 0) return;
  if (cudaMalloc(&data, size_t(bytes)) != cudaSuccess) {
    cudaGetLastError();  // clears the error, which the next call would report
    return;
  }
  reserve_ = static_cast<char*>(data);
  reserve_bytes_ = reserved_ = bytes;
  gaps_ = {{reserve_, {bytes, {}}}};
}

bool MemoryPool::is_reserved(const void* data) const {
  const auto* const at = static_cast<const char*>(data);
  return reserve_ != nullptr && !std::less<>()(at, static_cast<const char*>(reserve_)) &&
         std::less<>()(at, static_cast<const char*>(reserve_ + reserve_bytes_));
}

void MemoryPool::give_back(char* data, int64_t size, cudaStream_t stream) {
  Gap gap{length_in_reserve(size), {stream}};
  const auto join = [&](Gaps::iterator other) {
    gap.length += other->second.length;
    for (const cudaStream_t user : other->second.users)
      if (std::find(gap.users.begin(), gap.users.end(), user) == gap.users.end()) gap.users.push_back(user);
    return gaps_.erase(other);
  };
  auto after = gaps_.lower_bound(data);
  if (after != gaps_.end() && after->first == data + gap.length) after = join(after);
  if (after != gaps_.begin()) {
    if (const auto before = std::prev(after); before->first + before->second.length == data) {
      data = before->first;
      join(before);
    }
  }
  gaps_[data] = std::move(gap);
}

void* MemoryPool::fresh(int64_t size, cudaStream_t stream) {
  void* data = nullptr;
  cudaError_t status = cudaMalloc(&data, size_t(size));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    free_all();
    if ((data = of_reserve(size, stream)) != nullptr) return data;
    status = cudaMalloc(&data, size_t(size));
  }
  if (status == cudaErrorMemoryAllocation) {
    size_t available = 0, total = 0;
    cudaGetLastError();
    cudaMemGetInfo(&available, &total);
    fail_run(
        "out of GPU memory: {} were asked for, {} of {} are free, {} are in use by this rank; plan with a "
        "lower --memory, or for more devices",
        format_bytes(double(size)), format_bytes(double(available)), format_bytes(double(total)),
        format_bytes(double(reserved_)));
  }
  check(status, "cudaMalloc");
  reserved_ += size;
  return data;
}

void MemoryPool::free_all() {
  cudaDeviceSynchronize();  // another stream may get their memory
  for (auto& [key, blocks] : free_) {
    for (const Block& block : blocks) {
      if (is_reserved(block.data)) {
        give_back(static_cast<char*>(block.data), key.second, block.stream);
        continue;
      }
      cudaFree(block.data);
      reserved_ -= key.second;
    }
    blocks.clear();
  }
}

}  // namespace mpt::runtime::cuda
