// SPDX-License-Identifier: Apache-2.0
#pragma once

// CUDA's runtime, as far as runtime/device/cuda uses it, on the CPU: kernels are interpreted, block by block,
// each thread of a block a fibre that gives way at barriers. So the GPU's kernels and the device around them
// are tested on machines without one. It is as strict as CUDA's documents permit; streams.h, memory.h and
// races.h say how; cublasLt.h does the same for products. What it cannot show is speed.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

// NOLINTBEGIN(bugprone-reserved-identifier): NVIDIA's names
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
// Blocks run one after the other on one thread at a time.
#define __shared__ static thread_local
#define __align__(n) alignas(n)
#define MPT_DYNAMIC_SHARED(name) unsigned char* const name = ::cuda_on_cpu::dynamic_shared()

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
};

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDefault };
enum cudaMemoryType {
  cudaMemoryTypeUnregistered,
  cudaMemoryTypeHost,
  cudaMemoryTypeDevice,
  cudaMemoryTypeManaged
};
enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;

using cudaStream_t = struct FakeStream*;
using cudaEvent_t = struct FakeEvent*;
struct cudaPointerAttributes {
  cudaMemoryType type;
};
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
};
enum cudaDeviceP2PAttr { cudaDevP2PAttrPerformanceRank, cudaDevP2PAttrAccessSupported };
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
};

const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaSetDevice(int index);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaGetDevice(int* index);
// The machine has one GPU (machine.cpp).
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index);
cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int index);
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int from, int to);
cudaError_t cudaMalloc(void** data, size_t bytes);
cudaError_t cudaFree(void* data);
enum { cudaHostAllocDefault = 0 };
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* data);
cudaError_t cudaMemGetInfo(size_t* available, size_t* total);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int index);
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);

namespace cuda_on_cpu {

unsigned char* dynamic_shared();
/// All threads of the block are here.
void wait_for_block();
/// Every lane of `mask` is at this place with this mask; a lane that ends or waits elsewhere fails the
/// launch.
void wait_for_warp(unsigned mask, const std::source_location& place);
/// A place of 64 bits of each lane of this warp.
uint64_t& of_lane(int lane);
int lane();
/// Of the block's threads, the one that runs.
size_t running_thread();
/// Runs `kernel` once per thread of the grid. `function` is its address.
cudaError_t run(const cudaLaunchConfig_t& config, const void* function, const std::function<void()>& kernel);
/// Work behind what `stream` has. `function` (a kernel's address) or `name` is how reports call it.
/// Events behind it are recorded `extra_s` later than they were.
cudaError_t submit(cudaStream_t stream, std::function<cudaError_t()> work, const char* name,
                   const void* function = nullptr, double extra_s = 0.0);
/// A kernel is loaded when it is first launched on a GPU, and that may wait for all work there: CUDA C++
/// Programming Guide, "Lazy Loading", "Concurrent Execution". cuBLASLt loads its own in cublasLtMatmul
/// (measured on an H100). Here it always waits, and keeps other calls for the GPU out of the driver
/// meanwhile. Kernels whose name contains CUDA_ON_CPU_STUCK are loaded for ever.
cudaError_t load(cudaStream_t stream, const std::string& kernel);
/// Where the next kernel's arguments are.
void set_arguments(const void* data, size_t bytes);
/// A pointer that a kernel gets: null, or memory of the stream's GPU, or pinned.
bool kernel_may_have(cudaStream_t stream, const void* pointer);
/// What work other than kernels touches, from within that work.
void reads(const void* data, size_t bytes);
void writes(const void* data, size_t bytes);

}  // namespace cuda_on_cpu

// Of the fibre that runs.
inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const void* const function = reinterpret_cast<const void*>(kernel);
  const auto may_have = [&](const auto& argument) {
    if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(argument)>>) {
      return cuda_on_cpu::kernel_may_have(config->stream, argument);
    } else {
      return true;
    }
  };
  if (!(may_have(arguments) && ...)) return cudaErrorInvalidValue;
  return cuda_on_cpu::submit(
      config->stream,
      [function, launch = *config,
       kept = std::pair(kernel, std::tuple<Parameters...>(std::forward<Arguments>(arguments)...))] {
        cuda_on_cpu::set_arguments(&kept, sizeof kept);
        return cuda_on_cpu::run(launch, function, [&call = kept] { std::apply(call.first, call.second); });
      },
      nullptr, function);
}

inline void __syncthreads() { cuda_on_cpu::wait_for_block(); }
inline void __syncwarp(unsigned mask = 0xffffffffu,
                       const std::source_location& place = std::source_location::current()) {
  cuda_on_cpu::wait_for_warp(mask, place);
}

template <class T>
T __shfl_xor_sync(unsigned lanes, T value, int mask,
                  const std::source_location& place = std::source_location::current()) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  __builtin_memcpy(&cuda_on_cpu::of_lane(cuda_on_cpu::lane()), &value, sizeof(T));
  cuda_on_cpu::wait_for_warp(lanes, place);
  T other;
  __builtin_memcpy(&other, &cuda_on_cpu::of_lane(cuda_on_cpu::lane() ^ mask), sizeof(T));
  cuda_on_cpu::wait_for_warp(lanes, place);
  return other;
}

namespace cuda_on_cpu {
/// Every lane's `value`, in order of lanes.
template <class T>
void gather_from_lanes(T value, T (&all)[32],
                       const std::source_location& place = std::source_location::current()) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  __builtin_memcpy(&of_lane(lane()), &value, sizeof(T));
  wait_for_warp(0xffffffffu, place);
  for (int i = 0; i < 32; ++i) __builtin_memcpy(&all[i], &of_lane(i), sizeof(T));
  wait_for_warp(0xffffffffu, place);
}
}  // namespace cuda_on_cpu

// Threads take turns at barriers alone.
inline unsigned atomicMax(unsigned* at, unsigned value) {
  const unsigned before = *at;
  if (value > before) *at = value;
  return before;
}

#define __launch_bounds__(...)
inline float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }

inline unsigned __float_as_uint(float value) {
  unsigned bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

// nvcc brings these into the global namespace.
#include <algorithm>
#include <cmath>
using std::max;
using std::min;
// The GPU's fast exponential; glibc has another function of that name.
#define __expf(x) expf(x)
// NOLINTEND(bugprone-reserved-identifier)
