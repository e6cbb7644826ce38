// SPDX-License-Identifier: Apache-2.0

// Stands for libnvidia-ml.so.1: two GPUs, the second of which tells neither its power nor its links.

#include <cstring>

namespace {

unsigned long long reads = 0;  // each finds 3 GiB more sent

}  // namespace

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  static int gpus[2] = {0, 1};
  for (int i = 0; i < 2; ++i)
    if (std::strcmp(bus_id, i == 0 ? "0000:00:00.0" : "0000:1b:00.0") == 0) *device = &gpus[i];
  return *device == nullptr ? 6 : 0;  // not found
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned* percent) {
  percent[0] = *static_cast<int*>(device) == 0 ? 93 : 41;
  percent[1] = 58;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* bytes) {
  bytes[0] = 80ULL << 30;
  bytes[1] = 30ULL << 30;
  bytes[2] = 50ULL << 30;
  return 0;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  *milliwatts = 650'000;
  return *static_cast<int*>(device) == 0 ? 0 : 3;
}
int nvmlDeviceGetClockInfo(void*, int, unsigned* megahertz) {
  *megahertz = 1755;
  return 0;
}
struct FieldValue {  // nvmlFieldValue_t
  unsigned field, scope;
  long long timestamp, latency_us;
  unsigned type;
  int result;
  unsigned long long value;
};
int nvmlDeviceGetFieldValues(void* device, int count, FieldValue* values) {
  ++reads;
  for (int i = 0; i < count; ++i) {
    const bool known = values[i].scope == ~0U && (values[i].field == 138 || values[i].field == 139);
    values[i].result = known && *static_cast<int*>(device) == 0 ? 0 : 3;  // not supported
    values[i].value = values[i].field == 138 ? (3ULL << 20) * reads : 1024;
  }
  return 0;
}
}
