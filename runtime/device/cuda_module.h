// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the CUDA module exports. Programs load it when a GPU is asked for, so that they start without driver
// and toolkit.

#include "runtime/device/backend.h"

namespace mpt::runtime {

/// Raised with every change of Backend, Device, World or what they use.
inline constexpr int kCudaModuleVersion = 2;
inline constexpr const char* kCudaModuleFile = "libmpt_cuda.so";
inline constexpr const char* kCudaModuleFactory = "mpt_make_cuda_backend";

/// Null with a reason if there is no usable GPU. The caller owns the backend.
using CudaModuleFactory = Backend* (*)(int version, std::string* reason);

}  // namespace mpt::runtime
