// SPDX-License-Identifier: Apache-2.0
#include "core/recompute_modules.h"

#include <algorithm>

namespace mpt {

std::span<const RecomputeModule> recompute_modules() {
  static constexpr RecomputeModule kModules[] = {
      {"core_attn", &Execution::recomputes_core},
      {"layernorm", &Execution::recomputes_norms},
      {"mla_up_proj", &Execution::recomputes_latent},
      {"moe_act", &Execution::recomputes_expert_activation},
      {"mlp", &Execution::recomputes_mlp},
      {"moe", &Execution::recomputes_experts},
  };
  return kModules;
}

void set_recompute_modules(const std::vector<std::string>& names, Execution& execution) {
  for (const RecomputeModule& module : recompute_modules())
    execution.*module.flag = std::find(names.begin(), names.end(), module.name) != names.end();
}

std::vector<std::string> recompute_modules_of(const Execution& execution) {
  std::vector<std::string> names;
  for (const RecomputeModule& module : recompute_modules()) {
    if (execution.*module.flag) names.emplace_back(module.name);
  }
  return names;
}

}  // namespace mpt
