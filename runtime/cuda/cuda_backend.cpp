// SPDX-License-Identifier: Apache-2.0

// The CUDA module's factory: the only symbol that libmpt_cuda.so exports.

#include <cuda_runtime.h>
#include <nccl.h>

#include "base/error.h"
#include "base/quantity.h"
#include "runtime/comm/nccl/nccl_world.h"
#include "runtime/comm/threads/thread_world.h"
#include "runtime/device/cuda/launch.h"
#include "runtime/device/cuda/stream_device.h"
#include "runtime/device/cuda_module.h"

namespace mpt::runtime {
namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(int count, const cudaDeviceProp& properties) : count_(count), properties_(properties) {}

  int device_count() const override { return count_; }

  std::unique_ptr<Device> make_device(int number, const DeviceOptions& options) override {
    return cuda::make_cuda_device(number % count_, {options.times_products});
  }

  // NCCL connects GPUs with one rank each. Ranks that share a GPU must be threads of one process: they access
  // each other's memory directly.
  std::unique_ptr<World> make_world(World& control, const std::vector<Device*>& devices,
                                    std::chrono::milliseconds timeout) override {
    std::vector<cuda::StreamDevice*> own;
    for (Device* device : devices) own.push_back(dynamic_cast<cuda::StreamDevice*>(device));
    if (int(devices.size()) <= count_) return make_nccl_world(control, own, timeout);
    if (count_ > 1)
      refuse_input("the plan's ranks",
                   fmt::format("{} in this process, which has {} GPUs", devices.size(), count_),
                   "one rank per GPU, or one GPU that all ranks share",
                   "start as many processes as there are nodes, or set CUDA_VISIBLE_DEVICES=0");
    const std::vector<Mover*> movers(own.begin(), own.end());
    for (cuda::StreamDevice* device : own)
      device->set_watch([&control, limit = std::chrono::duration<double>(timeout).count()](double waited_s) {
        if (control.aborted()) throw CommunicationError("stopped while waiting for the GPU");
        if (waited_s > limit)
          throw CommunicationError(fmt::format("timeout after {} s of waiting for the GPU", limit));
      });
    return std::make_unique<ThreadWorld>(timeout, int(own.size()), movers);
  }

  std::unique_ptr<KernelTrace> make_kernel_trace(std::string& reason) override {
    return make_cupti_trace(reason);
  }
  std::string device_name() const override { return properties_.name; }
  int64_t memory_bytes() const override { return int64_t(properties_.totalGlobalMem); }

  std::vector<GpuDescription> describe_gpus() override {
    std::vector<GpuDescription> gpus;
    for (int gpu = 0; gpu < count_; ++gpu) {
      GpuDescription& made = gpus.emplace_back();
      size_t available = 0, total = 0;
      cuda::check(cudaSetDevice(gpu), "cudaSetDevice");
      cuda::check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
      made.bus_id = cuda::bus_id_of(gpu);
      made.memory_bytes = int64_t(total);
      made.free_bytes = int64_t(available);
      for (int peer = 0; peer < count_; ++peer) made.peers.push_back(rank_of_way(gpu, peer));
    }
    return gpus;
  }

  std::string description() const override {
    int driver = 0, nccl = 0;
    cudaDriverGetVersion(&driver);
    ncclGetVersion(&nccl);
    return fmt::format("{} x {} ({} each), driver for CUDA {}.{}, NCCL {}.{}.{}", count_, device_name(),
                       format_bytes(double(memory_bytes())), driver / 1000, driver % 1000 / 10, nccl / 10000,
                       nccl / 100 % 100, nccl % 100);
  }

 private:
  static int64_t rank_of_way(int gpu, int peer) {
    if (peer == gpu) return -1;
    int reaches = 0, rank = 0;
    cuda::check(cudaDeviceGetP2PAttribute(&reaches, cudaDevP2PAttrAccessSupported, gpu, peer),
                "cudaDeviceGetP2PAttribute");
    if (reaches == 0) return -1;
    cuda::check(cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, gpu, peer),
                "cudaDeviceGetP2PAttribute");
    return rank;
  }

  int count_;
  cudaDeviceProp properties_;  // of the first GPU; a job's GPUs are equal
};

}  // namespace
}  // namespace mpt::runtime

extern "C" __attribute__((visibility("default"))) mpt::runtime::Backend* mpt_make_cuda_backend(
    int version, std::string* reason) {
  using namespace mpt::runtime;
  // Must be set before the driver starts. Lanes, side streams and NCCL's own streams need a hardware queue
  // each. In a shared queue an operation that waits for its peer blocks the later ones. A user's value is
  // kept.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  if (version != kCudaModuleVersion) {
    *reason = fmt::format("{} is of another version than the program\n    build it again: target mpt_cuda",
                          kCudaModuleFile);
    return nullptr;
  }
  int driver = 0, count = 0;
  cudaDriverGetVersion(&driver);
  if (driver == 0) {
    *reason = "the GPU module is there, but this machine has no NVIDIA driver (libcuda.so.1)";
    return nullptr;
  }
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    *reason = count == 0 && status == cudaSuccess
                  ? "the GPU module and the driver are there, but the driver finds no GPU"
                  : cudaGetErrorString(status);
    return nullptr;
  }
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, 0); error != cudaSuccess) {
    *reason = cudaGetErrorString(error);
    return nullptr;
  }
  return new CudaBackend(count, properties);
}
