// SPDX-License-Identifier: Apache-2.0
#pragma once

// Shared by the exports to Megatron-LM and Megatron-Bridge.

#include <string>
#include <utility>
#include <vector>

#include "core/plan.h"
#include "frameworks/export.h"
#include "models/dialect.h"

namespace mpt::frameworks {

/// The plan's recompute in Megatron-LM's options; Megatron-Bridge has the same fields.
struct MegatronRecompute {
  std::string granularity, method;  // empty: none
  int64_t layers = 0;
  std::vector<std::string> modules;  // of selective recompute
};
MegatronRecompute megatron_recompute(const Layout& layout);

/// Whether a token is sent once to a GPU that has several of its experts. Only layouts with several expert
/// ranks can.
bool sends_tokens_once(const Plan& plan);
/// Megatron's implementation of that: DeepEP, or HybridEP on nodes with NVIDIA's CPUs, where DeepEP does not
/// run.
const char* dispatch_backend(const Plan& plan);
/// "Ettt|tttt|ttmL": what each virtual stage holds, in model order.
std::string megatron_stages(const Plan& plan);
/// Whether the loss is a mean over the tokens of a step, as unequal masks require. That mean would scale a
/// loss that balances experts wrongly (run: megatron-aux-masks-per-token), so such models keep the mean of
/// each micro-batch.
bool counts_loss_by_token(const Plan& plan);
/// Whether stages have to be written one by one.
bool needs_stages(const Plan& plan);

/// The words of the plan's model, and settings of the plan that belong to the same words.
std::vector<models::Word> megatron_words(const Plan& plan, const std::string& framework);

/// Environment variables that a training requires, with their values.
std::vector<std::pair<const char*, const char*>> megatron_settings(const Training& training);
/// Packages other than Megatron's own: megatron/core/optimizer/__init__.py:756-760.
inline void add_megatron_needs(const Plan& plan, Exported& exported) {
  add_sentences({{plan.layout.training->optimizer == OptimizerKind::muon,
                  "the package emerging-optimizers, which Muon comes from"}},
                exported.needs);
}
/// Facts about the plan that no setting expresses, a sentence each.
std::vector<std::string> megatron_facts(const Plan& plan);

}  // namespace mpt::frameworks
