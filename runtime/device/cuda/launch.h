// SPDX-License-Identifier: Apache-2.0
#pragma once

// Shared by all .cu files: element types, errors as exceptions, and launches without nvcc's own syntax. So
// tests can compile the same files for a CUDA runtime that interprets kernels on the CPU
// (tests/support/cuda_on_cpu).

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "runtime/device/device.h"

// Shared memory with a size that the launch decides.
#ifndef MPT_DYNAMIC_SHARED
#define MPT_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif

namespace mpt::runtime::cuda {

using Bfloat16 = __nv_bfloat16;
using Half = __half;

template <class T>
struct StateOfElement {
  using type = float;
};
template <>
struct StateOfElement<double> {
  using type = double;
};
/// The type of sums over T: state_type_of() for C++ types.
template <class T>
using State = typename StateOfElement<T>::type;

/// A failed call ends the run: throws RunError with the call and CUDA's message.
[[noreturn]] void fail(cudaError_t status, const char* call);
inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) fail(status, call);
}

constexpr int kWarp = 32;
constexpr int kThreads = 256;  // of a block, unless a kernel needs another number

template <class... Parameters, class... Arguments>
void launch(cudaStream_t stream, dim3 grid, dim3 block, int64_t shared_bytes, void (*kernel)(Parameters...),
            Arguments&&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  // A kernel needs permission for more shared memory than this.
  constexpr int64_t kAlwaysAllowed = 48 << 10;
  if (shared_bytes > kAlwaysAllowed)
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                               cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes)),
          "cudaFuncSetAttribute");
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = size_t(shared_bytes);
  config.stream = stream;
  check(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), "a kernel launch");
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Number of blocks for `count` work items in a grid-stride loop.
inline dim3 blocks_for(int64_t count, int64_t per_block = kThreads) {
  return dim3(unsigned(std::min<int64_t>(ceil_div(count, per_block), 1 << 20)));
}

/// Launches a thread for each of `count` work items; the kernel has a grid-stride loop over them.
template <class... Parameters, class... Arguments>
void launch_each(cudaStream_t stream, int64_t count, void (*kernel)(Parameters...),
                 Arguments&&... arguments) {
  launch(stream, blocks_for(count), kThreads, 0, kernel, arguments...);
}

}  // namespace mpt::runtime::cuda
