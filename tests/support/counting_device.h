// SPDX-License-Identifier: Apache-2.0
#pragma once

// CountingDevice: computes nothing and counts what the GPU's kernels would do for a dense layer: launches,
// bytes and FLOPs of each kernel by its name in runtime/device/cuda. Bytes are those that must move: each
// operand once. tests/runtime/device/counting_device_test.cpp compares them with the kernels' own accesses.
// It has no memory, so models of any size can be counted. Other operators than those of dense layers are
// refused.

#include <map>
#include <memory>
#include <string>

#include "runtime/device/device.h"

namespace mpt::test {

struct KernelCount {
  int64_t launches = 0;
  int64_t read_bytes = 0, written_bytes = 0;
  double flop = 0.0;
};
using KernelCounts = std::map<std::string, KernelCount>;

/// Where the memory of a counting device comes from, for who counts that, too.
class CountedMemory {
 public:
  virtual ~CountedMemory() = default;
  virtual void reserve(int64_t bytes) = 0;
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* data, int64_t bytes) = 0;
  /// Room of one call.
  virtual void call(int64_t bytes) = 0;
};

/// `counts` and `memory` outlive the device. Without `memory` there is no end of it.
std::unique_ptr<runtime::Device> make_counting_device(KernelCounts& counts, CountedMemory* memory = nullptr);

}  // namespace mpt::test
