// SPDX-License-Identifier: Apache-2.0

// The machine as the driver describes it: it has one GPU. The limits of an H100 hold here, so it has that
// name.

#include <cuda_runtime.h>

#include <cstdio>

#include "memory.h"

cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  if (index != 0) return cudaErrorInvalidValue;
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "NVIDIA H100 80GB HBM3");
  properties->totalGlobalMem = cuda_on_cpu::fill(0).limit;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int index) {
  if (index != 0) return cudaErrorInvalidValue;
  std::snprintf(id, size_t(bytes), "0000:00:00.0");
  return cudaSuccess;
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr, int, int) {
  *value = 0;
  return cudaErrorInvalidValue;  // there is no other GPU
}
