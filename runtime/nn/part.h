// SPDX-License-Identifier: Apache-2.0
#pragma once

// Part: a layer, or a part of one, on one rank: its sizes, parameters, groups and device, and shared helpers.

#include <optional>
#include <string>

#include "runtime/nn/parameters.h"
#include "runtime/nn/rank_sizes.h"

namespace mpt::runtime {

/// The constructor arguments of parts. Sizes, parameters, device and the groups themselves must outlive them.
struct PartContext {
  const RankSizes& sizes;
  Parameters& parameters;
  const LayerGroups& groups;
  Device& device;

  /// The same context for layers of another kind.
  PartContext of(const RankSizes& other) const { return {other, parameters, groups, device}; }
};

/// The address `bytes` after `data`.
inline const char* beyond(const void* data, int64_t bytes) { return static_cast<const char*>(data) + bytes; }
inline char* beyond(void* data, int64_t bytes) { return static_cast<char*>(data) + bytes; }

class Part {
 protected:
  explicit Part(const PartContext& context)
      : sizes_(context.sizes),
        parameters_(context.parameters),
        group_(*context.groups.tensor),
        device_(context.device) {}

  Buffer tokens_by(int64_t columns) const { return {device_, sizes_.token_bytes(columns)}; }
  Buffer local_by(int64_t columns) const { return {device_, sizes_.local_bytes(columns)}; }
  Buffer local() const { return local_by(sizes_.hidden); }
  /// Memory for `count` numbers in full precision.
  Buffer numbers(int64_t count) const { return {device_, count * sizes_.state_unit()}; }
  int64_t local_count() const { return sizes_.local_tokens * sizes_.hidden; }
  /// Whether each tensor rank has only its local tokens between products.
  bool splits_tokens() const { return sizes_.sequence_parallel && group_.size() > 1; }
  /// All tokens, from the local ones [local tokens, columns] of each rank.
  Buffer gathered(const void* own, int64_t columns) const {
    Buffer all = tokens_by(columns);
    group_.all_gather(own, all.data(), sizes_.local_tokens * columns, sizes_.type);
    return all;
  }
  /// Sums `parts` [tokens, columns] over tensor ranks. If tokens are split, `sum` gets the local ones; else
  /// it is `parts`.
  void sum_over(Communicator& group, void* parts, void* sum, int64_t columns) const {
    const int64_t count = sizes_.local_tokens * columns;
    splits_tokens() ? group.reduce_scatter(parts, sum, count, sizes_.type)
                    : group.all_reduce(parts, count, sizes_.type, ReduceOperation::sum);
  }

  /// A vector that every tensor rank has whole; `partial`: each of them has a part of its gradient.
  Parameter whole_vector(const std::string& name, int64_t rows, bool partial, double start = 0.0) const {
    return {.name = name,
            .global_rows = rows,
            .blocks = {{0, rows, 0, 1}},
            .initial_value = start,
            .is_first_copy = sizes_.tensor_rank == 0,
            .partial = partial};
  }
  /// A vector split over tensor ranks, with `rows` on each.
  Parameter split_vector(const std::string& name, int64_t rows, double start, double deviation = 0.0) const {
    return {.name = name,
            .global_rows = rows * sizes_.tensor,
            .blocks = {{rows * sizes_.tensor_rank, rows, 0, 1}},
            .initial_value = start,
            .deviation = deviation};
  }

  void run(const Operation& operation) const { device_.run(sizes_.type, operation); }
  /// y = a + b, of [local tokens, hidden]; y may be a or b.
  void add(const void* a, const void* b, void* y) const {
    run(ResidualAdd{.count = local_count(), .a = a, .b = b, .y = y});
  }
  /// Multiplies x [local tokens, hidden] by the factor, if there is one.
  void scale(const std::optional<double>& factor, void* x) const {
    if (factor) run(Scale{.count = local_count(), .factor = *factor, .x = x, .y = x});
  }
  /// Strides are in elements.
  void copy_columns(int64_t rows, int64_t columns, const void* from, int64_t from_stride, void* to,
                    int64_t to_stride) const {
    run(CopyColumns{.to_type = sizes_.type,
                    .rows = rows,
                    .columns = columns,
                    .from = from,
                    .from_stride = from_stride,
                    .to = to,
                    .to_stride = to_stride});
  }
  /// The value of parameter `index`; null for -1.
  const void* value_if(int index) const { return index < 0 ? nullptr : parameters_.value(index); }
  void* gradient_if(int index) const { return index < 0 ? nullptr : parameters_.gradient(index); }
  /// Adds `part`, `count` numbers in full precision, to the gradient of a parameter.
  void add_gradient(int index, int64_t count, const void* part) const {
    void* const gradient = parameters_.gradient(index);
    device_.run(parameters_.state_type(),
                ResidualAdd{.count = count, .a = gradient, .b = part, .y = gradient});
  }

  const RankSizes& sizes_;
  Parameters& parameters_;
  Communicator& group_;  // of tensor ranks
  Device& device_;
};

}  // namespace mpt::runtime
