// SPDX-License-Identifier: Apache-2.0
#include "models/module.h"

#include <array>

namespace mpt::models {
namespace {

using M = Module;
using P = FrozenPart;
using A = AdapterTarget;
using O = OffloadModule;
constexpr std::nullopt_t kNone = std::nullopt;

// An operator saves its input. So tensors between the operators of a module are saved by all but the first. A
// norm before queries, keys and values or before a dense MLP is part of the next product, unless several
// products read its result (Megatron-LM's TELayerNormColumnParallelLinear).
constexpr std::array kRules{
    ModuleRules{M::token_table, P::embedding},
    ModuleRules{M::embedding, P::embedding},
    ModuleRules{M::mixer_norm, P::mixers, false, kNone, O::attn_norm, kRerunLatentNorms},
    ModuleRules{M::qkv, P::mixers, true, A::qkv, O::qkv_linear},
    ModuleRules{M::query, P::mixers, true, A::qkv, O::qkv_linear, kRerunLatent, kRerunLatentNorms},
    ModuleRules{M::query_down, P::mixers, true, A::qkv, O::qkv_linear, 0, kRerunLatentNorms},
    ModuleRules{M::latent_norm, P::mixers, false, kNone, kNone, kRerunLatent},
    ModuleRules{M::latent_up, P::mixers, true, A::qkv, kNone, kRerunLatent, kRerunLatent},
    ModuleRules{M::key_value_down, P::mixers, true, A::qkv},
    ModuleRules{M::rotary, P::mixers, false, kNone, kNone, kRerunLatentRotary},
    ModuleRules{M::attention_core, P::mixers, false, kNone, O::core_attn, kRerunCore, kRerunCore},
    ModuleRules{M::attention_output, P::mixers, true, A::output, O::attn_proj, 0, kRerunCore},
    ModuleRules{M::mixer_input, P::mixers, true, A::qkv},
    ModuleRules{M::mixer_output, P::mixers, true, A::output},
    ModuleRules{M::mixer, P::mixers, true},
    ModuleRules{M::mlp_norm, P::mlps, false, kNone, O::mlp_norm, kRerunExpertNorms},
    ModuleRules{M::mlp_up, P::mlps, true, A::up, kNone, kRerunMlp | kRerunExperts, kRerunExperts},
    ModuleRules{M::mlp_activation, P::mlps, false, kNone, kNone, kRerunMlp | kRerunExperts,
                kRerunMlp | kRerunExperts},
    ModuleRules{M::mlp_down, P::mlps, true, A::down, kNone, kRerunMlp | kRerunExperts,
                kRerunMlp | kRerunExperts},
    ModuleRules{M::mlp, P::mlps, true, kNone, kNone, kRerunExperts, kRerunExperts},
    ModuleRules{M::mlp_result, P::mlps},
    ModuleRules{M::router, P::experts, false, kNone, kNone, kRerunExperts, kRerunExpertNorms},
    ModuleRules{M::experts_up, P::experts, true, A::experts, O::expert_fc1, kRerunExperts, kRerunExperts},
    ModuleRules{M::experts_activation, P::experts, false, kNone, O::moe_act, kRerunActivation | kRerunExperts,
                kRerunExperts},
    ModuleRules{M::experts_down, P::experts, true, A::experts, kNone, kRerunExperts,
                kRerunActivation | kRerunExperts},
    ModuleRules{M::experts, P::experts, true, kNone, kNone, kRerunExperts, kRerunExperts},
    ModuleRules{M::head_output, P::head},
    ModuleRules{M::head, P::head},
    ModuleRules{M::widen, kNone},
    ModuleRules{M::adapter, kNone},
};
static_assert(kRules.size() == size_t(M::adapter) + 1, "a row for every module");
static_assert(std::adjacent_find(kRules.begin(), kRules.end(),
                                 [](const auto& a, const auto& b) { return a.module >= b.module; }) ==
                  kRules.end(),
              "rows in the order of the modules");

}  // namespace

const ModuleRules& rules_of(Module module) { return kRules[size_t(module)]; }

unsigned reruns_of(const SelectiveRecompute& s, const LayerKind& kind) {
  const bool latent = kind.attention && kind.attention->latent, experts = kind.moe.has_value();
  const bool up = latent || (kind.attention && kind.attention->compressed);
  const std::pair<bool, Rerun> bits[] = {{s.norms && latent, kRerunLatentNorms},
                                         {s.norms && experts, kRerunExpertNorms},
                                         {s.latent, kRerunLatent},
                                         {s.latent && up, kRerunLatentRotary},
                                         {s.expert_activation, kRerunActivation},
                                         {experts ? s.shared_experts && !kind.mlp : s.mlp, kRerunMlp},
                                         {s.experts && experts, kRerunExperts}};
  unsigned all = 0;
  for (const auto& [holds, bit] : bits) all |= holds ? unsigned(bit) : 0u;
  return all;
}

}  // namespace mpt::models
