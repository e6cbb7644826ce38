// SPDX-License-Identifier: Apache-2.0
#include "models/hf_weights.h"

#include "base/json.h"
#include "models/family.h"
#include "models/hf_config.h"

namespace mpt::models {
namespace {

class TensorList {
 public:
  /// A whole tensor [rows, columns], or [rows].
  HuggingFaceTensor& add(const std::string& source, const std::string& name, int64_t rows,
                         int64_t columns = 1, int64_t row = 0) {
    HuggingFaceTensor t{source, name, row, rows, columns, {rows}, 0, columns};
    if (columns > 1) t.shape.push_back(columns);
    return list_.emplace_back(std::move(t));
  }
  void add_transposed(const std::string& source, const std::string& name, int64_t rows, int64_t columns) {
    HuggingFaceTensor& t = add(source, name, rows, columns);
    t.shape = {columns, rows};
    t.row_stride = 1;
    t.column_stride = rows;
  }
  void add_norm(const std::string& source, const std::string& name, int64_t width, const WeightNames& names) {
    add(source + ".weight", name + ".scale", width).added = names.norms_add_one ? 1.0 : 0.0;
  }
  size_t size() const { return list_.size(); }
  /// Marks all tensors from `first` on as parts of next-token modules.
  void mark_module(size_t first) {
    for (size_t i = first; i < list_.size(); ++i) list_[i].of_module = true;
  }
  std::vector<HuggingFaceTensor> take() { return std::move(list_); }

 private:
  std::vector<HuggingFaceTensor> list_;
};

void add_gpt2_layer(TensorList& list, const ModelSpec& m, int64_t layer) {
  const std::string from = fmt::format("transformer.h.{}.", layer), to = fmt::format("layers.{}.", layer);
  const auto norm = [&](const char* source, const char* name) {
    list.add(from + source + ".weight", to + name + ".scale", m.hidden);
    list.add(from + source + ".bias", to + name + ".bias", m.hidden);
  };
  const auto linear = [&](const char* source, const char* name, int64_t rows, int64_t columns) {
    list.add_transposed(from + source + ".weight", to + name + ".weight", rows, columns);
    list.add(from + source + ".bias", to + name + ".bias", rows);
  };
  norm("ln_1", "attention.norm");
  linear("attn.c_attn", "attention.qkv", 3 * m.hidden, m.hidden);
  linear("attn.c_proj", "attention.output", m.hidden, m.hidden);
  norm("ln_2", "mlp.norm");
  linear("mlp.c_fc", "mlp.up", m.mlp().ffn_hidden, m.hidden);
  linear("mlp.c_proj", "mlp.down", m.hidden, m.mlp().ffn_hidden);
}

struct ModuleNames {
  const char *prefix, *embedding_norm, *norm, *projection, *head_norm;  // prefix: null if it is the layer's
};
constexpr ModuleNames kDeepSeekModule{nullptr, "enorm", "hnorm", "eh_proj", "shared_head.norm"};
constexpr ModuleNames kQwenModule{"mtp.", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm"};

// Tensors of one layer, for the families that are like Llama.
class LayerTensors {
 public:
  LayerTensors(TensorList& list, const ModelSpec& m, const WeightNames& names, int64_t layer,
               const HasTensor& has, const std::string& from = "")
      : list_(list),
        has_(has),
        m_(m),
        kind_(m.layers[std::min(layer, m.layers.count() - 1)]),
        names_(names),
        from_(from.empty() ? fmt::format("model.layers.{}.", layer) : from),
        to_(fmt::format("layers.{}.", layer)) {}

  void add() {
    const bool before = m_.norm_placement != NormPlacement::post;
    const bool behind = !before || m_.norm_placement == NormPlacement::sandwich;
    if (before) norm("input_layernorm", "attention.norm");
    add_mixer();
    if (behind) {
      norm("post_attention_layernorm", "attention.post_norm");
      if (before) norm("pre_feedforward_layernorm", "mlp.norm");
      norm("post_feedforward_layernorm", "mlp.post_norm");
    } else {
      norm("post_attention_layernorm", "mlp.norm");
    }
    if (kind_.mlp) return add_dense("mlp.", "mlp.", *kind_.mlp);
    names_.experts == ExpertTensors::fused ? add_fused_experts() : add_experts();
  }

  // DeepSeek's modules use the number of an additional layer, and have copies of the table and the head.
  void add_next_token(int64_t depth) {
    const ModuleNames names = names_.modules == ModuleTensors::mtp ? kQwenModule : kDeepSeekModule;
    const std::string from = names.prefix != nullptr ? names.prefix : from_;
    const std::string ours = fmt::format("next_token.{}.", depth);
    const auto own_norm = [&](const char* source, const char* name) {
      list_.add_norm(from + source, ours + name, m_.hidden, names_);
    };
    own_norm(names.embedding_norm, "embedding_norm");
    own_norm(names.norm, "norm");
    // One projection has both halves in adjacent columns.
    for (const bool second : {false, true}) {
      HuggingFaceTensor& t = list_.add(from + names.projection + ".weight",
                                       ours + (second ? "projection" : "embedding_projection") + ".weight",
                                       m_.hidden, m_.hidden);
      t.shape.back() = t.row_stride = 2 * m_.hidden;
      t.first = second ? m_.hidden : 0;
    }
    add();
    own_norm(names.head_norm, "head_norm");
    if (names_.modules == ModuleTensors::mtp) return;
    list_.add(from_ + "embed_tokens.weight", "embedding.weight", m_.vocab, m_.hidden).copy = true;
    const char* const head = m_.tied_embeddings ? "embedding.weight" : "head.weight";
    list_.add(from_ + "shared_head.head.weight", head, m_.vocab, m_.hidden).copy = true;
  }

 private:
  void add_mixer() {
    if (kind_.linear) return add_gated_delta(*kind_.linear);
    kind_.attention->latent ? add_latents() : add_heads();
  }
  void norm(const char* source, const char* name) { add_norm(source, name, m_.hidden); }
  void add_norm(const std::string& source, const std::string& name, int64_t width) {
    list_.add_norm(from_ + source, to_ + name, width, names_);
  }
  void linear(const std::string& source, const std::string& name, int64_t rows, int64_t columns, bool bias,
              int64_t row = 0) {
    list_.add(from_ + source + ".weight", to_ + name + ".weight", rows, columns, row);
    if (bias) list_.add(from_ + source + ".bias", to_ + name + ".bias", rows, 1, row);
  }

  void add_heads() {
    const Attention& a = *kind_.attention;
    const int64_t queries = a.heads * a.head_dim, keys = a.kv_heads * a.head_dim;
    if (a.output_gate == OutputGate::elementwise)
      add_gated_queries(a);
    else
      linear("self_attn.q_proj", "attention.qkv", queries, m_.hidden, a.qkv_bias);
    linear("self_attn.k_proj", "attention.qkv", keys, m_.hidden, a.qkv_bias, queries);
    linear("self_attn.v_proj", "attention.qkv", keys, m_.hidden, a.qkv_bias, queries + keys);
    if (a.query_key_norm != QueryKeyNorm::none) {
      const bool full = a.query_key_norm == QueryKeyNorm::full;
      add_norm("self_attn.q_norm", "attention.query_norm", full ? queries : a.head_dim);
      add_norm("self_attn.k_norm", "attention.key_norm", full ? keys : a.head_dim);
    }
    if (a.sinks) list_.add(from_ + "self_attn.sinks", to_ + "attention.sinks", a.heads);
    linear("self_attn.o_proj", "attention.output", m_.hidden, queries, a.output_bias);
  }

  // Rows from `theirs` on of the source's `all` rows become `rows` rows of ours, from `ours` on.
  void add_rows(const std::string& source, const std::string& name, int64_t all, int64_t columns,
                int64_t theirs, int64_t ours, int64_t rows, const char* kind = ".weight") {
    HuggingFaceTensor& t = list_.add(from_ + source + kind, to_ + name + kind, rows, columns, ours);
    t.shape.front() = all;
    t.first = theirs * columns;
  }

  // For each head the query, then the gate on its output.
  void add_gated_queries(const Attention& a) {
    const int64_t d = a.head_dim, queries = a.heads * d, gate = queries + 2 * a.kv_heads * d;
    const auto add = [&](const char* kind, int64_t columns) {
      for (int64_t h = 0; h < a.heads; ++h) {
        add_rows("self_attn.q_proj", "attention.qkv", 2 * queries, columns, 2 * h * d, h * d, d, kind);
        add_rows("self_attn.q_proj", "attention.qkv", 2 * queries, columns, (2 * h + 1) * d, gate + h * d, d,
                 kind);
      }
    };
    add(".weight", m_.hidden);
    if (a.qkv_bias) add(".bias", 1);
  }

  // Our order: queries, keys, values and output gates of all heads, then b and a.
  void add_gated_delta(const LinearMixer& l) {
    const int64_t keys = l.key_heads * l.key_dim, values = l.heads * l.head_dim, channels = 2 * keys + values;
    const std::string from = "linear_attn.", input = "mixer.input";
    // Qwen3.5's models with experts differ from Qwen3-Next's only in this.
    if (names_.fused_linear_inputs && !(has_ && has_(from_ + "linear_attn.in_proj_qkv.weight"))) {
      add_fused_inputs(l, keys, values);
    } else {
      linear(from + "in_proj_qkv", input, channels, m_.hidden, false);
      linear(from + "in_proj_z", input, values, m_.hidden, false, channels);
      linear(from + "in_proj_b", input, l.heads, m_.hidden, false, channels + values);
      linear(from + "in_proj_a", input, l.heads, m_.hidden, false, channels + values + l.heads);
    }
    list_.add(from_ + from + "conv1d.weight", to_ + "mixer.convolution.weight", channels, l.convolution)
        .shape = {channels, 1, l.convolution};
    list_.add(from_ + from + "A_log", to_ + "mixer.decay", l.heads);
    list_.add(from_ + from + "dt_bias", to_ + "mixer.step_bias", l.heads);
    list_.add(from_ + from + "norm.weight", to_ + "mixer.norm.scale", l.head_dim);
    linear(from + "out_proj", "mixer.output", m_.hidden, values, false);
  }

  // Published order, for each key head: its query and key, then values and gates of the heads that share it.
  void add_fused_inputs(const LinearMixer& l, int64_t keys, int64_t values) {
    const int64_t shared = l.heads / l.key_heads, wide = shared * l.head_dim;
    const auto add = [&](const char* source, const std::vector<std::pair<int64_t, int64_t>>& parts) {
      const auto of_key_head = sum_of<int64_t>(parts, [](const auto& part) { return part.second; });
      for (int64_t h = 0, theirs = 0; h < l.key_heads; ++h)
        for (const auto& [ours, rows] : parts) {
          add_rows(source, "mixer.input", of_key_head * l.key_heads, m_.hidden, theirs, ours + h * rows,
                   rows);
          theirs += rows;
        }
    };
    add("linear_attn.in_proj_qkvz",
        {{0, l.key_dim}, {keys, l.key_dim}, {2 * keys, wide}, {2 * keys + values, wide}});
    const int64_t gates = 2 * keys + 2 * values;
    add("linear_attn.in_proj_ba", {{gates, shared}, {gates + l.heads, shared}});
  }

  // Published rows of a rotary pair are neighbours; ours are half of the rotary part apart.
  void add_pairs(const std::string& source, const std::string& name, int64_t all, int64_t columns,
                 int64_t row, int64_t rope, const char* kind = ".weight") {
    for (const int64_t half : {0, 1}) {
      auto& t = list_.add(from_ + source + kind, to_ + name + kind, rope / 2, columns, row + half * rope / 2);
      t.shape.front() = all;
      t.first = (row + half) * columns;
      t.row_stride = 2 * columns;
    }
  }
  void add_part(const std::string& source, const std::string& name, int64_t all, int64_t columns, int64_t row,
                int64_t rows, const char* kind = ".weight") {
    add_rows(source, name, all, columns, row, row, rows, kind);
  }

  void add_queries(const std::string& source, const std::string& name, int64_t columns) {
    const Attention& a = *kind_.attention;
    const LatentAttention& l = *a.latent;
    const int64_t all = a.heads * a.head_dim;
    for (int64_t h = 0; h < a.heads; ++h) {
      if (l.nope_head_dim > 0) add_part(source, name, all, columns, h * a.head_dim, l.nope_head_dim);
      add_pairs(source, name, all, columns, h * a.head_dim + l.nope_head_dim, l.rope_head_dim);
    }
  }

  void add_latents() {
    const Attention& a = *kind_.attention;
    const LatentAttention& l = *a.latent;
    const std::string self = "self_attn.", to = "attention.";
    if (l.query_rank > 0) {
      linear(self + "q_a_proj", to + "query_down", l.query_rank, m_.hidden, a.qkv_bias);
      add_norm(self + "q_a_layernorm", to + "query_latent_norm", l.query_rank);
      add_queries(self + "q_b_proj", to + "query_up", l.query_rank);
    } else {
      add_queries(self + "q_proj", to + "query", m_.hidden);
    }
    const std::string down = self + "kv_a_proj_with_mqa", ours = to + "key_value_down";
    const int64_t all = l.key_value_rank + l.rope_head_dim;
    add_part(down, ours, all, m_.hidden, 0, l.key_value_rank);
    add_pairs(down, ours, all, m_.hidden, l.key_value_rank, l.rope_head_dim);
    if (a.qkv_bias) {
      add_part(down, ours, all, 1, 0, l.key_value_rank, ".bias");
      add_pairs(down, ours, all, 1, l.key_value_rank, l.rope_head_dim, ".bias");
    }
    add_norm(self + "kv_a_layernorm", to + "key_value_norm", l.key_value_rank);
    linear(self + "kv_b_proj", to + "key_value_up", a.heads * (l.nope_head_dim + l.value_head_dim),
           l.key_value_rank, false);
    linear(self + "o_proj", to + "output", m_.hidden, a.heads * l.value_head_dim, a.output_bias);
  }

  void add_dense(const std::string& from, const std::string& to, const Mlp& mlp) {
    linear(from + "gate_proj", to + "up", mlp.ffn_hidden, m_.hidden, mlp.bias);
    linear(from + "up_proj", to + "up", mlp.ffn_hidden, m_.hidden, mlp.bias, mlp.ffn_hidden);
    linear(from + "down_proj", to + "down", m_.hidden, mlp.ffn_hidden, mlp.bias);
  }

  void add_experts() {
    const MixtureOfExperts& e = *kind_.moe;
    const int64_t width = e.expert.ffn_hidden;
    const bool mixtral = names_.experts == ExpertTensors::mixtral;
    const std::string moe = mixtral ? "block_sparse_moe." : "mlp.";
    list_.add(from_ + moe + "gate.weight", to_ + "mlp.router.weight", e.experts, m_.hidden);
    // EXAONE-MoE's files have no "gate." there.
    const std::string bias = from_ + moe + "e_score_correction_bias";
    if (e.router_bias)
      list_.add(has_ && has_(bias) ? bias : from_ + moe + "gate.e_score_correction_bias",
                to_ + "mlp.router.choice_bias", e.experts);
    for (int64_t i = 0; i < e.experts; ++i) {
      const std::string expert = moe + fmt::format("experts.{}.", i);
      // w1 is the gate; it multiplies w3.
      linear(expert + (mixtral ? "w1" : "gate_proj"), "mlp.experts.up", width, m_.hidden, false,
             2 * i * width);
      linear(expert + (mixtral ? "w3" : "up_proj"), "mlp.experts.up", width, m_.hidden, false,
             (2 * i + 1) * width);
      linear(expert + (mixtral ? "w2" : "down_proj"), "mlp.experts.down", m_.hidden, width, false,
             i * m_.hidden);
    }
    if (e.shared_ffn_hidden == 0) return;
    Mlp shared = e.expert;
    shared.ffn_hidden = e.shared_ffn_hidden;
    add_dense(e.shared_gate ? "mlp.shared_expert." : "mlp.shared_experts.", "mlp.shared.", shared);
    if (e.shared_gate)
      list_.add(from_ + "mlp.shared_expert_gate.weight", to_ + "mlp.shared_gate.weight", 1, m_.hidden);
  }

  // All experts are one tensor, transposed; gate and up alternate.
  void add_fused_experts() {
    const MixtureOfExperts& e = *kind_.moe;
    const int64_t width = e.expert.ffn_hidden, hidden = m_.hidden, experts = e.experts;
    const std::string ours = to_ + "mlp.experts.", theirs = from_ + "mlp.experts.";
    list_.add(from_ + "mlp.router.weight", to_ + "mlp.router.weight", experts, hidden);
    list_.add(from_ + "mlp.router.bias", to_ + "mlp.router.bias", experts);
    const auto part = [&](const std::string& source, const std::string& name, int64_t rows, int64_t columns,
                          int64_t row, std::vector<int64_t> shape, int64_t first, int64_t row_stride,
                          int64_t column_stride) {
      HuggingFaceTensor& t = list_.add(theirs + source, ours + name, rows, columns, row);
      t.shape = std::move(shape);
      t.first = first;
      t.row_stride = row_stride;
      t.column_stride = column_stride;
    };
    const auto each = [&](auto&& body) {
      for (int64_t i = 0; i < 2 * experts; ++i) body(i / 2, i % 2, i * width);
    };
    each([&](int64_t i, int64_t half, int64_t row) {
      part("gate_up_proj", "up.weight", width, hidden, row, {experts, hidden, 2 * width},
           i * hidden * 2 * width + half, 2, 2 * width);
    });
    each([&](int64_t i, int64_t half, int64_t row) {
      part("gate_up_proj_bias", "up.bias", width, 1, row, {experts, 2 * width}, i * 2 * width + half, 2, 1);
    });
    for (int64_t i = 0; i < experts; ++i)
      part("down_proj", "down.weight", hidden, width, i * hidden, {experts, width, hidden},
           i * width * hidden, 1, hidden);
    part("down_proj_bias", "down.bias", experts * hidden, 1, 0, {experts, hidden}, 0, 1, 1);
  }

  TensorList& list_;
  const HasTensor& has_;
  const ModelSpec& m_;
  const LayerKind& kind_;
  const WeightNames names_;
  const std::string from_, to_;
};

}  // namespace

std::string weight_type(const ModelSpec& model) {
  if (const Family* const own = find_family(model.type); own != nullptr && own->rotates_pairs)
    refuse_input(fmt::format("model \"{}\"", model.name), "rotary positions of neighbouring pairs",
                 "those of both halves of a head, as mpt-run has them", "train it from the start");
  ModelSpec m = with_usual_training(model);
  // Weights do not depend on the chunks of the training form.
  m.layers.change([](LayerKind& kind) {
    if (kind.linear) kind.linear->chunk = LinearMixer{}.chunk;
  });
  std::vector<std::string> types = family_types();
  std::erase_if(types, [](const std::string& type) { return !find_family(type)->weights; });
  if (std::string type = written_type(m, types); !type.empty()) return type;
  refuse_input(fmt::format("model \"{}\"", m.name), words_of(unwritten_value(m)),
               "a model made like one of the types that docs/training.md lists under Hugging Face models",
               "train it from the start and keep its checkpoints");
}

std::string hugging_face_config(const ModelSpec& m) {
  return write_hugging_face(with_usual_training(m), weight_type(m)).dump(2) + "\n";
}

std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelSpec& m, const HasTensor& has) {
  const WeightNames names = *find_family(weight_type(m))->weights;
  const bool gpt2 = names.layers == LayerTensorNames::gpt2;
  TensorList list;
  list.add(gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight", "embedding.weight", m.vocab,
           m.hidden);
  if (gpt2) list.add("transformer.wpe.weight", "positions.weight", m.max_positions, m.hidden);
  for (int64_t layer = 0; layer < m.layers.count(); ++layer)
    gpt2 ? add_gpt2_layer(list, m, layer) : LayerTensors(list, m, names, layer, has).add();
  list.add_norm(gpt2 ? "transformer.ln_f" : "model.norm", "head.norm", m.hidden, names);
  if (gpt2) list.add("transformer.ln_f.bias", "head.norm.bias", m.hidden);
  for (int64_t depth = 0; depth < m.next_token_layers; ++depth) {
    const std::string from = names.modules == ModuleTensors::mtp ? fmt::format("mtp.layers.{}.", depth) : "";
    const size_t first = list.size();
    LayerTensors(list, m, names, m.layers.count() + depth, has, from).add_next_token(depth);
    list.mark_module(first);
  }
  if (!m.tied_embeddings) list.add("lm_head.weight", "head.weight", m.vocab, m.hidden);
  return list.take();
}

}  // namespace mpt::models
