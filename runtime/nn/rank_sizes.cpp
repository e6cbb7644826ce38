// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/rank_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "frameworks/framework.h"
#include "frameworks/supports.h"

namespace mpt::runtime {

namespace {

// llama3: transformers/modeling_rope_utils.py, _compute_llama3_parameters.
double scaled(double frequency, const std::optional<RotaryScaling>& scaling) {
  if (!scaling) return frequency;
  if (scaling->kind == RotaryScalingKind::linear) return frequency / scaling->factor;
  const double turns = double(scaling->original_positions) * frequency / (2.0 * std::numbers::pi);
  const double low = scaling->low_frequency_factor, high = scaling->high_frequency_factor;
  const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
  return frequency * (kept + (1.0 - kept) / scaling->factor);
}

// Su et al. 2021 (arXiv:2104.09864), section 3.4.2: base^(-2 i / rotated).
std::vector<double> rotary_frequencies(const ModelSpec& m) {
  if (m.position != PositionKind::rotary) return {};
  const auto rotated = int64_t(double(m.attention().head_dim) * m.attention().rotation().fraction) / 2 * 2;
  std::vector<double> frequencies;
  for (int64_t i = 0; i < rotated / 2; ++i)
    frequencies.push_back(scaled(std::pow(m.attention().rotation().base, -2.0 * double(i) / double(rotated)),
                                 m.attention().rotation().scaling));
  return frequencies;
}

}  // namespace

RankSizes::RankSizes(const ModelSpec& spec, const Layout& layout, int64_t sequence_length, DataType element,
                     int rank, int context_rank)
    : model(spec),
      type(element),
      tensor(layout.tensor),
      tensor_rank(rank),
      sequence_parallel(layout.sequence_parallel),
      fp8(layout.precision == Precision::fp8),
      overlaps_tensor(layout.overlap_tensor && layout.tensor > 1),
      expert_split(layout.expert > 1 ? layout.expert_split() : 1),
      context(layout.context),
      context_method(layout.context_method),
      batch(layout.micro_batch),
      sequence(sequence_length / layout.context),
      tokens(layout.micro_batch * sequence),
      hidden(spec.hidden),
      local_tokens(layout.sequence_parallel ? tokens / layout.tensor : tokens),
      first_local(layout.sequence_parallel ? local_tokens * rank : 0),
      heads(spec.attention().heads / layout.tensor),
      kv_heads(spec.attention().kv_heads / layout.tensor),
      head_dim(spec.attention().head_dim),
      ffn(spec.mlp().ffn_hidden / layout.tensor),
      vocab_rows(padded_share(spec.vocab, layout.tensor, layout.execution.vocabulary_multiple)),
      frequencies(rotary_frequencies(spec)),
      positions(context_positions(sequence, layout.context, context_rank, layout.context_method)) {
  vocab_first = std::min(spec.vocab, vocab_rows * rank);
  vocab_used = std::min(spec.vocab - vocab_first, vocab_rows);
  for (int64_t t = first_local; t < first_local + local_tokens; ++t)
    local_positions.push_back(positions[size_t(t % sequence)]);
  if (!overlaps_tensor || !sequence_parallel) return;
  for (int64_t t = 0; t < local_tokens; ++t) {
    for (int64_t r = 0; r < tensor; ++r) rows_of_parts.push_back(int32_t(r * local_tokens + t));
  }
}

std::vector<int32_t> context_positions(int64_t sequence, int64_t ranks, int64_t rank, ContextMethod method) {
  std::vector<int32_t> positions(static_cast<size_t>(sequence));
  if (ranks == 1 || method == ContextMethod::all_to_all) {
    std::iota(positions.begin(), positions.end(), int32_t(rank * sequence));
    return positions;
  }
  const int64_t piece = sequence / 2;
  const auto middle = positions.begin() + piece;
  std::iota(positions.begin(), middle, int32_t(rank * piece));
  std::iota(middle, positions.end(), int32_t((2 * ranks - 1 - rank) * piece));
  return positions;
}

DataType compute_type(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return DataType::float32;
    case Precision::fp16:
      return DataType::float16;
    default:
      return DataType::bfloat16;
  }
}

void check_supported(const ModelSpec& model) {
  const auto lacking = frameworks::lacking_feature(frameworks::own_runtime(), model);
  if (!lacking) return;
  throw UserError(
      Problem{fmt::format("model \"{}\"", model.name), lacking->reason,
              "a model of the GPT-2, Llama, Qwen2, Qwen3 or Mixtral families, which mpt-run can compute",
              "another framework can train it: mpt-plan, without --profile, then mpt-plan export"});
}

}  // namespace mpt::runtime
