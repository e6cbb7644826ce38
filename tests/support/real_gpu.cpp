// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "tests/support/gpu_under_test.h"
#include "tests/support/shared_gpu.h"

namespace mpt::runtime {
namespace {

bool has_gpu(std::string& reason) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return true;
  reason = status == cudaSuccess ? "no GPU" : cudaGetErrorString(status);
  return false;
}

}  // namespace

std::unique_ptr<Device> gpu_under_test(std::string& reason) {
  return has_gpu(reason) ? cuda::make_cuda_device(0) : nullptr;
}
std::unique_ptr<Backend> backend_under_test(std::string& reason) {
  return has_gpu(reason) ? std::make_unique<SharedGpu>() : nullptr;
}

bool has_tensor_cores_under_test() { return true; }

}  // namespace mpt::runtime
