// SPDX-License-Identifier: Apache-2.0
#pragma once

// Lists that recur in every layer of every step, such as positions. They are found by their content, and sent
// to the device only once.

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace mpt::runtime::cuda {

class KeptLists {
 public:
  KeptLists() = default;
  KeptLists(const KeptLists&) = delete;
  KeptLists& operator=(const KeptLists&) = delete;
  ~KeptLists();

  /// The list of `bytes` at `list` on the current device; sent in `stream` if it is not there yet. An empty
  /// list gives `list` itself.
  const void* find(const void* list, int64_t bytes, cudaStream_t stream);
  int64_t bytes() const { return bytes_; }

 private:
  std::mutex mutex_;
  std::map<std::vector<char>, void*> lists_;
  std::atomic<int64_t> bytes_{0};
};

}  // namespace mpt::runtime::cuda
