// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the exports to Megatron-LM and Megatron-Bridge share.

#include <string>
#include <utility>
#include <vector>

#include "core/plan.h"
#include "frameworks/export.h"

namespace mpt::frameworks {

/// The plan's recompute in Megatron-LM's options; Megatron-Bridge has the same fields.
struct MegatronRecompute {
  std::string granularity, method;  // empty: none
  int64_t layers = 0;
  std::vector<std::string> modules;  // of selective recompute
};
MegatronRecompute megatron_recompute(const Layout& layout);

/// Whether a token is sent once to a GPU with several of its experts. It takes more than one rank for
/// experts.
bool sends_tokens_once(const Plan& plan);
/// Its code for that: DeepEP, or HybridEP on GPUs beside NVIDIA's own CPUs, which DeepEP does not run on.
const char* dispatch_backend(const Plan& plan);
/// "Ettt|tttt|ttmL": what each virtual stage holds, in model order.
std::string megatron_stages(const Plan& plan);
/// Whether the loss is a mean over the tokens of a step, which unequal masks need. It would multiply a loss
/// that balances experts (run: megatron-aux-masks-per-token), so such models keep the mean of each
/// micro-batch.
bool counts_loss_by_token(const Plan& plan);
/// Whether stages have to be written one by one.
bool needs_stages(const Plan& plan);

/// Variables of the environment that the ways to train need, and their values.
std::vector<std::pair<const char*, const char*>> megatron_settings(const Training& training);
/// Packages beside its own: megatron/core/optimizer/__init__.py:756-760.
inline void add_megatron_needs(const Plan& plan, Exported& exported) {
  add_sentences({{plan.layout.training.optimizer == OptimizerKind::muon,
                  "the package emerging-optimizers, which Muon comes from"}},
                exported.needs);
}
/// What to know of the plan that has no setting, a sentence each.
std::vector<std::string> megatron_facts(const Plan& plan);

}  // namespace mpt::frameworks
