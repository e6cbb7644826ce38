// SPDX-License-Identifier: Apache-2.0
#pragma once

// The interface of the CUDA module. Programs load the module only if a GPU is requested, so that they start
// without driver and toolkit.

#include <filesystem>
#include <string>

#include "runtime/device/backend.h"

namespace mpt::runtime {

/// To be raised with every change of Backend, Device, World or a type that they use.
inline constexpr int kCudaModuleVersion = 3;
inline constexpr const char* kCudaModuleFile = "libmpt_cuda.so";
inline constexpr const char* kCudaModuleFactory = "mpt_make_cuda_backend";

/// Null with a reason if there is no usable GPU. The caller owns the backend.
using CudaModuleFactory = Backend* (*)(int version, std::string* reason);

/// CMake's findings when the program was configured; both empty: the module was switched off.
struct CudaBuild {
  std::string found;    // versions of the module's requirements
  std::string missing;  // parts that were not found
};

/// Why `program` has no GPU module, and the command that builds it.
std::string missing_module_text(const CudaBuild& build, const std::filesystem::path& program);
/// The loader's reason why the module cannot be loaded, and a remedy.
std::string unloadable_module_text(const std::string& loader_said);

}  // namespace mpt::runtime
