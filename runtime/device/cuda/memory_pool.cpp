// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/memory_pool.h"

#include <algorithm>
#include <functional>
#include <iterator>

#include "base/allocation.h"
#include "base/error.h"
#include "base/quantity.h"
#include "runtime/device/cuda/launch.h"

namespace mpt::runtime::cuda {
namespace {

// As cudaMalloc aligns.
int64_t length_in_reserve(int64_t size) {
  constexpr int64_t kUnit = 256;
  return (size + kUnit - 1) / kUnit * kUnit;
}

}  // namespace

MemoryPool::~MemoryPool() {
  held_.clear();
  free_all();
  if (reserve_ != nullptr) cudaFree(reserve_);
  if (event_ != nullptr) cudaEventDestroy(event_);
}

void* MemoryPool::allocate(MemoryUse use, int64_t bytes, cudaStream_t stream) {
  const int64_t size = std::max(rounded_bytes(bytes), kAllocationUnit);
  const std::lock_guard lock(mutex_);
  const std::optional<Block> known = take(use, size, stream);
  if (!known) return fresh(size);
  const Block& block = *known;
  if (block.stream == stream) return block.data;
  if (event_ == nullptr)
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  // Later than the release, and so after it.
  check(cudaEventRecord(event_, block.stream), "cudaEventRecord");
  check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
  return block.data;
}

std::optional<MemoryPool::Block> MemoryPool::take(MemoryUse use, int64_t size, cudaStream_t stream) {
  // Sizes that routing decides on never come again: large blocks serve what is nearly as large.
  constexpr int64_t kLarge = 1 << 20;
  const int64_t largest = size < kLarge ? size : size + size / 8;
  for (auto at = free_.lower_bound({use, size}); at != free_.end() && at->first <= std::pair(use, largest);
       ++at) {
    std::vector<Block>& blocks = at->second;
    // The stream's own blocks need no waiting.
    auto found =
        std::find_if(blocks.begin(), blocks.end(), [&](const Block& b) { return b.stream == stream; });
    if (found == blocks.end())
      found = std::find_if(blocks.begin(), blocks.end(),
                           [&](const Block& b) { return !held_.contains(b.stream); });
    if (found == blocks.end()) continue;
    const Block block = *found;
    blocks.erase(found);
    if (at->first.second > size) larger_[block.data] = at->first.second;
    return block;
  }
  return std::nullopt;
}

void MemoryPool::release(MemoryUse use, void* data, int64_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  // It may be larger than what was asked for.
  const auto larger = larger_.find(data);
  const int64_t size =
      larger == larger_.end() ? std::max(rounded_bytes(bytes), kAllocationUnit) : larger->second;
  if (larger != larger_.end()) larger_.erase(larger);
  std::vector<Block>& blocks = free_[{use, size}];
  const auto after = std::upper_bound(blocks.begin(), blocks.end(), data,
                                      [](const void* d, const Block& b) { return std::less<>()(d, b.data); });
  blocks.insert(after, {data, stream});
}

void MemoryPool::hold(cudaStream_t stream, bool held) {
  const std::lock_guard lock(mutex_);
  if (held) {
    held_.insert(stream);
  } else {
    held_.erase(stream);
  }
}

void MemoryPool::reserve(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  void* data = nullptr;
  if (reserve_ != nullptr || bytes <= 0) return;
  if (cudaMalloc(&data, size_t(bytes)) != cudaSuccess) {
    cudaGetLastError();  // it would come back with the next call
    return;
  }
  reserve_ = static_cast<char*>(data);
  reserve_bytes_ = reserved_ = bytes;
  gaps_ = {{reserve_, bytes}};
}

bool MemoryPool::is_reserved(const void* data) const {
  const auto* const at = static_cast<const char*>(data);
  return reserve_ != nullptr && !std::less<>()(at, static_cast<const char*>(reserve_)) &&
         std::less<>()(at, static_cast<const char*>(reserve_ + reserve_bytes_));
}

// The first gap that is long enough; null: there is none.
void* MemoryPool::cut(int64_t size) {
  const int64_t length = length_in_reserve(size);
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    if (gap->second < length) continue;
    const auto [begin, all] = *gap;
    gaps_.erase(gap);
    if (all > length) gaps_[begin + length] = all - length;
    return begin;
  }
  return nullptr;
}

void MemoryPool::give_back(char* data, int64_t size) {
  int64_t length = length_in_reserve(size);
  auto after = gaps_.lower_bound(data);
  if (after != gaps_.end() && after->first == data + length) {
    length += after->second;
    after = gaps_.erase(after);
  }
  if (after != gaps_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == data) {
      before->second += length;
      return;
    }
  }
  gaps_[data] = length;
}

void* MemoryPool::fresh(int64_t size) {
  if (void* const data = cut(size)) return data;
  void* data = nullptr;
  cudaError_t status = cudaMalloc(&data, size_t(size));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    free_all();
    if ((data = cut(size)) != nullptr) return data;
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
  cudaDeviceSynchronize();  // another stream may get their memory
  for (auto& [key, blocks] : free_) {
    std::erase_if(blocks, [&, size = key.second](const Block& block) {
      if (held_.contains(block.stream)) return false;
      if (is_reserved(block.data)) {
        give_back(static_cast<char*>(block.data), size);
        return true;
      }
      cudaFree(block.data);
      reserved_ -= size;
      return true;
    });
  }
}

}  // namespace mpt::runtime::cuda
