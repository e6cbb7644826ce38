// SPDX-License-Identifier: Apache-2.0
#include "runtime/monitor/gpu_load.h"

#include <dlfcn.h>

#include "base/error.h"

namespace mpt::runtime {
namespace {

// Declarations of NVML's stable interface (its API reference, NVML 2 and later).
using Device = void*;
struct Utilization {
  unsigned gpu, memory;  // percent
};
struct Memory {
  unsigned long long total, free, used;
};
struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency_us;
  int type, result;
  unsigned long long value;
};
constexpr int kSmClock = 1, kSuccess = 0;
// In KiB since the driver began, without the protocol's own bytes.
constexpr unsigned kLinkSent = 138, kLinkReceived = 139, kAllLinks = ~0U;

class Nvml final : public GpuMonitor {
 public:
  explicit Nvml(void* library) : library_(library) {}
  ~Nvml() override {
    if (begun_) call("nvmlShutdown");
    dlclose(library_);
  }

  bool begin() { return begun_ = call("nvmlInit_v2"); }

  void read(const std::string& bus_id, reports::RankRecord& into) const override {
    Device device = nullptr;
    if (!call("nvmlDeviceGetHandleByPciBusId_v2", bus_id.c_str(), &device)) return;
    Utilization utilization{};
    if (call("nvmlDeviceGetUtilizationRates", device, &utilization)) {
      into.gpu_busy = utilization.gpu / 100.0;
      into.gpu_memory_busy = utilization.memory / 100.0;
    }
    Memory memory{};
    if (call("nvmlDeviceGetMemoryInfo", device, &memory)) into.gpu_memory_bytes = int64_t(memory.used);
    unsigned value = 0;
    if (call("nvmlDeviceGetPowerUsage", device, &value)) into.gpu_power_w = value / 1000.0;
    if (call("nvmlDeviceGetClockInfo", device, kSmClock, &value)) into.gpu_clock_mhz = int(value);
    FieldValue links[2] = {};
    links[0].field = kLinkSent;
    links[1].field = kLinkReceived;
    links[0].scope = links[1].scope = kAllLinks;
    if (!call("nvmlDeviceGetFieldValues", device, 2, links + 0)) return;
    if (links[0].result == kSuccess) into.link_sent_bytes = int64_t(links[0].value) * 1024;
    if (links[1].result == kSuccess) into.link_received_bytes = int64_t(links[1].value) * 1024;
  }

 private:
  // False if the driver fails, or has no such function.
  template <class... Values>
  bool call(const char* name, Values... values) const {
    const auto function = reinterpret_cast<int (*)(Values...)>(dlsym(library_, name));
    return function != nullptr && function(values...) == kSuccess;
  }

  void* library_;
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<GpuMonitor> open_gpu_monitor() {
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  auto nvml = library == nullptr ? nullptr : std::make_unique<Nvml>(library);
  if (nvml && nvml->begin()) return nvml;
  warn(std::string("mpt-run: note: the GPUs' load is not watched: ") +
       (nvml ? "the NVIDIA driver does not answer" : "no NVIDIA driver (libnvidia-ml.so.1) on this machine"));
  return nullptr;
}

}  // namespace mpt::runtime
