// SPDX-License-Identifier: Apache-2.0
#include "runtime/monitor/gpu_load.h"

#include <dlfcn.h>

namespace mpt::runtime {
namespace {

// Declarations of NVML's stable interface (its API reference, NVML 2 and later).
using Result = int;
using Device = void*;
struct Utilization {
  unsigned gpu, memory;  // percent
};
struct Memory {
  unsigned long long total, free, used;
};
constexpr int kSmClock = 1;
constexpr Result kSuccess = 0;

struct Library {
  Result (*init)() = nullptr;
  Result (*shutdown)() = nullptr;
  Result (*count)(unsigned*) = nullptr;
  Result (*handle)(unsigned, Device*) = nullptr;
  Result (*utilization)(Device, Utilization*) = nullptr;
  Result (*memory)(Device, Memory*) = nullptr;
  Result (*power)(Device, unsigned*) = nullptr;
  Result (*clock)(Device, int, unsigned*) = nullptr;
};

template <class F>
bool find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

class Nvml final : public GpuMonitor {
 public:
  Nvml(void* library, const Library& nvml, unsigned count) : library_(library), nvml_(nvml), count_(count) {}
  ~Nvml() override {
    nvml_.shutdown();
    dlclose(library_);
  }

  std::vector<GpuLoad> read() override {
    std::vector<GpuLoad> loads;
    for (unsigned i = 0; i < count_; ++i) {
      Device device = nullptr;
      if (nvml_.handle(i, &device) != kSuccess) continue;
      GpuLoad load;
      load.gpu = int(i);
      Utilization utilization{};
      if (nvml_.utilization(device, &utilization) == kSuccess) {
        load.busy = utilization.gpu / 100.0;
        load.memory_busy = utilization.memory / 100.0;
      }
      Memory memory{};
      if (nvml_.memory(device, &memory) == kSuccess) load.memory_bytes = int64_t(memory.used);
      unsigned value = 0;
      if (nvml_.power(device, &value) == kSuccess) load.power_w = value / 1000.0;
      if (nvml_.clock(device, kSmClock, &value) == kSuccess) load.clock_mhz = int(value);
      loads.push_back(load);
    }
    return loads;
  }

 private:
  void* library_;
  Library nvml_;
  unsigned count_;
};

}  // namespace

std::unique_ptr<GpuMonitor> open_gpu_monitor(std::string& reason) {
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    reason = "no NVIDIA driver (libnvidia-ml.so.1) on this machine";
    return nullptr;
  }
  Library nvml;
  const bool complete = find(library, "nvmlInit_v2", nvml.init) &&
                        find(library, "nvmlShutdown", nvml.shutdown) &&
                        find(library, "nvmlDeviceGetCount_v2", nvml.count) &&
                        find(library, "nvmlDeviceGetHandleByIndex_v2", nvml.handle) &&
                        find(library, "nvmlDeviceGetUtilizationRates", nvml.utilization) &&
                        find(library, "nvmlDeviceGetMemoryInfo", nvml.memory) &&
                        find(library, "nvmlDeviceGetPowerUsage", nvml.power) &&
                        find(library, "nvmlDeviceGetClockInfo", nvml.clock);
  unsigned count = 0;
  if (complete && nvml.init() == kSuccess) {
    if (nvml.count(&count) == kSuccess && count > 0) return std::make_unique<Nvml>(library, nvml, count);
    nvml.shutdown();
  }
  dlclose(library);
  reason = "the NVIDIA driver does not answer";
  return nullptr;
}

}  // namespace mpt::runtime
