// SPDX-License-Identifier: Apache-2.0
#include "core/model_spec.h"

#include <set>

#include "base/json.h"

namespace mpt {
namespace {

constexpr double kMaxParameters = 1e15;  // their bytes and FLOP then stay far inside 64 bits
constexpr int64_t kMostLayers = 100000;
constexpr size_t kMostKinds = 128;

double rough_mixers(const LayerKind& kind, double hidden) {
  double weights = 0.0;
  if (kind.attention) {
    const Attention& a = *kind.attention;
    const double heads = double(a.heads), values = double(a.value_head_dim());
    weights += 2.0 * hidden * std::max(double(a.head_dim), values) * (2.0 * heads + double(a.kv_heads));
    if (a.latent) {
      const LatentAttention& l = *a.latent;
      const double head = double(l.nope_head_dim + l.rope_head_dim + l.value_head_dim);
      weights += (hidden + heads * head) * double(l.query_rank + l.key_value_rank);
    }
    if (a.index) weights += 2.0 * hidden * double(a.index->heads) * double(a.index->head_dim);
  }
  if (kind.linear) {
    const LinearMixer& l = *kind.linear;
    weights +=
        4.0 * hidden * (double(l.heads) * double(l.head_dim) + double(l.key_heads) * double(l.key_dim));
  }
  if (kind.convolution) weights += 4.0 * hidden * hidden;
  return weights;
}

// Rough number of weights of all matrices. It serves only to refuse sizes with counts that would overflow.
double rough_parameters(const ModelSpec& m) {
  const double hidden = double(m.hidden);
  double largest = 0.0;
  for (const auto& [name, kind] : m.layers.kinds) {
    double layer = rough_mixers(kind, hidden);
    if (kind.mlp) layer += 3.0 * hidden * double(kind.mlp->ffn_hidden);
    if (kind.moe) {
      const MixtureOfExperts& e = *kind.moe;
      layer += hidden * (3.0 * double(e.experts) * double(e.expert.ffn_hidden) +
                         3.0 * double(e.shared_ffn_hidden) + double(e.experts + e.zero_experts));
    }
    largest = std::max(largest, layer);
  }
  return double(m.layers.count()) * largest + hidden * (2.0 * double(m.vocab) + double(m.max_positions));
}

class KindCheck {
 public:
  KindCheck(const ModelSpec& model, const std::string& name, const LayerKind& kind, JsonProblems& problems)
      : model_(model),
        kind_(kind),
        problems_(problems),
        at_("/layers/kinds/" + detail::escape_pointer(name)) {}

  void check() {
    if (!kind_.has_mixer() && !kind_.has_mlp())
      problems_.add(at_, "a kind without parts", "attention, another mixer, an MLP or experts");
    if (kind_.attention) check_attention(*kind_.attention);
    if (kind_.linear && kind_.linear->heads % kind_.linear->key_heads != 0)
      problems_.add(at_ + "/linear/key_heads",
                    fmt::format("{} key heads for {} heads", kind_.linear->key_heads, kind_.linear->heads),
                    "a divisor of the number of heads");
    if (kind_.moe) check_experts(*kind_.moe);
  }

 private:
  void check_attention(const Attention& a) {
    const std::string at = at_ + "/attention";
    if (a.heads % a.kv_heads != 0)
      problems_.add(at + "/kv_heads", fmt::format("{} key-value heads for {} heads", a.kv_heads, a.heads),
                    "a divisor of the number of heads");
    if (a.rotary && (model_.position == PositionKind::none || model_.position == PositionKind::alibi))
      problems_.add(at + "/rotary", fmt::format("beside positions \"{}\"", enum_name(model_.position)),
                    "the model's position to be \"rotary\"");
    if (a.rotary && !a.latent && a.head_dim % 2 != 0)
      problems_.add(at + "/head_dim", fmt::format("odd head size {}", a.head_dim),
                    "an even size for rotary positions");
    if (a.window && a.chunk) problems_.add(at + "/chunk", "beside a window", "one of the two");
  }

  void check_experts(const MixtureOfExperts& e) {
    const std::string at = at_ + "/moe";
    if (e.experts_per_token > e.experts + e.zero_experts)
      problems_.add(at + "/experts_per_token",
                    fmt::format("{} of {} experts", e.experts_per_token, e.experts),
                    "at most the number of experts");
    if (e.experts % e.expert_groups != 0) {
      problems_.add(at + "/expert_groups", fmt::format("{} groups of {} experts", e.expert_groups, e.experts),
                    "a divisor of the number of experts");
    } else if (e.groups_per_token > e.expert_groups ||
               e.groups_per_token * (e.experts / e.expert_groups) < e.experts_per_token) {
      problems_.add(at + "/groups_per_token",
                    fmt::format("{} of {} groups for {} of {} experts", e.groups_per_token, e.expert_groups,
                                e.experts_per_token, e.experts),
                    "at most the number of groups, and enough for the experts of a token");
    }
  }

  const ModelSpec& model_;
  const LayerKind& kind_;
  JsonProblems& problems_;
  const std::string at_;
};

void check_order(const LayerList& layers, JsonProblems& problems) {
  std::set<std::string> used;
  for (size_t r = 0; r < layers.runs.size(); ++r) {
    const std::string at = fmt::format("/layers/order/{}/of", r);
    if (layers.runs[r].of.empty()) problems.add(at, "an empty list", "names of kinds");
    for (const std::string& name : layers.runs[r].of) {
      if (!layers.kinds.contains(name) && !used.contains(name))
        problems.add(at, fmt::format("the unknown kind \"{}\"", name.substr(0, 80)), "a key of \"kinds\"");
      used.insert(name);
    }
  }
  for (const auto& [name, kind] : layers.kinds)
    if (!used.contains(name))
      problems.add("/layers/kinds/" + detail::escape_pointer(name), "a kind that no layer is of",
                   "its name in \"order\"", "remove it");
  if (layers.count() < 1 || layers.count() > kMostLayers)
    problems.add("/layers/order", fmt::format("{} layers", layers.count()),
                 fmt::format("1 to {} layers", kMostLayers));
  if (layers.kinds.size() > kMostKinds)
    problems.add("/layers/kinds", fmt::format("{} kinds of layers", layers.kinds.size()),
                 fmt::format("at most {}", kMostKinds));
}

bool rotates(const LayerKind& kind) { return kind.attention && kind.attention->rotary; }

// Removes fields of a rotary scaling that its kind does not use.
void drop_unused(Json& json) {
  if (json.is_object() && json.contains("scaling") && json["scaling"].is_object()) {
    static constexpr std::pair<const char*, const char*> kUsed[] = {
#include "generated/ScalingFields.inc"
    };
    Json& scaling = json["scaling"];
    Json kept{{"kind", scaling.at("kind")}};
    for (const auto& [kind, name] : kUsed)
      if ((kind == kept["kind"] || *kind == '*') && scaling.contains(name)) kept[name] = scaling[name];
    scaling = kept;
  }
  for (Json& value : json)
    if (value.is_structured()) drop_unused(value);
}

}  // namespace

const Attention& ModelSpec::attention() const {
  static const Attention none;
  const LayerKind* const kind = layers.first([](const LayerKind& k) { return k.attention.has_value(); });
  return kind != nullptr ? *kind->attention : none;
}

const Mlp& ModelSpec::mlp() const {
  static const Mlp none;
  const LayerKind* const kind = layers.first([](const LayerKind& k) { return k.mlp.has_value(); });
  return kind != nullptr ? *kind->mlp : moe() != nullptr ? moe()->expert : none;
}

const MixtureOfExperts* ModelSpec::moe() const {
  const LayerKind* const kind = layers.first([](const LayerKind& k) { return k.moe.has_value(); });
  return kind != nullptr ? &*kind->moe : nullptr;
}

bool same_model(ModelSpec a, const ModelSpec& b) {
  a.name = b.name;
  a.type = b.type;
  a.hub_id = b.hub_id;
  if (a.norm == NormKind::rms_norm) a.norm_bias = b.norm_bias;  // an RMS norm has no bias
  return a == b;
}

void validate_model(const ModelSpec& model, const std::string& file) {
  JsonProblems problems(file);
  if (model.name.empty()) problems.add("/name", "an empty text", "the model's name");
  check_order(model.layers, problems);
  for (const auto& [name, kind] : model.layers.kinds) KindCheck(model, name, kind, problems).check();
  if (model.position == PositionKind::rotary && !model.layers.any(rotates))
    problems.add("/position", "rotary positions that no layer has",
                 "an object \"rotary\" in the attention of a kind, such as {\"base\": 10000}");
  const bool behind =
      model.norm_placement == NormPlacement::post || model.norm_placement == NormPlacement::sandwich;
  if (model.residual_scale && behind)
    problems.add("/residual_scale", "a factor on what norms give", "norms before attention and MLP alone");
  if (rough_parameters(model) > kMaxParameters)
    problems.add("", fmt::format("sizes that make {:.2g} parameters", rough_parameters(model)),
                 fmt::format("at most {:.0e}", kMaxParameters));
  problems.throw_if_any();
}

std::string model_spec_to_text(const ModelSpec& model) {
  Json json = to_json(model);
  if (model.norm != NormKind::layer_norm) json.erase("norm_bias");
  drop_unused(json);
  return json_text(json, 2) + "\n";
}

}  // namespace mpt
