// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu_under_test.h"
#include "tests/support/shared_gpu.h"

namespace mpt::runtime {

std::unique_ptr<Device> gpu_under_test(std::string&) { return cuda::make_cuda_device(0); }
std::unique_ptr<Backend> backend_under_test(std::string&) { return std::make_unique<SharedGpu>(); }
bool has_tensor_cores_under_test() { return false; }

}  // namespace mpt::runtime
