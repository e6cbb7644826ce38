// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/parameters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "runtime/device/cpu/cpu_device.h"

namespace mpt::runtime {
namespace {

std::vector<double> start_values(std::optional<uint64_t> seed) {
  const auto device = make_cpu_device();
  Parameters parameters(*device, DataType::float32, {});
  parameters.begin_piece();
  Parameter weight;
  weight.name = "weight";
  weight.global_rows = 4;
  weight.global_columns = 8;
  weight.blocks = {{0, 4, 0, 8}};
  weight.deviation = 0.02;
  weight.initial_value = 1.0;
  const int index = parameters.add(weight);
  parameters.allocate(seed);
  std::vector<double> values(32);
  device->download(DataType::float32, parameters.value(index), 32, values.data());
  return values;
}

// Drawing the weights of large models takes seconds, in vain where they come from a file.
TEST(Parameters, AreNotDrawnWithoutASeed) {
  const std::vector<double> zero(32, 0.0);
  EXPECT_EQ(start_values(std::nullopt), zero);
  const std::vector<double> drawn = start_values(1);
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), 0.0), 0);
  EXPECT_EQ(drawn, start_values(1));
}

}  // namespace
}  // namespace mpt::runtime
