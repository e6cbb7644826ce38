// SPDX-License-Identifier: Apache-2.0
#include "models/layer_builder.h"

#include "core/delta_room.h"

namespace mpt::models {
namespace {

using M = Module;

// Norms of queries and keys: per head, or each over all heads.
void add_query_key_norm(LayerBuilder& b, int64_t queries, int64_t keys) {
  const Attention& a = *b.kind().attention;
  const int64_t width = queries + keys;
  b.add({"attention.query_key_norm", M::mixer, b.shape(OperatorKind::norm, width)}).saves_all_tokens(width);
  b.recompute_if(&SelectiveRecompute::latent);
  b.last().parameters = a.query_key_norm == QueryKeyNorm::per_head ? (keys > 0 ? 2 : 1) * a.head_dim : width;
  if (b.has_norms_of_several_kernels()) b.saves_norm_copies(width).saves_states(width / a.head_dim);
  // The pass of the input gradient computes the scales' gradients; a buffer keeps them until they are added.
  const int64_t scales = a.query_key_norm == QueryKeyNorm::per_head ? 2 * a.head_dim : width;
  b.last().backward_workspace_bytes = b.last().gradient_kept_bytes = LayerBuilder::rounded(scales * 4);
  if (a.query_key_norm == QueryKeyNorm::per_head || !b.execution().traffic.exchanges_shared_heads) return;
  // Ranks sum the squares of a token's queries and keys, and keep the sums.
  b.saves_states(2);
  b.last().backward_workspace_bytes += b.state_bytes(2);
  if (b.tensor_ranks() == 1) return;
  b.last().forward_collectives = {b.state_all_reduce(2)};
  b.last().backward_collectives = {b.state_all_reduce(2)};
}

// Columns of the gate on attention's output on one rank.
int64_t gate_columns(LayerBuilder& b, int64_t outputs) {
  const Attention& a = *b.kind().attention;
  if (a.output_gate == OutputGate::none) return 0;
  return a.output_gate == OutputGate::per_head ? b.share(a.heads) : outputs;
}

// The gate's logits and the output that it multiplies are kept in addition to the product's input.
void add_output_gate(LayerBuilder& b, int64_t gate, int64_t outputs) {
  if (gate > 0) b.gated("attention.output_gate", M::mixer, outputs, outputs + gate);
}

// Workspace of a mixer's backward that is free again when the gradient of the layer's input is allocated.
// Only the part that adds to the peak is returned.
int64_t passing_workspace(const LayerBuilder& b, int64_t bytes) {
  const ModelSpec& m = b.model();
  const bool before = !b.kind().has_mlp() || m.parallel_residual || m.norm_placement == NormPlacement::post;
  return before ? bytes : std::max<int64_t>(0, bytes - b.local_bytes(m.hidden));
}

// This project's runtime drops the output of the core together with the core. The gate is a part of the first
// product's output, which has `projected` columns, and so is its gradient.
void add_own_output_gate(LayerBuilder& b, int64_t gate, int64_t outputs, int64_t projected) {
  b.gated("attention.output_gate", M::mixer, outputs, gate).saves_core_output(outputs);
  b.last().forward_workspace_bytes = b.bytes(projected);
  b.last().backward_workspace_bytes += passing_workspace(b, b.bytes(projected));
}

// `products`: number of weights of the index's products. `head_dim`: of its scores.
void add_index_operator(LayerBuilder& b, int64_t products, int64_t head_dim, int64_t parameters) {
  const AttentionIndex& i = *b.kind().attention->index;
  OperatorShape shape = b.sequence_shape(OperatorKind::index, i.heads, 1);
  shape.rows = b.tokens();
  shape.inner = products;
  shape.columns = i.chosen;
  shape.head_dim = head_dim;
  b.add({"attention.index", M::mixer, shape}).saves_numbers(i.chosen);
  b.last().parameters = parameters;
}

// The index reads the norm's output, or the queries' compression if there is one. It is frozen: it has
// separate products and scores in the forward only, and the numbers of the chosen keys stay (DeepSeek-V3.2's
// report, arXiv:2512.02556, section 2.1; NVIDIA/Megatron-LM at d98e8a64,
// experimental_attention_variant/dsa.py). Every tensor rank has all of it.
void add_index(LayerBuilder& b) {
  const Attention& a = *b.kind().attention;
  const AttentionIndex& i = *a.index;
  if (i.shared) return;
  const int64_t hidden = b.model().hidden;
  const int64_t query_input = a.latent && a.latent->query_rank > 0 ? a.latent->query_rank : hidden;
  // Plain sums over heads choose blocks; weighted sums choose keys.
  const int64_t weights = i.block == 1 ? hidden * i.heads : 0;
  const int64_t products = query_input * i.heads * i.head_dim + hidden * i.head_dim + weights;
  add_index_operator(b, products, i.head_dim, products + 2 * i.head_dim);
  b.gather_over_context(i.head_dim);
}

// Queries, keys and values from the norm's output, as one product (multi-head and grouped attention).
void add_multi_head(LayerBuilder& b) {
  const ModelSpec& m = b.model();
  const Attention& a = *b.kind().attention;
  const int64_t queries = b.share(a.heads) * a.head_dim;
  const int64_t key = a.borrows_keys ? 0 : a.head_dim;
  const int64_t value = a.keys_are_values || a.borrows_keys ? 0 : a.value_head_dim();
  const int64_t keys = b.share(a.kv_heads) * key, values = b.share(a.kv_heads) * value;
  const int64_t outputs = b.share(a.heads) * a.value_head_dim(), gate = gate_columns(b, outputs);
  // Several ranks that share a key-value head each have a part of it.
  const int64_t key_part = b.share(a.kv_heads * key), value_part = b.share(a.kv_heads * value);
  const int64_t columns = queries + key_part + value_part + gate;
  LinearSizes product{"attention.qkv", M::qkv, columns, m.hidden, a.qkv_bias};
  product.parts = {queries + gate, key_part, value_part};
  b.linear(product).saves(m.hidden);
  if (a.kv_heads < b.tensor_ranks()) b.gather_columns(columns);
  if (a.query_key_norm != QueryKeyNorm::none) add_query_key_norm(b, queries, keys);
  if (a.rotary) {
    OperatorShape shape = b.shape(OperatorKind::rotary, queries + keys);
    shape.extra = a.rotary->scaling && a.rotary->scaling->kind >= RotaryScalingKind::yarn;
    b.add({"attention.rotary", M::rotary, shape});
  }
  if (a.index) add_index(b);
  b.attention(
      {a.head_dim, a.value_head_dim(), b.share(a.kv_heads), queries + keys + values, 0, queries + keys});
  if (gate > 0 && b.execution().kept.keeps_whole_projection)
    add_own_output_gate(b, gate, outputs, queries + keys + values + gate);
  else
    add_output_gate(b, gate, outputs);
  b.linear({"attention.output", M::attention_output, m.hidden, outputs, a.output_bias, Parallel::rows})
      .saves_core_output(outputs);
}

// The core over the compressions themselves, which all heads share: one key of both parts and one value. The
// expanding product is applied to queries and outputs instead.
void add_absorbed_core(LayerBuilder& b, int64_t heads) {
  const LatentAttention& l = *b.kind().attention->latent;
  const int64_t key = l.key_value_rank + l.rope_head_dim;
  b.attention({key, l.key_value_rank, 1, heads * key + key});
  b.saves_all_tokens(heads * l.key_value_rank);
}

// DeepSeek-V2 (arXiv:2405.04434, section 2.1.2): low-rank queries and key-values, a shared rotary key. Both
// compressions read the norm's output, which is kept once. A direct query projection has no bias in the
// published code; the compressions have one if the model has it.
void add_latent(LayerBuilder& b) {
  const ModelSpec& m = b.model();
  const Attention& a = *b.kind().attention;
  const LatentAttention& l = *a.latent;
  const int64_t heads = b.share(a.heads), key_dim = l.nope_head_dim + l.rope_head_dim;
  const int64_t inner = heads * l.value_head_dim, gate = gate_columns(b, inner);
  if (l.query_rank > 0) {
    b.linear(
         {"attention.query_down", M::query_down, l.query_rank, m.hidden, a.qkv_bias, Parallel::replicated})
        .saves(m.hidden);
    b.norm("attention.query_norm", M::latent_norm, l.query_rank);
    b.linear({"attention.query_up", M::latent_up, heads * key_dim, l.query_rank}).saves(l.query_rank);
  } else {
    b.linear({"attention.query", M::query, heads * key_dim, m.hidden}).saves(m.hidden);
  }
  if (gate > 0) b.linear({"attention.gate", M::mixer, gate, m.hidden});
  b.linear({"attention.key_value_down", M::key_value_down, l.key_value_rank + l.rope_head_dim, m.hidden,
            a.qkv_bias, Parallel::replicated});
  if (b.execution().traffic.exchanges_shared_heads) b.share_over_tensor(l.rope_head_dim);
  b.norm("attention.key_value_norm", M::latent_norm, l.key_value_rank);
  const int64_t expanded = heads * (l.nope_head_dim + l.value_head_dim);
  b.linear({"attention.key_value_up", M::latent_up, expanded, l.key_value_rank}).saves(l.key_value_rank);
  if (a.rotary)
    b.add({"attention.rotary", M::rotary, b.shape(OperatorKind::rotary, (heads + 1) * l.rope_head_dim)});
  if (a.index) {
    add_index(b);
    add_absorbed_core(b, heads);
  } else {
    b.attention({key_dim, l.value_head_dim, heads, heads * (2 * key_dim + l.value_head_dim), 0,
                 heads * l.nope_head_dim});
  }
  add_output_gate(b, gate, inner);
  b.linear({"attention.output", M::attention_output, m.hidden, inner, a.output_bias, Parallel::rows})
      .saves_core_output(inner);
}

// The window with as much work as the query's window and the entries of `ratio` tokens together, over whole
// sequences. The entries are those that the index chooses, or all earlier ones.
int64_t window_of_equal_work(const Attention& a, int64_t sequence) {
  const auto n = double(sequence);
  const auto pairs = [n](double window) {
    const double w = std::min(window, n);
    return w * (w + 1.0) / 2.0 + (n - w) * w;
  };
  const auto ratio = double(a.compressed->ratio);
  double all = pairs(a.window ? double(*a.window) : n);
  if (ratio > 0.0) all += pairs(a.index ? double(a.index->chosen) * ratio : n) / ratio;
  const double half = n + 0.5;
  return std::max<int64_t>(1, std::llround(half - std::sqrt(std::max(0.0, half * half - 2.0 * all))));
}

// Keys and gates of all tokens, and their pooling to entries. The index pools separate entries, and is frozen
// like other indexes.
void add_entries(LayerBuilder& b) {
  const Attention& a = *b.kind().attention;
  const CompressedAttention& c = *a.compressed;
  const int64_t hidden = b.model().hidden, series = c.overlapping ? 2 : 1;
  const int64_t width = series * a.head_dim;
  b.linear({"attention.entries", M::mixer, 2 * width, hidden, false, Parallel::replicated});
  b.add({"attention.pool", M::mixer, b.shape(OperatorKind::residual_add, 2 * width)})
      .saves_all_tokens(2 * width);
  b.last().parameters = c.ratio * width + a.head_dim;
  if (!a.index) return;
  const AttentionIndex& i = *a.index;
  const int64_t products =
      c.query_rank * i.heads * i.head_dim + 2 * series * hidden * i.head_dim + hidden * i.heads;
  const int64_t score_dim = std::max<int64_t>(1, i.head_dim / c.ratio);  // one score covers `ratio` tokens
  add_index_operator(b, products, score_dim, products + (series * c.ratio + 1) * i.head_dim);
}

// One key that is also the value, over a window and entries, and an output in two steps (DeepSeek-V4,
// arXiv:2606.19348, section 2.3; huggingface/transformers, models/deepseek_v4/modeling_deepseek_v4.py).
void add_compressed(LayerBuilder& b) {
  const ModelSpec& m = b.model();
  const Attention& a = *b.kind().attention;
  const CompressedAttention& c = *a.compressed;
  const int64_t heads = b.share(a.heads), width = heads * a.head_dim;
  b.linear({"attention.query_down", M::query_down, c.query_rank, m.hidden, false, Parallel::replicated})
      .saves(m.hidden);
  b.norm("attention.query_norm", M::latent_norm, c.query_rank);
  b.linear({"attention.query_up", M::latent_up, width, c.query_rank}).saves(c.query_rank);
  b.add({"attention.query_key_norm", M::mixer, b.shape(OperatorKind::norm, width)}).saves_all_tokens(width);
  b.linear(
      {"attention.key_value_down", M::key_value_down, a.head_dim, m.hidden, false, Parallel::replicated});
  b.norm("attention.key_value_norm", M::latent_norm, a.head_dim);
  const auto rotated = int64_t(a.rotation().fraction * double(a.head_dim));
  if (a.rotary) b.add({"attention.rotary", M::rotary, b.shape(OperatorKind::rotary, (heads + 1) * rotated)});
  if (c.ratio > 0) add_entries(b);
  b.attention({a.head_dim, a.head_dim, 1, width + a.head_dim, window_of_equal_work(a, b.sequence())});
  // The output is rotated back.
  b.add({"attention.rotary", M::rotary, b.shape(OperatorKind::rotary, heads * rotated)})
      .saves_all_tokens(width);
  const int64_t narrow = c.output_groups * c.output_rank;
  b.linear({"attention.group_output", M::mixer, narrow, width / c.output_groups, false, Parallel::replicated})
      .saves_core_output(width);
  b.linear({"attention.output", M::attention_output, m.hidden, narrow, false, Parallel::rows}).saves(narrow);
}

// Widths of a mixer of linear cost on one rank.
struct LinearWidths {
  int64_t heads, key_heads, values, keys;
};

LinearWidths widths_of(LayerBuilder& b, const LinearMixer& l) {
  const int64_t heads = b.share(l.heads), key_heads = b.share(l.key_heads);
  return {heads, key_heads, heads * l.head_dim, key_heads * l.key_dim};
}

void add_convolution(LayerBuilder& b, int64_t channels, int64_t length, bool bias, bool input_kept) {
  if (length == 0) return;
  OperatorShape shape = b.shape(OperatorKind::convolution, channels);
  shape.inner = length;
  b.add({"mixer.convolution", M::mixer, shape}).saves_all_tokens(input_kept ? 0 : channels);
  b.last().parameters = channels * (length + (bias ? 1 : 0));
}

// `input`, `output`: columns that the core reads and writes.
void add_core(LayerBuilder& b, const LinearMixer& l, const LinearWidths& w, int64_t input,
              int64_t parameters) {
  const CoreFlop flop = core_flop(l, w.heads);
  OperatorShape shape = b.shape(OperatorKind::recurrence, w.values);
  shape.inner = flop.forward;
  shape.batch = flop.backward;
  shape.copy_width = input;
  b.add({"mixer.core", M::mixer, shape});
  b.last().parameters = parameters;
  b.exchange_heads(input, w.values);
}

// A norm of the core's output, times a gate.
void add_gated_norm(LayerBuilder& b, int64_t width, int64_t parameters) {
  b.add({"mixer.norm", M::mixer, b.shape(OperatorKind::norm, width)})
      .saves_all_tokens(2 * width);  // the gate, and the norm's input
  b.last().parameters = parameters;
}

void add_input(LayerBuilder& b, int64_t columns) {
  b.linear({"mixer.input", M::mixer_input, columns, b.model().hidden}).saves(b.model().hidden);
}

void add_projection(LayerBuilder& b, int64_t inner) {
  b.linear({"mixer.output", M::mixer_output, b.model().hidden, inner, false, Parallel::rows}).saves(inner);
}

// This project's runtime keeps the outputs of the first product and of the delta rule. It recomputes
// convolution and states (runtime/nn/gated_delta_layer.h).
void add_own_gated_delta(LayerBuilder& b, const LinearMixer& l) {
  const LinearWidths w = widths_of(b, l);
  const int64_t channels = 2 * w.keys + w.values, projected = channels + w.values + 2 * w.heads;
  const int64_t heads = b.tokens() * w.heads / b.sequence();
  add_input(b, projected);
  add_convolution(b, channels, l.convolution, false, true);
  b.saves_all_tokens(projected);
  const int64_t weight_bytes = b.rounded_states(channels * l.convolution + 2 * w.heads + l.head_dim);
  b.last().forward_workspace_bytes += b.bytes(channels);
  b.last().backward_workspace_bytes += b.bytes(projected) + weight_bytes;
  b.last().gradient_kept_bytes += b.bytes(projected) + weight_bytes;
  int64_t passing = 2 * b.bytes(channels) + b.bytes(w.values);
  if (b.context_ranks() > 1) {  // buffers of the exchange: sent, received, in order
    b.last().forward_workspace_bytes += 3 * b.bytes(channels);
    passing += 4 * b.bytes(channels) + b.bytes(w.values);
  }
  add_core(b, l, w, channels, 2 * w.heads);
  b.saves_all_tokens(w.values);
  const DeltaRoomSizes room{b.sequence(), l.head_dim, l.key_dim, l.chunk};
  const int64_t forward = delta_room_numbers(room, false), backward = delta_room_numbers(room, true);
  b.last().forward_workspace_bytes = b.rounded_states(heads * forward);
  b.last().backward_workspace_bytes = passing_workspace(b, passing + b.rounded_states(heads * backward));
  b.add({"mixer.norm", M::mixer, b.shape(OperatorKind::norm, w.values)});
  b.last().parameters = l.head_dim;
  add_projection(b, w.values);
}

// Queries and keys are repeated for the heads of values that share them. The kernels keep these, the values,
// the decays, and the products of keys within each chunk (fla-org/flash-linear-attention,
// ops/gated_delta_rule/chunk.py). They recompute the states.
void add_gated_delta(LayerBuilder& b, const LinearMixer& l) {
  if (b.execution().kept.keeps_whole_projection) return add_own_gated_delta(b, l);
  const LinearWidths w = widths_of(b, l);
  const int64_t channels = 2 * w.keys + w.values;
  add_input(b, channels + w.values + 2 * w.heads);
  add_convolution(b, channels, l.convolution, false, false);
  const int64_t repeated = w.heads * l.key_dim;
  add_core(b, l, w, 2 * repeated + w.values, 2 * w.heads);
  b.saves_all_tokens(2 * repeated + w.values + w.heads * l.chunk).saves_states(w.heads);
  add_gated_norm(b, w.values, l.head_dim);
  const bool norms_again = b.recomputes(&SelectiveRecompute::delta_norm);
  if (norms_again) b.last().selective_share = 1.0;
  add_projection(b, w.values);
  if (norms_again) b.last().saved_bytes_selective = 0;
}

// Like the gated delta rule, with a decay for every channel from a low-rank product. The gate comes from a
// product of low or full rank (arXiv:2510.26692, section 3; ops/kda/chunk.py).
void add_kimi_delta(LayerBuilder& b, const LinearMixer& l) {
  const int64_t hidden = b.model().hidden;
  const LinearWidths w = widths_of(b, l);
  const int64_t rank = l.head_dim, pairs = l.full_rank_gate ? 1 : 2;
  const int64_t channels = 2 * w.keys + w.values;
  add_input(b, channels + w.heads + (l.full_rank_gate ? w.values : 0));
  b.linear({"mixer.gates_down", M::mixer, pairs * rank, hidden, false, Parallel::replicated});
  b.linear({"mixer.gates_up", M::mixer, pairs * w.values, rank}).saves(pairs * rank);
  add_convolution(b, channels, l.convolution, false, false);
  add_core(b, l, w, channels + w.values, w.heads + w.values);
  b.saves_all_tokens(channels + w.values + 2 * w.heads * l.chunk);
  add_gated_norm(b, w.values, l.head_dim);
  add_projection(b, w.values);
}

void add_lightning(LayerBuilder& b, const LinearMixer& l) {
  const LinearWidths w = widths_of(b, l);
  add_input(b, 2 * w.keys + 2 * w.values);
  add_core(b, l, w, 2 * w.keys + w.values, 0);
  b.saves_all_tokens(2 * w.keys + w.values);
  add_gated_norm(b, w.values, w.values);
  add_projection(b, w.values);
}

// Its kernel keeps the first product's output and the scan's output; it recomputes convolution and states
// (state-spaces/mamba, mamba_split_conv1d_scan_combined).
void add_mamba2(LayerBuilder& b, const LinearMixer& l) {
  const LinearWidths w = widths_of(b, l);
  const int64_t channels = w.values + 2 * w.keys, projected = channels + w.values + w.heads;
  add_input(b, projected);
  add_convolution(b, channels, l.convolution, true, true);
  add_core(b, l, w, projected, 3 * w.heads);
  b.saves_all_tokens(projected + w.values);
  b.add({"mixer.norm", M::mixer, b.shape(OperatorKind::norm, w.values)}).saves_all_tokens(w.values);
  b.last().parameters = l.output_norm ? w.values : 0;
  add_projection(b, w.values);
}

// The selective scan of single channels. A product of the channels gives its steps and states. The scan keeps
// its inputs and recomputes its states (huggingface/transformers, models/jamba/modeling_jamba.py;
// state-spaces/mamba, selective_scan_interface.py).
void add_mamba1(LayerBuilder& b, const LinearMixer& l) {
  const LinearWidths w = widths_of(b, l);
  const int64_t made = l.step_rank + 2 * l.key_dim;
  add_input(b, 2 * w.values);
  add_convolution(b, w.values, l.convolution, true, false);
  b.linear({"mixer.states", M::mixer, made, w.values, false, Parallel::rows}).saves(w.values);
  if (l.norms_steps) {
    b.add({"mixer.states_norm", M::mixer, b.shape(OperatorKind::norm, made)}).saves_all_tokens(made);
    b.last().parameters = made;
  }
  b.linear({"mixer.steps", M::mixer, w.values, l.step_rank, true, Parallel::columns}).saves(l.step_rank);
  add_core(b, l, w, 3 * w.values, w.values * (l.key_dim + 1));
  b.saves_all_tokens(2 * w.values + 2 * l.key_dim);
  b.gated("mixer.gate", M::mixer, w.values, 2 * w.values);
  add_projection(b, w.values);
}

// Two gates and a value from one product. The first gate multiplies the convolution's input, the other its
// output (huggingface/transformers, models/lfm2/modular_lfm2.py).
void add_short_convolution(LayerBuilder& b, const ShortConvolution& c) {
  const int64_t hidden = b.model().hidden, width = b.share(hidden);
  add_input(b, 3 * width);
  b.add({"mixer.gates", M::mixer, b.shape(OperatorKind::residual_add, 2 * width)})
      .saves_all_tokens(3 * width);
  add_convolution(b, width, c.length, false, false);
  b.saves_all_tokens(width);
  add_projection(b, width);
}

}  // namespace

// Products inside chunks of `chunk` tokens, and with the state between chunks. Backward: the products of the
// kernels' backward passes, in which the delta rules recompute their states.
CoreFlop core_flop(const LinearMixer& l, int64_t heads) {
  const int64_t K = l.key_dim, V = l.head_dim, C = l.chunk;
  switch (l.kind) {
    case LinearKind::gated_delta:
      return {heads * (6 * K * V + 2 * C * (3 * K + 2 * V) + C * C),
              heads * (16 * K * V + 2 * C * (8 * K + 5 * V) + 4 * C * C)};
    case LinearKind::kimi_delta: {
      const int64_t forward = heads * (6 * K * V + 10 * C * V + C * C);
      return {forward, forward * 27 / 10};
    }
    case LinearKind::lightning: {
      const int64_t forward = heads * (4 * K * V + C * (K + V));
      return {forward, forward * 5 / 2};
    }
    case LinearKind::mamba2: {
      // Groups of heads share the products of keys and queries.
      const int64_t d = heads * V, shared = K * l.key_heads * heads / l.heads;
      return {4 * K * d + C * d + C * shared, 10 * K * d + 2 * C * d + 3 * C * shared};
    }
    case LinearKind::mamba1: {
      // For each channel and state: decay, update and sum. None of them is a matrix product.
      const int64_t forward = 9 * K * heads * V;
      return {forward, forward * 5 / 2};
    }
  }
  return {};
}

void add_mixers(LayerBuilder& b) {
  const LayerKind& kind = b.kind();
  if (kind.attention) {
    const Attention& a = *kind.attention;
    a.compressed ? add_compressed(b) : a.latent ? add_latent(b) : add_multi_head(b);
  }
  if (kind.convolution) add_short_convolution(b, *kind.convolution);
  if (!kind.linear) return;
  constexpr void (*kAdd[])(LayerBuilder&, const LinearMixer&) = {
      add_gated_delta, add_kimi_delta, add_lightning, add_mamba2, add_mamba1};  // by LinearKind
  kAdd[size_t(kind.linear->kind)](b, *kind.linear);
}

}  // namespace mpt::models
