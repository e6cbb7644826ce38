// SPDX-License-Identifier: Apache-2.0
#pragma once

// Backend: a kind of hardware that ranks run on: its devices, and the transport of device memory between
// ranks.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/cluster_spec.h"
#include "runtime/comm/world.h"
#include "runtime/device/device.h"

namespace mpt::runtime {

struct KernelRecord {
  std::string name;
  double seconds = 0.0;  // by the device's clock
};

/// The kernels that a device ran, for any caller.
class KernelTrace {
 public:
  virtual ~KernelTrace() = default;
  /// Kernels since the last call of take(). The device must be idle.
  virtual std::vector<KernelRecord> take() = 0;
};

/// Traces kernels by CUPTI's activity records, which need no administrator rights. A process has one trace.
/// It stays enabled, because some versions of CUPTI crash when it is disabled.
std::unique_ptr<KernelTrace> make_cupti_trace(std::string& reason);

struct DeviceOptions {
  // The first use of a product times several kernels for it. Ranks that compute the same numbers must not do
  // so: they could choose different kernels, and bits of copies would differ.
  bool times_products = true;
};

class Backend {
 public:
  virtual ~Backend() = default;

  /// Devices of this machine that the process may use.
  virtual int device_count() const = 0;
  /// The device of rank `number` of this host. If there are more ranks than devices, ranks share devices.
  virtual std::unique_ptr<Device> make_device(int number, const DeviceOptions& options) = 0;
  /// The transport between `devices`: those of control.local_ranks(), in that order. `control` connects the
  /// ranks and reports failures. It and the devices must outlive the result. Throws UserError if the ranks
  /// cannot be connected.
  virtual std::unique_ptr<World> make_world(World& control, const std::vector<Device*>& devices,
                                            std::chrono::milliseconds timeout) = 0;
  /// Null, with the reason, if kernels cannot be traced: only one profiler can trace at a time.
  virtual std::unique_ptr<KernelTrace> make_kernel_trace(std::string& reason) = 0;
  /// Common name of the devices, as in the catalog, and their memory.
  virtual std::string device_name() const = 0;
  virtual int64_t memory_bytes() const = 0;
  /// Every device, with its free memory and its directly connected peers.
  virtual std::vector<GpuDescription> describe_gpus() = 0;
  /// One line for the user: devices, driver, libraries.
  virtual std::string description() const = 0;
};

/// Loads the CUDA backend from the module libmpt_cuda.so in the program's folder. Throws NoDeviceError with
/// the reason, and `remedy` on a line of its own, if this machine cannot run it.
std::unique_ptr<Backend> load_cuda_backend(const std::string& remedy = "");

}  // namespace mpt::runtime
