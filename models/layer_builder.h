// SPDX-License-Identifier: Apache-2.0
#pragma once

// LayerBuilder: appends operators to a LayerProgram with the sizes, parameters, bytes and collectives that
// follow from tensor parallelism. Used only by layer_program.cpp.

#include <string>
#include <utility>

#include "models/layer_program.h"

namespace mpt::models {

/// How a linear layer is split (arXiv:1909.08053, section 3).
enum class Parallel : uint8_t { replicated, columns, rows };

struct LinearSizes {
  std::string name;
  int64_t columns = 0, inner = 0;  // on this rank
  bool bias = false;
  Parallel parallel = Parallel::columns;
};

struct AttentionSizes {
  int64_t head_dim = 0, value_head_dim = 0, kv_heads = 0;  // on this rank
  int64_t qkv_columns = 0;                                 // width of queries, keys and values together
};

class LayerBuilder {
 public:
  LayerBuilder(const ModelSpec& model, const Layout& layout, int64_t sequence, int64_t layer)
      : model_(model),
        layout_(layout),
        sequence_(sequence),
        layer_(layer),
        tokens_(layout.micro_batch * sequence),
        unit_(layout.precision == Precision::fp32 ? 4 : 2) {}

  const ModelSpec& model() const { return model_; }
  int64_t tokens() const { return tokens_; }
  int64_t share(int64_t whole) const { return (whole + layout_.tensor - 1) / layout_.tensor; }
  Operator& last() { return program_.operators.back(); }

  /// Allocations are counted in whole units of 64 bytes, as the runtime's device makes them.
  static int64_t rounded(int64_t bytes) { return (bytes + 63) / 64 * 64; }
  int64_t bytes(int64_t columns) const { return rounded(tokens_ * columns * unit_); }
  Collective tensor_all_reduce(int64_t columns) const {
    return {CollectiveKind::all_reduce, CollectiveGroup::tensor, tokens_ * columns * unit_};
  }

  OperatorShape shape(OperatorKind kind, int64_t columns) const {
    OperatorShape s;
    s.kind = kind;
    s.precision = layout_.precision;
    s.rows = tokens_;
    s.columns = columns;
    return s;
  }

  LayerBuilder& add(Operator op) {
    program_.operators.push_back(std::move(op));
    return *this;
  }

  LayerBuilder& norm(const std::string& name, int64_t width);
  LayerBuilder& linear(const LinearSizes& sizes);
  LayerBuilder& expert_linear(const LinearSizes& sizes);
  LayerBuilder& attention(const AttentionSizes& sizes);
  /// Keeps its input, `input_columns` wide, for every row of the operator.
  LayerBuilder& activation(Operator op, int64_t input_columns);
  LayerBuilder& residual(const std::string& name);

  /// The last operator keeps [tokens, columns] for its backward.
  LayerBuilder& saves(int64_t columns) { return keep(bytes(columns), bytes(columns)); }
  /// The same for every copy of a token that goes to an expert.
  LayerBuilder& saves_copies(int64_t columns) {
    const int64_t kept = rounded(tokens_ * model_.moe->experts_per_token * columns * unit_);
    return keep(kept, kept);
  }
  /// The attention core's output, which selective recompute drops.
  LayerBuilder& saves_core_output(int64_t columns) { return keep(bytes(columns), 0); }

  /// A decoder layer: with full recompute only its input is kept.
  LayerProgram take_layer();
  LayerProgram take() { return std::move(program_); }

 private:
  LayerBuilder& keep(int64_t always, int64_t selective) {
    last().saved_bytes += always;
    last().saved_bytes_selective += selective;
    return *this;
  }

  const ModelSpec& model_;
  const Layout& layout_;
  int64_t sequence_, layer_, tokens_, unit_;
  LayerProgram program_;
};

}  // namespace mpt::models
