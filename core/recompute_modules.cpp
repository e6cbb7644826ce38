// SPDX-License-Identifier: Apache-2.0
#include "core/layout.h"

#include "base/ranges.h"

namespace mpt {

std::span<const RecomputeModule> recompute_modules() {
  static constexpr RecomputeModule kModules[] = {
      {"core_attn", &SelectiveRecompute::core},
      {"layernorm", &SelectiveRecompute::norms},
      {"mla_up_proj", &SelectiveRecompute::latent},
      {"moe_act", &SelectiveRecompute::expert_activation},
      {"mlp", &SelectiveRecompute::mlp},
      {"moe", &SelectiveRecompute::experts},
      {"shared_experts", &SelectiveRecompute::shared_experts},
      {"gdn_norm_out", &SelectiveRecompute::delta_norm},
      {"mhc", &SelectiveRecompute::streams},
  };
  return kModules;
}

void set_recompute_modules(const std::vector<std::string>& names, SelectiveRecompute& selective) {
  for (const RecomputeModule& module : recompute_modules())
    selective.*module.flag = contains(names, module.name);
}

std::vector<std::string> recompute_modules_of(const SelectiveRecompute& selective) {
  std::vector<std::string> names;
  for (const RecomputeModule& module : recompute_modules())
    if (selective.*module.flag) names.emplace_back(module.name);
  return names;
}

}  // namespace mpt
