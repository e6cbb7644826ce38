// SPDX-License-Identifier: Apache-2.0
#include "core/model_spec.h"

#include "base/json.h"

namespace mpt {
namespace {

constexpr double kMaxParameters = 1e15;  // their bytes and FLOP then stay far inside 64 bits

// Weights of all matrices, roughly: only to refuse sizes whose counts would overflow. As if every layer were
// the largest.
double rough_parameters(const ModelSpec& m) {
  const double hidden = double(m.hidden), heads = double(m.heads);
  double layer = 2.0 * hidden * double(m.head_dim) * (heads + double(m.kv_heads));
  layer += 3.0 * hidden * double(m.ffn_hidden);
  if (m.latent) {
    const LatentAttention& l = *m.latent;
    const double head = double(l.nope_head_dim + l.rope_head_dim + l.value_head_dim);
    layer += (hidden + heads * head) * double(l.query_rank + l.key_value_rank);
  }
  if (m.moe) {
    const MixtureOfExperts& e = *m.moe;
    layer +=
        hidden * (3.0 * double(e.experts) * double(e.expert_ffn_hidden) + 3.0 * double(e.shared_ffn_hidden));
  }
  return double(m.layers) * layer + hidden * (2.0 * double(m.vocab) + double(m.max_positions));
}

void check_experts(const MixtureOfExperts& e, JsonProblems& problems) {
  if (e.experts_per_token > e.experts) {
    problems.add("/moe/experts_per_token", fmt::format("{} of {} experts", e.experts_per_token, e.experts),
                 "at most the number of experts");
  }
  if (e.experts % e.expert_groups != 0) {
    problems.add("/moe/expert_groups", fmt::format("{} groups of {} experts", e.expert_groups, e.experts),
                 "a divisor of the number of experts");
  } else if (e.groups_per_token > e.expert_groups ||
             e.groups_per_token * (e.experts / e.expert_groups) < e.experts_per_token) {
    problems.add("/moe/groups_per_token",
                 fmt::format("{} of {} groups for {} of {} experts", e.groups_per_token, e.expert_groups,
                             e.experts_per_token, e.experts),
                 "at most the number of groups, and enough for the experts of a token");
  }
}

}  // namespace

bool layer_has_experts(const ModelSpec& model, int64_t layer) {
  if (!model.moe || layer < model.moe->leading_dense_layers) return false;
  return (layer - model.moe->leading_dense_layers + 1) % model.moe->layer_interval == 0;
}

void validate_model(const ModelSpec& model, const std::string& file) {
  JsonProblems problems(file);
  if (model.heads % model.kv_heads != 0) {
    problems.add("/kv_heads", fmt::format("{} key-value heads for {} heads", model.kv_heads, model.heads),
                 "a divisor of the number of heads");
  }
  if (model.attention == AttentionKind::latent && !model.latent) {
    problems.add("/latent", "latent attention without its sizes", "the object \"latent\"");
  }
  if (model.moe) check_experts(*model.moe, problems);
  if (model.position == PositionKind::rotary && model.attention == AttentionKind::multi_head &&
      model.head_dim % 2 != 0) {
    problems.add("/head_dim", fmt::format("odd head size {}", model.head_dim),
                 "an even size for rotary positions");
  }
  if (rough_parameters(model) > kMaxParameters) {
    problems.add("", fmt::format("sizes that make {:.2g} parameters", rough_parameters(model)),
                 fmt::format("at most {:.0e}", kMaxParameters));
  }
  problems.throw_if_any();
}

ModelSpec load_model_spec(const std::filesystem::path& file) {
  auto model = from_json<ModelSpec>(load_json(file, int64_t{1} << 20), file.string());
  validate_model(model, file.string());
  return model;
}

std::string model_spec_to_text(const ModelSpec& model) { return json_text(to_json(model), 2) + "\n"; }

}  // namespace mpt
