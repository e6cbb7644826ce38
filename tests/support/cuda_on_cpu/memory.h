// SPDX-License-Identifier: Apache-2.0
#pragma once

// The memory of the simulated GPUs, and pinned memory: one stretch of addresses, a part for each GPU and the
// last for pinned memory. The host cannot touch a GPU's part: it is accessible while work of a stream runs
// only, so a device pointer that the host dereferences is a crash, as with a GPU.

#include <cuda_runtime.h>

#include <cstdint>
#include <optional>

namespace cuda_on_cpu {

constexpr int kGpus = 16;
constexpr int kPinned = kGpus;                      // the part of pinned memory
constexpr uint64_t kPartBytes = uint64_t{1} << 37;  // addresses; nobody has so much
// Of an H100 SXM: what nvidia-smi shows, and of it what the driver keeps to itself, and a process's context
// with its modules.
constexpr uint64_t kGpuBytes = uint64_t{81'559} << 20;
constexpr uint64_t kContextBytes = uint64_t{1'130} << 20;
constexpr uint64_t kArenaBytes = kPartBytes * (kGpus + 1);

/// The first address of the stretch.
char* arena();
inline bool is_in_arena(const void* data) {
  return uint64_t(static_cast<const char*>(data) - arena()) < kArenaBytes;
}
inline int part_of(const void* data) {
  return int(uint64_t(static_cast<const char*>(data) - arena()) / kPartBytes);
}

/// Calls of take() so far.
int64_t allocations();
/// Fresh memory holds NaN in every type, for a GPU's holds anything. Null: there is no more.
void* take(int part, size_t bytes);
/// From now on allocations of a part take so many bytes at most; 0: what an H100 has.
void limit(int part, uint64_t bytes);
/// Bytes that allocations have, and may have.
struct Fill {
  uint64_t used = 0, limit = 0;
};
Fill fill(int part);
/// False: there is no such block in this part.
bool give_back(int part, void* data);
/// Bytes left in the block that holds `data`; empty where none does.
std::optional<size_t> bytes_from(const void* data);

/// While one lives, memory of GPUs is accessible.
class Access {
 public:
  Access();
  ~Access();
  Access(const Access&) = delete;
};

}  // namespace cuda_on_cpu
