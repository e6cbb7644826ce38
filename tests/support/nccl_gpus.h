// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/comm/nccl/nccl_world.h"
#include "runtime/device/backend.h"

namespace mpt::runtime {

/// A GPU for each rank of one process, joined by NCCL.
class NcclGpus final : public Backend {
 public:
  int device_count() const override { return 16; }
  std::unique_ptr<Device> make_device(int number, const DeviceOptions&) override {
    return cuda::make_cuda_device(number);
  }
  std::unique_ptr<World> make_world(World& control, const std::vector<Device*>& devices,
                                    std::chrono::milliseconds timeout) override {
    std::vector<cuda::StreamDevice*> own;
    for (Device* device : devices) own.push_back(dynamic_cast<cuda::StreamDevice*>(device));
    return make_nccl_world(control, own, timeout);
  }
  std::unique_ptr<KernelTrace> make_kernel_trace(std::string&) override { return nullptr; }
  std::string device_name() const override { return "a GPU"; }
  int64_t memory_bytes() const override { return int64_t{1} << 30; }
  std::vector<GpuDescription> describe_gpus() override { return {}; }
  std::string description() const override { return "a GPU for each rank"; }
};

}  // namespace mpt::runtime
