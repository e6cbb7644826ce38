// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda_module.h"

#include <dlfcn.h>

#include <filesystem>

#include "core/error.h"

namespace mpt::runtime {
namespace {

// Where the module lies: beside the program in a build tree, in lib/mpt beside bin/ once installed.
std::vector<std::filesystem::path> module_places() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  return {program / kCudaModuleFile, program.parent_path() / "lib" / "mpt" / kCudaModuleFile};
}

}  // namespace

std::unique_ptr<Backend> load_cuda_backend() {
  for (const std::filesystem::path& place : module_places()) {
    std::error_code error;
    if (!std::filesystem::exists(place, error)) continue;
    // Never closed: CUDA's own threads may outlive everything else.
    void* const module = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) throw NoDeviceError(fmt::format("no GPU can be used: {}", dlerror()));
    const auto make = reinterpret_cast<CudaModuleFactory>(dlsym(module, kCudaModuleFactory));
    if (make == nullptr)
      throw NoDeviceError(fmt::format("no GPU can be used: {} is not this program's module", place.string()));
    std::string reason;
    std::unique_ptr<Backend> backend(make(kCudaModuleVersion, &reason));
    if (!backend) throw NoDeviceError("no GPU can be used: " + reason);
    return backend;
  }
  throw NoDeviceError(
      "no GPU can be used: this build has no GPU module, for the CUDA toolkit and NCCL were not found when "
      "it was configured");
}

}  // namespace mpt::runtime
