// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda_module.h"

#include "core/error.h"
#include "core/module.h"

namespace mpt::runtime {

std::unique_ptr<Backend> load_cuda_backend() {
  std::string reason;
  void* const module = open_module(kCudaModuleFile, reason);
  if (module == nullptr) {
    if (reason.empty())
      reason =
          "this build has no GPU module, for the CUDA toolkit and NCCL were not found when it was configured";
    throw NoDeviceError("no GPU can be used: " + reason);
  }
  const auto make = reinterpret_cast<CudaModuleFactory>(symbol_of(module, kCudaModuleFactory));
  if (make == nullptr)
    throw NoDeviceError(fmt::format("no GPU can be used: {} is not this program's module", kCudaModuleFile));
  std::unique_ptr<Backend> backend(make(kCudaModuleVersion, &reason));
  if (!backend) throw NoDeviceError("no GPU can be used: " + reason);
  return backend;
}

}  // namespace mpt::runtime
