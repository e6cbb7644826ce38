// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fields.h"

namespace mpt {

/// One GPU of the machine, as the driver shows it.
struct GpuDescription {
  std::string bus_id;
  int64_t memory_bytes = 0;
  int64_t free_bytes = 0;
  /// By GPU: the driver's rank of the direct path to it, 0 the fastest (NVLink before PCIe). -1 for the GPU
  /// itself, and for GPUs with memory that it does not reach directly.
  std::vector<int64_t> peers;
  bool operator==(const GpuDescription&) const = default;

  static void describe(auto& v) {
    using T = GpuDescription;
    v.field("bus_id", &T::bus_id, "place on the PCI bus");
    v.field("memory_bytes", &T::memory_bytes, "memory of the GPU", between(0, 1e16));
    v.field("free_bytes", &T::free_bytes, "what of it was free", between(0, 1e16));
    v.field("peers", &T::peers, "by GPU: rank of the direct way there, 0 the fastest; -1: none");
  }
};

}  // namespace mpt
