// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/rank_sizes.h"

#include <numbers>
#include <numeric>

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

// YaRN (arXiv:2309.00071, section 3.2), as in transformers/modeling_rope_utils.py, _compute_yarn_parameters.
// By dimension, frequencies change gradually from unscaled ones to ones divided by the factor.
class Yarn {
 public:
  Yarn(const Rotary& rotary, int64_t rotated)
      : factor_(rotary.scaling->factor), last_(double(rotated) - 1.0) {
    const RotaryScaling& s = *rotary.scaling;
    const auto dimension = [&](double turns) {
      return double(rotated) * std::log(double(s.original_positions) / (turns * 2.0 * std::numbers::pi)) /
             (2.0 * std::log(rotary.base));
    };
    low_ = dimension(s.beta_fast);
    high_ = dimension(s.beta_slow);
    if (s.whole_dimensions) {
      low_ = std::floor(low_);
      high_ = std::ceil(high_);
    }
    low_ = std::max(low_, 0.0);
    high_ = std::min(high_, last_);
    if (low_ == high_) high_ += 0.001;
  }
  double scaled(double frequency, int64_t i) const {
    const double falls = std::clamp((double(i) - low_) / (high_ - low_), 0.0, 1.0);
    return frequency * (1.0 - falls + falls / factor_);
  }

 private:
  double factor_, last_, low_ = 0.0, high_ = 0.0;
};

bool has_yarn(const Rotary& r) { return r.scaling && r.scaling->kind == RotaryScalingKind::yarn; }

double yarn_factor(const RotaryScaling& s) {
  if (s.mscale > 0.0 && s.mscale_all_dim > 0.0)
    return yarn_growth(s.factor, s.mscale) / yarn_growth(s.factor, s.mscale_all_dim);
  return yarn_growth(s.factor, 1.0);
}

// Su et al. 2021 (arXiv:2104.09864), section 3.4.2: base^(-2 i / rotated).
std::vector<double> rotary_frequencies(const Attention& a) {
  if (!a.rotary) return {};
  const Rotary& r = *a.rotary;
  const auto rotated = a.latent ? a.latent->rope_head_dim : int64_t(double(a.head_dim) * r.fraction) / 2 * 2;
  std::optional<Yarn> yarn;
  if (has_yarn(r)) yarn.emplace(r, rotated);
  std::vector<double> frequencies;
  for (int64_t i = 0; i < rotated / 2; ++i) {
    const double frequency = std::pow(r.base, -2.0 * double(i) / double(rotated));
    frequencies.push_back(yarn ? yarn->scaled(frequency, i) : scaled(frequency, r.scaling));
  }
  return frequencies;
}

}  // namespace

RankSizes::RankSizes(const ModelSpec& spec, const Layout& layout, int64_t sequence_length, DataType element,
                     int rank, int context_rank)
    : model(spec),
      kind(spec.layers[0]),
      type(element),
      tensor(layout.tensor),
      tensor_rank(rank),
      sequence_parallel(layout.sequence_parallel),
      fp8(layout.precision == Precision::fp8),
      overlaps_tensor(layout.overlap_tensor && layout.tensor > 1),
      keeps_fp8_weights(fp8 && layout.zero < 3),
      weights_with_inputs(fp8 && !overlaps_tensor && !(sequence_parallel && tensor > 1)),
      expert_split(layout.expert > 1 ? layout.expert_split() : 1),
      context(layout.context),
      context_method(layout.context_method),
      batch(layout.micro_batch),
      sequence(sequence_length / layout.context),
      tokens(layout.micro_batch * sequence),
      hidden(spec.hidden),
      local_tokens(layout.sequence_parallel ? tokens / layout.tensor : tokens),
      first_local(layout.sequence_parallel ? local_tokens * rank : 0),
      vocab_rows(padded_share(spec.vocab, layout.tensor, layout.execution->kernels.vocabulary_multiple)),
      positions(context_positions(sequence, layout.context, context_rank, layout.context_method)) {
  set_kind();
  vocab_first = std::min(spec.vocab, vocab_rows * rank);
  vocab_used = std::min(spec.vocab - vocab_first, vocab_rows);
  for (int64_t t = first_local; t < first_local + local_tokens; ++t)
    local_positions.push_back(positions[size_t(t % sequence)]);
  if (!overlaps_tensor || !sequence_parallel) return;
  for (int64_t t = 0; t < local_tokens; ++t)
    for (int64_t r = 0; r < tensor; ++r) rows_of_parts.push_back(int32_t(r * local_tokens + t));
}

void RankSizes::set_kind() {
  heads = kv_heads = head_dim = 0;
  frequencies.clear();
  if (kind.attention) {
    const Attention& a = *kind.attention;
    heads = a.heads / tensor;
    kv_heads = a.kv_heads / tensor;
    head_dim = a.head_dim;
    if (model.position == PositionKind::rotary) frequencies = rotary_frequencies(a);
    rotary_factor = a.rotary && has_yarn(*a.rotary) ? yarn_factor(*a.rotary->scaling) : 1.0;
    score_scale = score_scale_of(a);
  }
  ffn = kind.mlp ? kind.mlp->ffn_hidden / tensor : 0;
}

RankSizes RankSizes::of(const LayerKind& other) const {
  RankSizes sizes = *this;
  sizes.kind = other;
  sizes.set_kind();
  return sizes;
}

AttentionShape RankSizes::attention() const {
  const Attention& a = *kind.attention;
  AttentionShape shape{batch, sequence, heads, kv_heads, head_dim};
  if (a.value_head_dim() != head_dim) shape.value_dim = a.value_head_dim();
  if (a.window && *a.window < sequence * context) shape.window = *a.window;
  shape.scale = score_scale;
  shape.cap = a.score_cap.value_or(0.0);
  return shape;
}

LatentShape RankSizes::latent() const {
  const LatentAttention& l = *kind.attention->latent;
  return {batch, sequence, heads, l.nope_head_dim, l.rope_head_dim, l.value_head_dim};
}

int64_t RankSizes::gathered_columns() const {
  if (!kind.attention || !kind.attention->latent) return hidden;
  return std::max({hidden, kind.attention->latent->query_rank, kind.attention->latent->key_value_rank});
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
  return precision == Precision::fp32   ? DataType::float32
         : precision == Precision::fp16 ? DataType::float16
                                        : DataType::bfloat16;
}

}  // namespace mpt::runtime
