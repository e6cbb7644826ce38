// SPDX-License-Identifier: Apache-2.0
#include "profiler/measure/target.h"

#include "runtime/nn/rank_sizes.h"

namespace mpt::profiler {

Target target_of(runtime::Backend* backend, Precision precision) {
  return {backend, runtime::compute_type(precision)};
}

void fill(runtime::Device& device, runtime::DataType type, runtime::Buffer& buffer) {
  constexpr int64_t kPeriod = 1009;
  const int64_t unit = runtime::size_of(type), count = buffer.bytes() / unit;
  const int64_t first = std::min(count, 256 * kPeriod);
  std::vector<double> values(static_cast<size_t>(first));
  for (int64_t i = 0; i < first; ++i) values[size_t(i)] = double(i * 31 % kPeriod) / double(kPeriod) - 0.5;
  device.upload(type, values.data(), first, buffer.data());
  // The device repeats these values: operands of large products have billions of elements.
  char* const data = static_cast<char*>(buffer.data());
  for (int64_t done = first; done < count;) {
    const int64_t more = std::min(done, count - done);
    device.copy(data + done * unit, data, more * unit);
    done += more;
  }
}

}  // namespace mpt::profiler
