// SPDX-License-Identifier: Apache-2.0
#include "profiler/measure/target.h"

#include "runtime/nn/rank_sizes.h"

namespace mpt::profiler {

Target target_of(runtime::Backend* backend, Precision precision) {
  return {backend, runtime::compute_type(precision)};
}

void fill(runtime::Device& device, runtime::DataType type, runtime::Buffer& buffer) {
  const int64_t count = buffer.bytes() / runtime::size_of(type);
  std::vector<double> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[size_t(i)] = double(i * 31 % 1009) / 1009.0 - 0.5;
  device.upload(type, values.data(), count, buffer.data());
}

}  // namespace mpt::profiler
