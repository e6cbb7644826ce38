// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every operator of the CUDA device against the CPU's, in all types, on sizes that no block divides and on
// some that packs do. Both sum in the state type, in other orders: results differ by k unit roundoffs of the
// sum of magnitudes, and by one rounding of 16 bits. Built twice: for a GPU, and interpreted on the CPU
// (tests/support/cuda_on_cpu).

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device/cpu/cpu_device.h"
#include "tests/support/gpu_under_test.h"

namespace mpt::runtime {

inline double unit_roundoff(DataType type) {
  switch (type) {
    case DataType::float32:
      return 6e-8;
    case DataType::float64:
      return 1.2e-16;
    case DataType::bfloat16:
      return 4e-3;
    case DataType::float16:
      return 5e-4;
  }
  return 0.0;
}

/// Smaller numbers than the smallest normal one lie as far apart as these.
inline double smallest_step(DataType type) { return type == DataType::float16 ? 0x1p-24 : 0.0; }

// The same numbers on both devices.
struct Pair {
  Device *cpu, *gpu;
  DataType type;
  int64_t count;
  Buffer on_cpu, on_gpu;

  Pair(Device& c, Device& g, DataType t, int64_t n, int seed, double spread = 1.5)
      : cpu(&c), gpu(&g), type(t), count(n), on_cpu(c, n * size_of(t)), on_gpu(g, n * size_of(t)) {
    std::mt19937 random{unsigned(seed)};
    std::uniform_real_distribution<double> draw(-spread, spread);
    std::vector<double> values(static_cast<size_t>(n));
    for (double& v : values) v = draw(random);
    c.upload(t, values.data(), n, on_cpu.data());
    g.upload(t, values.data(), n, on_gpu.data());
  }

  // `terms` additions of values of about `magnitude` went into each element; `rounded` is the sum of
  // magnitudes of operands that only one of the devices rounds to 16 bits.
  void expect_equal(const std::string& what, int64_t terms, double magnitude = 4.0, double rounded = 0.0,
                    DataType rounded_to = DataType::float64, double lost = 0.0) const {
    std::vector<double> want(static_cast<size_t>(count)), got(want.size());
    cpu->download(type, on_cpu.data(), count, want.data());
    gpu->download(type, on_gpu.data(), count, got.data());
    const double sums = unit_roundoff(state_type_of(type)) * double(terms + 8) * magnitude +
                        unit_roundoff(rounded_to) * rounded + lost;
    for (size_t i = 0; i < want.size(); ++i) {
      const double rounding = std::max(2.0 * unit_roundoff(type) * std::fabs(want[i]), smallest_step(type));
      ASSERT_LE(std::fabs(got[i] - want[i]), sums + rounding)
          << what << ", element " << i << ": " << got[i] << " on the GPU, " << want[i] << " on the CPU";
    }
  }
};

class CudaDeviceTest : public testing::TestWithParam<DataType> {
 protected:
  void SetUp() override {
    std::string reason;
    gpu_ = gpu_under_test(reason);
    if (!gpu_) GTEST_SKIP() << reason;
  }
  Pair make(int64_t count, int seed, double spread = 1.5) {
    return {*cpu_, *gpu_, GetParam(), count, seed, spread};
  }
  Pair make_state(int64_t count, int seed, double spread = 1.5) {
    return {*cpu_, *gpu_, state_type_of(GetParam()), count, seed, spread};
  }
  // What `body` adds to a loss of 1 on each device: the CPU's, and the GPU's.
  template <class F, class... Pairs>
  std::pair<double, double> losses(F&& body, Pairs&... pairs) {
    HostBuffer loss(*gpu_, int64_t(sizeof(double)));
    double& on_gpu = *static_cast<double*>(loss.data());
    double on_cpu = on_gpu = 1.0;
    body(*cpu_, pairs.on_cpu.data()..., &on_cpu);
    body(*gpu_, pairs.on_gpu.data()..., &on_gpu);
    gpu_->synchronize();
    return {on_cpu, on_gpu};
  }
  // Calls `body` with each device and its side of the pairs.
  template <class F, class... Pairs>
  void on_both(F&& body, Pairs&... pairs) {
    body(*cpu_, pairs.on_cpu.data()...);
    body(*gpu_, pairs.on_gpu.data()...);
  }

  std::unique_ptr<Device> cpu_ = make_cpu_device();
  std::unique_ptr<Device> gpu_;
};

}  // namespace mpt::runtime
