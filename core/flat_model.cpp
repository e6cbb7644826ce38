// SPDX-License-Identifier: Apache-2.0
#include "core/flat_model.h"

#include <cmath>
#include <initializer_list>
#include <string>

#include "base/json.h"
#include "core/layer_list.h"

namespace mpt {
namespace {

constexpr double kMostLayers = 100000;

void move_key(Json& from, const char* key, Json& to, const char* name) {
  const auto found = from.find(key);
  if (found == from.end()) return;
  if (!found->is_null()) to[name] = *found;
  from.erase(key);
}

void move_keys(Json& from, std::initializer_list<std::pair<const char*, const char*>> keys, Json& to) {
  for (const auto& [key, name] : keys) move_key(from, key, to, name);
}

int64_t taken_number(Json& from, const char* key, int64_t otherwise) {
  const auto found = from.find(key);
  if (found == from.end()) return otherwise;
  const bool fits = found->is_number_integer() && std::fabs(found->get<double>()) <= kMostLayers;
  const int64_t number = fits ? found->get<int64_t>() : otherwise;
  from.erase(key);
  return number;
}

Json attention_of(Json& model) {
  Json attention = Json::object(), rotary = Json::object();
  move_keys(model,
            {{"heads", "heads"},
             {"kv_heads", "kv_heads"},
             {"head_dim", "head_dim"},
             {"latent", "latent"},
             {"qkv_bias", "qkv_bias"},
             {"attention_output_bias", "output_bias"},
             {"query_key_norm", "query_key_norm"},
             {"attention_sinks", "sinks"}},
            attention);
  move_keys(model, {{"rotary_base", "base"}, {"rotary_fraction", "fraction"}, {"rotary_scaling", "scaling"}},
            rotary);
  model.erase("attention");
  // Latent attention turned part of its keys whatever the model's positions.
  if (model.value("position", Json()) == "rotary" || attention.contains("latent"))
    attention["rotary"] = rotary;
  return attention;
}

Json experts_of(Json& model, const Json& mlp) {
  const auto found = model.find("moe");
  if (found == model.end() || !found->is_object()) return {};
  Json moe = *found;
  moe["expert"] = mlp;
  move_key(moe, "expert_ffn_hidden", moe["expert"], "ffn_hidden");
  return moe;
}

}  // namespace

void list_layers(Json& model) {
  if (!model.is_object() || !model.contains("heads") || !model.contains("layers") ||
      !model["layers"].is_number_integer())
    return;
  const int64_t layers = taken_number(model, "layers", 0);
  const int64_t interval = std::max<int64_t>(1, taken_number(model, "sliding_window_interval", 1));
  Json window;
  move_key(model, "sliding_window", window, "window");
  const Json attention = attention_of(model);
  Json mlp = Json::object();
  move_keys(model,
            {{"ffn_hidden", "ffn_hidden"},
             {"gated_mlp", "gated"},
             {"activation", "activation"},
             {"activation_limit", "activation_limit"},
             {"mlp_bias", "bias"}},
            mlp);
  Json moe = experts_of(model, mlp);
  model.erase("moe");
  const int64_t leading = moe.is_object() ? taken_number(moe, "leading_dense_layers", 0) : 0;
  const int64_t every = moe.is_object() ? std::max<int64_t>(1, taken_number(moe, "layer_interval", 1)) : 1;
  Json kinds = Json::object();
  std::vector<std::string> names;
  for (int64_t l = 0; l < layers; ++l) {
    const bool windowed = window.is_object() && l % interval == 0;
    const bool experts = moe.is_object() && l >= leading && (l - leading + 1) % every == 0;
    names.push_back(std::string(windowed ? "window" : "attention") + (experts ? "_experts" : "_mlp"));
    if (kinds.contains(names.back())) continue;
    Json kind{{"attention", attention}};
    if (windowed) kind["attention"].update(window);
    kind[experts ? "moe" : "mlp"] = experts ? moe : mlp;
    kinds[names.back()] = kind;
  }
  model["layers"] = Json{{"kinds", kinds}, {"order", to_json(runs_of(names))}};
}

}  // namespace mpt
