// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the CUDA module exports. Programs load it when a GPU is asked for, so that they start without driver
// and toolkit.

#include <filesystem>
#include <string>

#include "runtime/device/backend.h"

namespace mpt::runtime {

/// Raised with every change of Backend, Device, World or what they use.
inline constexpr int kCudaModuleVersion = 3;
inline constexpr const char* kCudaModuleFile = "libmpt_cuda.so";
inline constexpr const char* kCudaModuleFactory = "mpt_make_cuda_backend";

/// Null with a reason if there is no usable GPU. The caller owns the backend.
using CudaModuleFactory = Backend* (*)(int version, std::string* reason);

/// What CMake met when the program was configured; both empty: the module was switched off.
struct CudaBuild {
  std::string found;    // versions of what the module needs
  std::string missing;  // parts that were not found
};

/// Why `program` has no GPU module, and the command that builds it.
std::string missing_module_text(const CudaBuild& build, const std::filesystem::path& program);
/// Why the module cannot be loaded, in the loader's words, and what to do about it.
std::string unloadable_module_text(const std::string& loader_said);

}  // namespace mpt::runtime
