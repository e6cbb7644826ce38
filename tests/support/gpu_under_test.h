// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "runtime/device/backend.h"

namespace mpt::runtime {

/// A CUDA device, or null and why there is none. Interpreted on the CPU in programs that link
/// mpt::cuda_on_cpu, and of the real GPU in those that link mpt::cuda_under_test.
std::unique_ptr<Device> gpu_under_test(std::string& reason);

/// A backend whose ranks all share that device.
std::unique_ptr<Backend> backend_under_test(std::string& reason);

/// Whether attention may be cuDNN's, and products of 8 bits those of tensor cores.
bool has_tensor_cores_under_test();

}  // namespace mpt::runtime
