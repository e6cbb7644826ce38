// SPDX-License-Identifier: Apache-2.0
#pragma once

// Parameters: the weights of one stage on one rank, in one flat buffer of values and one of gradients, in the
// same order. Flat, so that gradient reduction, optimizer and norm are one call each.
//
// Every weight is drawn from (seed, name, global position) alone: the same model whatever the layout.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"

namespace mpt::runtime {

/// A rectangle of the global weight. A rank's part is its blocks on top of each other.
struct ShardBlock {
  int64_t global_row = 0, rows = 0;
  int64_t global_column = 0, columns = 0;
  bool operator==(const ShardBlock&) const = default;
};

struct Parameter {
  std::string name;         // global, e.g. "layers.3.attention.qkv.weight"
  int64_t global_rows = 0;  // vectors are [n, 1]
  int64_t global_columns = 1;
  std::vector<ShardBlock> blocks;  // what this rank holds
  int64_t padding_rows = 0;        // zeros below the blocks: a vocabulary that does not divide
  int64_t offset = 0;              // first element in the flat buffers
  int64_t count = 0;               // elements on this rank, padding included
  double initial_value = 0.0;      // constant part of the start value
  double deviation = 0.0;          // normal part
  bool weight_decay = false;       // matrices decay, norms and biases do not
  bool counts_in_norm = true;      // false on replicas, so that the gradient norm counts each weight once
};

class Parameters {
 public:
  Parameters(Device& device, DataType type) : device_(device), type_(type) {}

  /// Adds a weight and returns its index; blocks decide offset and count.
  int add(Parameter parameter);
  /// Allocates both buffers and draws the start values. Nothing can be added afterwards.
  void allocate(uint64_t seed);

  std::span<const Parameter> list() const { return list_; }
  int64_t count() const { return count_; }
  DataType type() const { return type_; }
  void* values() { return values_.data(); }
  void* gradients() { return gradients_.data(); }
  void* value(int index) { return element(values_, index); }
  void* gradient(int index) { return element(gradients_, index); }
  void zero_gradients() { device_.zero(gradients_.data(), count_ * size_of(type_)); }

 private:
  void* element(const Buffer& buffer, int index) const {
    return static_cast<char*>(buffer.data()) + list_[size_t(index)].offset * size_of(type_);
  }

  Device& device_;
  DataType type_;
  std::vector<Parameter> list_;
  int64_t count_ = 0;
  Buffer values_, gradients_;
};

}  // namespace mpt::runtime
