// SPDX-License-Identifier: Apache-2.0
#pragma once

// ModelSpec: what a decoder transformer is, whatever machine it runs on and however it is split. A plain
// value that travels inside a plan. Knowledge about models (importing, counting, operators) is in models/.

#include <cstdint>
#include <string>

#include "base/fields.h"
#include "core/layer_list.h"

namespace mpt {

enum class NormKind { layer_norm, rms_norm };
/// pre: one norm before attention and one before the MLP. shared: one norm feeds both (parallel residual).
/// sandwich: before and after each of the two (Gemma 2). post: behind each of the two (OLMo 2).
enum class NormPlacement { pre, shared, sandwich, post };
enum class PositionKind { none, learned, rotary, alibi };

struct ModelSpec {
  std::string name;
  std::string type;    // model_type of the config.json that it was read from; empty: another kind of file
  std::string hub_id;  // on the Hugging Face hub; empty: unknown
  int64_t hidden = 0;
  int64_t vocab = 0;
  int64_t max_positions = 0;  // longest sequence; rows of the table when positions are learned
  NormKind norm = NormKind::layer_norm;
  NormPlacement norm_placement = NormPlacement::pre;
  bool norm_bias = true;  // layer norm only: a bias beside the scale
  double norm_epsilon = 1e-5;
  bool parallel_residual = false;  // attention and MLP read the same residual (GPT-NeoX, Falcon)
  bool embedding_norm = false;     // a norm after the embedding (BLOOM)
  PositionKind position = PositionKind::learned;
  LayerList layers;
  bool tied_embeddings = false;
  bool head_bias = false;
  std::optional<double> embedding_scale;  // multiplies what the embedding gives (Gemma)
  std::optional<double> residual_scale;   // multiplies what attention and MLP add (Granite)
  std::optional<double> logit_scale;      // multiplies logits (Granite, Cohere)
  std::optional<double> logit_cap;        // logits are cap * tanh(logit / cap) (Gemma 2)
  // Multi-token-prediction layers behind the last (DeepSeek-V3), of the last layer's kind; not in `layers`.
  int64_t next_token_layers = 0;
  // Streams of the residual, which every part of a layer mixes to one and spreads its result over
  // (hyper-connections, arXiv:2512.24880).
  int64_t residual_streams = 1;
  // The residual is stored after every so many layers; 0: never. Each part of a layer reads a weighted mean
  // of the stored residuals and the present one (Kimi K3).
  int64_t residual_block = 0;
  // Width of a second embedding of each token that every layer has for itself; 0: none (Gemma 3n).
  int64_t layer_embedding = 0;
  int64_t layer_vocab = 0;  // rows of its table; 0: as many as `vocab`

  bool operator==(const ModelSpec&) const = default;

  /// Of the lowest layer that has it: for what takes all layers to be alike in it.
  const Attention& attention() const;
  /// Of the lowest layer with a dense MLP; without one, a routed expert.
  const Mlp& mlp() const;
  /// Of the lowest layer that has experts; null: none has.
  const MixtureOfExperts* moe() const;

  static void describe(auto& v);
};

/// Whether both are the same, whatever they are called.
bool same_model(ModelSpec a, const ModelSpec& b);

/// Checks what single-field ranges cannot: heads divide, runs name kinds, experts at least top-k.
/// Throws UserError naming `file`.
void validate_model(const ModelSpec& model, const std::string& file);

std::string model_spec_to_text(const ModelSpec& model);

void ModelSpec::describe(auto& v) {
  using T = ModelSpec;
  v.field("name", &T::name, "name of the model");
  v.field("type", &T::type, "model_type of its config.json", rare_field());
  v.field("hub_id", &T::hub_id, "its id on the Hugging Face hub", rare_field());
  v.field("hidden", &T::hidden, "width of the residual stream", between(1, 1 << 24));
  v.field("vocab", &T::vocab, "vocabulary size", between(1, 1 << 28));
  v.field("max_positions", &T::max_positions, "longest sequence", between(1, 1 << 30));
  v.field("norm", &T::norm, "kind of normalisation");
  v.field("norm_placement", &T::norm_placement, "where norms stand in a layer", rare_field());
  v.field("norm_bias", &T::norm_bias, "layer norm has a bias", optional_field());
  v.field("norm_epsilon", &T::norm_epsilon, "epsilon of the norms", optional_field(between(0, 1)));
  v.field("parallel_residual", &T::parallel_residual, "attention and MLP read the same input", rare_field());
  v.field("embedding_norm", &T::embedding_norm, "a norm after the embedding", rare_field());
  v.field("position", &T::position, "kind of positions");
  v.field("layers", &T::layers, "decoder layers");
  v.field("tied_embeddings", &T::tied_embeddings, "the head shares the embedding's weight");
  v.field("head_bias", &T::head_bias, "bias on the output head", rare_field());
  v.field("embedding_scale", &T::embedding_scale, "factor on what the embedding gives",
          optional_field(between(1e-6, 1e6)));
  v.field("residual_scale", &T::residual_scale, "factor on what attention and MLP add to the residual",
          rare_field(between(1e-6, 1e6)));
  v.field("logit_scale", &T::logit_scale, "factor on logits", rare_field(between(1e-9, 1e9)));
  v.field("logit_cap", &T::logit_cap, "size at which logits are capped softly",
          optional_field(between(1e-3, 1e6)));
  v.field("next_token_layers", &T::next_token_layers, "multi-token-prediction layers",
          rare_field(between(0, 64)));
  v.field("residual_streams", &T::residual_streams, "streams of the residual (hyper-connections)",
          rare_field(between(1, 64)));
  v.field("residual_block", &T::residual_block,
          "layers behind which the residual is stored for those above; 0: it is not",
          rare_field(between(0, 100000)));
  v.field("layer_embedding", &T::layer_embedding, "width of the embedding of its own that a layer has",
          rare_field(between(0, 1 << 24)));
  v.field("layer_vocab", &T::layer_vocab, "rows of the layers' embeddings; 0: as the vocabulary",
          rare_field(between(0, 1 << 28)));
}

}  // namespace mpt
