// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/parameters.h"

#include <cmath>
#include <numbers>

#include "core/error.h"

namespace mpt::runtime {
namespace {

// SplitMix64 (Steele et al. 2014): a counter in, 64 independent bits out.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

uint64_t stream_of(uint64_t seed, const std::string& name) {
  uint64_t state = mix(seed);
  for (const char c : name) state = mix(state ^ uint8_t(c));
  return state;
}

// Box-Muller on two uniforms in (0, 1].
double normal(uint64_t stream, int64_t index) {
  const auto uniform = [&](uint64_t k) {
    return (double(mix(stream + 2 * uint64_t(index) + k) >> 11) + 1.0) * 0x1.0p-53;
  };
  return std::sqrt(-2.0 * std::log(uniform(0))) * std::cos(2.0 * std::numbers::pi * uniform(1));
}

template <class T>
void draw(const Parameter& parameter, uint64_t seed, T* out) {
  const uint64_t stream = stream_of(seed, parameter.name);
  for (const ShardBlock& block : parameter.blocks) {
    for (int64_t r = 0; r < block.rows; ++r) {
      for (int64_t c = 0; c < block.columns; ++c) {
        const int64_t index = (block.global_row + r) * parameter.global_columns + block.global_column + c;
        const double noise = parameter.deviation > 0.0 ? parameter.deviation * normal(stream, index) : 0.0;
        *out++ = T(parameter.initial_value + noise);
      }
    }
  }
}

}  // namespace

int Parameters::add(Parameter parameter) {
  MPT_CHECK(!values_, "weight {} added after allocation", parameter.name);
  parameter.offset = count_;
  const int64_t columns =
      parameter.blocks.empty() ? parameter.global_columns : parameter.blocks.front().columns;
  parameter.count = parameter.padding_rows * columns;
  for (const ShardBlock& block : parameter.blocks) parameter.count += block.rows * block.columns;
  count_ += parameter.count;
  list_.push_back(std::move(parameter));
  return int(list_.size()) - 1;
}

void Parameters::allocate(uint64_t seed) {
  values_ = Buffer(device_, count_ * size_of(type_));
  gradients_ = Buffer(device_, count_ * size_of(type_));
  device_.zero(values_.data(), count_ * size_of(type_));
  zero_gradients();
  for (int i = 0; i < int(list_.size()); ++i) {
    const Parameter& parameter = list_[size_t(i)];
    if (type_ == DataType::float32) {
      draw(parameter, seed, static_cast<float*>(value(i)));
    } else {
      draw(parameter, seed, static_cast<double*>(value(i)));
    }
  }
}

}  // namespace mpt::runtime
