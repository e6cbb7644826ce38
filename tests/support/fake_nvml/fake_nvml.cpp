// SPDX-License-Identifier: Apache-2.0

// Stands for libnvidia-ml.so.1: two GPUs, the second of which does not tell its power.

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  static int gpus[2] = {0, 1};
  *device = &gpus[index];
  return 0;
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
}
