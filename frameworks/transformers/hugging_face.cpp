// SPDX-License-Identifier: Apache-2.0
#include "frameworks/transformers/hugging_face.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "models/hf_config.h"
#include "models/hf_weights.h"
#include "models/zoo.h"

namespace mpt::frameworks {
namespace {

bool same_architecture(ModelSpec a, const ModelSpec& b) {
  a.name = b.name;
  a.max_positions = b.max_positions;
  return a == b;
}

Json gpt_neox(const ModelSpec& m) {
  return Json{{"model_type", "gpt_neox"},
              {"architectures", {"GPTNeoXForCausalLM"}},
              {"num_hidden_layers", m.layers.count()},
              {"hidden_size", m.hidden},
              {"intermediate_size", m.mlp().ffn_hidden},
              {"num_attention_heads", m.attention().heads},
              {"vocab_size", m.vocab},
              {"max_position_embeddings", m.max_positions},
              {"hidden_act", models::hugging_face_activation(m.mlp().activation)},
              {"layer_norm_eps", m.norm_epsilon},
              {"use_parallel_residual", m.parallel_residual},
              {"rope_parameters",
               {{"rope_theta", m.attention().rotation().base},
                {"rope_type", "default"},
                {"partial_rotary_factor", m.attention().rotation().fraction}}},
              {"rotary_pct", m.attention().rotation().fraction},
              {"attention_bias", m.attention().qkv_bias},
              {"tie_word_embeddings", m.tied_embeddings}};
}

// Its table of positions has two rows more than it says.
Json opt(const ModelSpec& m) {
  return Json{{"model_type", "opt"},
              {"architectures", {"OPTForCausalLM"}},
              {"num_hidden_layers", m.layers.count()},
              {"hidden_size", m.hidden},
              {"word_embed_proj_dim", m.hidden},
              {"ffn_dim", m.mlp().ffn_hidden},
              {"num_attention_heads", m.attention().heads},
              {"vocab_size", m.vocab},
              {"max_position_embeddings", m.max_positions - 2},
              {"activation_function", models::hugging_face_activation(m.mlp().activation)},
              {"do_layer_norm_before", true},
              {"enable_bias", m.attention().qkv_bias},
              {"dropout", 0.0},
              {"attention_dropout", 0.0},
              {"layerdrop", 0.0},
              {"tie_word_embeddings", m.tied_embeddings}};
}

Json with_weights(const ModelSpec& m) { return parse_json(models::hugging_face_config(m), "config.json"); }

// What writes a config.json: the first whose text reads back as the model is right.
using Family = Json (*)(const ModelSpec&);
constexpr Family kFamilies[] = {with_weights, gpt_neox, opt};

// GPT-2's and OPT's classes drop out a tenth unless told otherwise.
bool drops_out_by_default(const Json& config) {
  const std::string type = config.value("model_type", "");
  return type == "gpt2" || type == "opt";
}

}  // namespace

std::string hub_id(const ModelSpec& model) {
  for (const models::ZooModel& known : models::zoo_models()) {
    if (!known.aliases.empty() && same_architecture(models::load_model(known.name), model))
      return known.aliases.front();
  }
  return "";
}

std::optional<std::string> hugging_face_config(const ModelSpec& model) {
  for (const Family family : kFamilies) {
    try {
      const Json config = family(model);
      if (same_architecture(models::import_hugging_face(config, "config.json"), model))
        return config.dump(2) + "\n";
    } catch (const UserError&) {
      continue;  // another family's
    }
  }
  return std::nullopt;
}

std::string add_hugging_face_model(const ModelSpec& model, Exported& exported, BalanceLoss balance) {
  std::string id = hub_id(model);
  const auto text = hugging_face_config(model);
  if (!text && !id.empty()) return id;
  if (!text) {
    exported.warnings.push_back(
        "no class of transformers that we know has this model: write config.json for your own");
    return "config.json";
  }
  Json config = parse_json(*text, "config.json");
  // The configurations on the hub leave it out.
  const bool loses_balance =
      balance == BalanceLoss::trained && model.moe() != nullptr && model.moe()->balance_loss > 0.0;
  if (loses_balance) config["output_router_logits"] = true;
  if (!id.empty() && !loses_balance && !drops_out_by_default(config)) return id;
  exported.files.push_back({"config.json", config.dump(2) + "\n"});
  return "config.json";
}

std::optional<ModelSpec> hugging_face_model(const std::string& reference, const std::filesystem::path& folder,
                                            std::string& unknown) {
  for (const models::ZooModel& known : models::zoo_models()) {
    if (std::find(known.aliases.begin(), known.aliases.end(), reference) != known.aliases.end())
      return models::load_model(known.name);
  }
  std::filesystem::path path = folder / reference;
  std::error_code error;
  if (std::filesystem::is_directory(path, error) || reference.empty()) path /= "config.json";
  if (std::filesystem::is_regular_file(path, error)) return models::load_model(path.string());
  unknown = cut_text(reference, 60);
  return std::nullopt;
}

}  // namespace mpt::frameworks
