// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/comm/threads/thread_world.h"
#include "runtime/device/backend.h"
#include "runtime/device/cuda/stream_device.h"

namespace mpt::runtime {

/// All ranks are threads of one process on CUDA device 0.
class SharedGpu : public Backend {
 public:
  int device_count() const override { return 1; }
  std::unique_ptr<Device> make_device(int, const DeviceOptions&) override {
    // Nothing is reserved: each block has its own bounds then, which stand-in and sanitizer check.
    return cuda::make_cuda_device(0);
  }
  std::unique_ptr<World> make_world(World&, const std::vector<Device*>& devices,
                                    std::chrono::milliseconds timeout) override {
    std::vector<Mover*> movers;
    for (Device* device : devices) movers.push_back(dynamic_cast<cuda::StreamDevice*>(device));
    return std::make_unique<ThreadWorld>(timeout, int(devices.size()), movers);
  }
  std::unique_ptr<KernelTrace> make_kernel_trace(std::string&) override { return nullptr; }
  std::string device_name() const override { return "a GPU"; }
  int64_t memory_bytes() const override { return int64_t{1} << 30; }
  std::vector<GpuDescription> describe_gpus() override { return {}; }
  std::string description() const override { return "one device for all ranks"; }
};

}  // namespace mpt::runtime
