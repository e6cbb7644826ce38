// SPDX-License-Identifier: Apache-2.0
#pragma once

// Backend: a kind of hardware that ranks run on: their devices, and how device memory travels between ranks.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/gpu_description.h"
#include "runtime/comm/world.h"
#include "runtime/device/device.h"
#include "runtime/device/kernel_trace.h"

namespace mpt::runtime {

struct DeviceOptions {
  // The first use of a product times several kernels for it. Ranks must not compute the same numbers then:
  // they could choose differently, and the bits of copies would drift apart.
  bool times_products = true;
};

class Backend {
 public:
  virtual ~Backend() = default;

  /// Devices of this machine that the process may use.
  virtual int device_count() const = 0;
  /// The device of rank `number` of this host; ranks share devices where they are more.
  virtual std::unique_ptr<Device> make_device(int number, const DeviceOptions& options) = 0;
  /// How the memory of `devices` travels: those of control.local_ranks(), in that order. `control` brings
  /// ranks together and tells of failures; it and the devices outlive the result. Throws UserError if the
  /// ranks cannot be joined.
  virtual std::unique_ptr<World> make_world(World& control, const std::vector<Device*>& devices,
                                            std::chrono::milliseconds timeout) = 0;
  /// Null, with the reason, where kernels cannot be traced: another profiler holds the only place.
  virtual std::unique_ptr<KernelTrace> make_kernel_trace(std::string& reason) = 0;
  /// Name of the devices, as the catalog and people know them, and their memory.
  virtual std::string device_name() const = 0;
  virtual int64_t memory_bytes() const = 0;
  /// Every device, with its free memory and the others that it reaches directly.
  virtual std::vector<GpuDescription> describe_gpus() = 0;
  /// One line for people: devices, driver, libraries.
  virtual std::string description() const = 0;
};

/// The CUDA backend of the module libmpt_cuda.so beside the program. Throws NoDeviceError if this machine
/// cannot run it, with the reason in one line.
std::unique_ptr<Backend> load_cuda_backend();

}  // namespace mpt::runtime
