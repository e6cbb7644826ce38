// SPDX-License-Identifier: Apache-2.0
#pragma once

// RankSizes: a model's sizes on one tensor-parallel rank, for one micro-batch. What the layers share.

#include <cstdint>

#include "core/layout.h"
#include "core/model_spec.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"

namespace mpt::runtime {

struct RankSizes {
  RankSizes(const ModelSpec& model, const Layout& layout, int64_t sequence_length, DataType element,
            int tensor_rank);

  ModelSpec model;
  Recompute recompute;
  DataType type;
  int64_t tensor, tensor_rank;
  int64_t batch, sequence, tokens, hidden;
  int64_t heads, kv_heads, head_dim, ffn;       // on this rank
  int64_t vocab_first, vocab_used, vocab_rows;  // words of this rank; rows include padding

  int64_t unit() const { return size_of(type); }
  int64_t token_bytes(int64_t columns) const { return tokens * columns * unit(); }
  AttentionShape attention() const { return {batch, sequence, heads, kv_heads, head_dim}; }
  NormShape norm() const { return {model.norm, tokens, hidden, model.norm_epsilon}; }
  ActivationShape activation() const { return {model.activation, tokens, ffn, model.gated_mlp}; }
  int64_t up_columns() const { return ffn * (model.gated_mlp ? 2 : 1); }
};

/// Throws UserError that names the first feature of the model or layout that this runtime does not have.
void check_supported(const ModelSpec& model, const Layout& layout);

}  // namespace mpt::runtime
