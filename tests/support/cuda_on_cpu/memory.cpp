// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "races.h"

namespace cuda_on_cpu {
namespace {

constexpr size_t kAlignment = 256;  // what cudaMalloc promises
// New memory is no numbers, up to here: workspaces of cuBLASLt are larger, and each page in use makes a
// change of protection slower.
constexpr size_t kFilled = 1 << 20;

struct Part {
  std::map<uint64_t, uint64_t> used, free;  // offset in the part: bytes
  uint64_t limit = kGpuBytes - kContextBytes, bytes = 0;
  Part() { free[0] = kPartBytes; }
};

struct Memory {
  char* const base = [] {
    void* const made =
        mmap(nullptr, kArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) std::abort();
    mprotect(static_cast<char*>(made) + kPinned * kPartBytes, kPartBytes, PROT_READ | PROT_WRITE);
    return static_cast<char*>(made);
  }();
  std::mutex mutex;
  int accesses = 0;
  int64_t allocations = 0;
  Part parts[kGpus + 1];
};
Memory& memory() {
  static Memory memory;
  return memory;
}

void protect(int protection) { mprotect(memory().base, kPinned * kPartBytes, protection); }

}  // namespace

char* arena() {
  static char* const base = memory().base;
  return base;
}

void* take(int number, size_t bytes) {
  const uint64_t size = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  const Access access;
  const std::lock_guard lock(memory().mutex);
  ++memory().allocations;
  Part& part = memory().parts[number];
  if (part.bytes + size > part.limit) return nullptr;
  for (auto at = part.free.begin(); at != part.free.end(); ++at) {
    const auto [offset, length] = *at;
    if (length < size) continue;
    part.free.erase(at);
    if (length > size) part.free[offset + size] = length - size;
    part.used[offset] = bytes;
    part.bytes += size;
    char* const data = arena() + number * kPartBytes + offset;
    forget(data, size);
    std::memset(data, 0xff, std::min(bytes, kFilled));
    return data;
  }
  return nullptr;
}

int64_t allocations() {
  const std::lock_guard lock(memory().mutex);
  return memory().allocations;
}

void limit(int number, uint64_t bytes) {
  const std::lock_guard lock(memory().mutex);
  memory().parts[number].limit = bytes > 0 ? bytes : kGpuBytes - kContextBytes;
}

Fill fill(int number) {
  const std::lock_guard lock(memory().mutex);
  return {memory().parts[number].bytes, memory().parts[number].limit};
}

bool give_back(int number, void* data) {
  const std::lock_guard lock(memory().mutex);
  Part& part = memory().parts[number];
  const uint64_t offset = uint64_t(static_cast<char*>(data) - arena()) - number * kPartBytes;
  const auto found = part.used.find(offset);
  if (found == part.used.end()) return false;
  uint64_t begin = offset;
  uint64_t end = offset + (std::max<uint64_t>(found->second, 1) + kAlignment - 1) / kAlignment * kAlignment;
  part.used.erase(found);
  part.bytes -= end - begin;
  if (const auto after = part.free.find(end); after != part.free.end()) {
    end += after->second;
    part.free.erase(after);
  }
  if (auto before = part.free.lower_bound(begin); before != part.free.begin()) {
    --before;
    if (before->first + before->second == begin) {
      begin = before->first;
      part.free.erase(before);
    }
  }
  part.free[begin] = end - begin;
  return true;
}

std::optional<size_t> bytes_from(const void* data) {
  if (!is_in_arena(data)) return std::nullopt;
  const std::lock_guard lock(memory().mutex);
  const int number = part_of(data);
  const uint64_t offset = uint64_t(static_cast<const char*>(data) - arena()) - number * kPartBytes;
  const auto& used = memory().parts[number].used;
  auto after = used.upper_bound(offset);
  if (after == used.begin()) return std::nullopt;
  --after;
  if (offset >= after->first + after->second) return std::nullopt;
  return after->first + after->second - offset;
}

Access::Access() {
  const std::lock_guard lock(memory().mutex);
  if (memory().accesses++ == 0) protect(PROT_READ | PROT_WRITE);
}
Access::~Access() {
  const std::lock_guard lock(memory().mutex);
  if (--memory().accesses == 0) protect(PROT_NONE);
}

}  // namespace cuda_on_cpu
