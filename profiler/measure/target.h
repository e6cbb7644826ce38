// SPDX-License-Identifier: Apache-2.0
#pragma once

// Target: the device to measure: cores of this machine or its GPUs, and the data type.

#include <memory>

#include "core/layout.h"
#include "runtime/device/backend.h"
#include "runtime/device/cpu/cpu_device.h"

namespace mpt::profiler {

struct Target {
  runtime::Backend* backend = nullptr;  // null: the CPU
  runtime::DataType type = runtime::DataType::float32;

  std::unique_ptr<runtime::Device> make_device(int number = 0) const {
    return backend == nullptr ? runtime::make_cpu_device() : backend->make_device(number, {});
  }
};

Target target_of(runtime::Backend* backend, Precision precision);

/// Fills with numbers of either sign below 1, in a pattern with a long period.
void fill(runtime::Device& device, runtime::DataType type, runtime::Buffer& buffer);

}  // namespace mpt::profiler
