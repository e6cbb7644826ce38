// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/rank_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"

namespace mpt::runtime {

RankSizes::RankSizes(const ModelSpec& spec, const Layout& layout, int64_t sequence_length, DataType element,
                     int rank)
    : model(spec),
      recompute(layout.recompute),
      type(element),
      tensor(layout.tensor),
      tensor_rank(rank),
      batch(layout.micro_batch),
      sequence(sequence_length),
      tokens(layout.micro_batch * sequence_length),
      hidden(spec.hidden),
      heads(spec.heads / layout.tensor),
      kv_heads(spec.kv_heads / layout.tensor),
      head_dim(spec.head_dim),
      ffn(spec.ffn_hidden / layout.tensor),
      vocab_rows((spec.vocab + layout.tensor - 1) / layout.tensor) {
  vocab_first = std::min(spec.vocab, vocab_rows * rank);
  vocab_used = std::min(spec.vocab - vocab_first, vocab_rows);
}

void check_supported(const ModelSpec& model, const Layout& layout) {
  const struct {
    bool present;
    const char* feature;
  } missing[] = {
      {model.moe.has_value(), "mixture of experts"},
      {model.attention == AttentionKind::latent, "latent attention"},
      {model.position == PositionKind::alibi, "ALiBi positions"},
      {model.norm_placement != NormPlacement::pre, "norms elsewhere than before attention and MLP"},
      {model.parallel_residual, "parallel residual"},
      {model.embedding_norm, "a norm after the embedding"},
      {model.query_key_norm != QueryKeyNorm::none, "norms on queries and keys"},
      {model.attention_sinks, "attention sinks"},
      {model.sliding_window.has_value(), "a sliding window"},
      {model.head_bias, "a bias on the output head"},
      {model.next_token_layers > 0, "multi-token prediction"},
      {layout.precision != Precision::fp32, "a precision other than fp32"},
  };
  for (const auto& [present, feature] : missing) {
    if (!present) continue;
    throw UserError(Problem{fmt::format("model \"{}\"", model.name), fmt::format("needs {}", feature),
                            "a GPT-2 or Llama style model in fp32",
                            "this runtime does not have it yet; mpt-plan can still plan it"});
  }
  const std::vector<std::string> features = advanced_features(layout);
  if (features.empty()) return;
  throw UserError(Problem{"layout " + layout_name(layout), fmt::format("needs {}", fmt::join(features, ", ")),
                          "tensor, pipeline and data parallel with a schedule and recompute",
                          "this runtime does not have it yet; mpt-plan can still plan it"});
}

}  // namespace mpt::runtime
