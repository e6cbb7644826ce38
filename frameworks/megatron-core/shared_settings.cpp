// SPDX-License-Identifier: Apache-2.0

// Settings of both Megatron-LM and Megatron-Bridge.

#include "core/layout.h"
#include "frameworks/export.h"
#include "frameworks/megatron-core/export.h"

namespace mpt::frameworks {

std::string megatron_stages(const Plan& plan) {
  std::string text;
  for (const StageContent& stage : stage_contents(plan.model, plan.layout)) {
    if (!text.empty()) text += '|';
    if (stage.has_embedding) text += 'E';
    text += std::string(size_t(stage.layer_count), 't');
    // Layers that predict further tokens precede the loss.
    if (stage.has_head) text += std::string(size_t(plan.model.next_token_layers), 'm') + 'L';
  }
  return text;
}

bool counts_loss_by_token(const Plan& plan) {
  const MixtureOfExperts* const moe = plan.model.moe();
  return plan.layout.training->masked > 0.0 && (moe == nullptr || moe->balance_loss <= 0.0);
}

bool needs_stages(const Plan& plan) {
  const auto& layers = plan.layout.layers_per_stage;
  return any_of(layers, [&](int64_t n) { return n != layers.front(); });
}

MegatronRecompute megatron_recompute(const Layout& l) {
  if (l.recompute == Recompute::none) return {};
  if (l.recompute == Recompute::selective) return {"selective", "", 0, recompute_modules_of(l.selective)};
  if (l.recomputed_layers.empty()) return {"full", "uniform", 1, {}};
  // One number for every virtual stage: supports() has checked that one is enough.
  const int64_t most = *std::max_element(l.recomputed_layers.begin(), l.recomputed_layers.end());
  if (most == 0) return {};
  return {"full", "block", most, {}};
}

bool sends_tokens_once(const Plan& plan) {
  const Layout& l = plan.layout;
  return l.execution->traffic.deduplicates_dispatch && l.expert * l.expert_split() > 1;
}

const char* dispatch_backend(const Plan& plan) {
  return plan.cluster.device.name.starts_with("gb") ? "hybridep" : "deepep";
}

std::vector<std::pair<const char*, const char*>> megatron_settings(const Training& t) {
  std::vector<std::pair<const char*, const char*>> settings;
  // Transformer Engine's newer offloading also moves weights (megatron/training/arguments.py).
  if (!t.offloaded.empty()) settings.emplace_back("NVTE_CPU_OFFLOAD_V1", "1");
  if (!t.deterministic) return settings;
  // Required by the flag's assertions, by PyTorch's products and by Transformer Engine's attention.
  settings.insert(settings.end(), {{"NCCL_ALGO", "Ring"},
                                   {"CUBLAS_WORKSPACE_CONFIG", ":4096:8"},
                                   {"NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0"}});
  return settings;
}

std::vector<std::string> megatron_facts(const Plan& plan) {
  const Layout& l = plan.layout;
  std::vector<std::string> facts;
  const MixtureOfExperts* moe = plan.model.moe();
  if (moe != nullptr && moe->groups_per_token < moe->expert_groups && moe->scores == RouterScores::softmax)
    facts.emplace_back(
        "Groups of experts are chosen by the sum of their best experts, in DeepSeek-V2's own code by the "
        "best one. Megatron-Bridge converts its weights all the same.");
  if (head_in_fp8(l) && l.precision != Precision::mxfp8)
    facts.emplace_back("The head's product runs in 16 bits: in 8 bits it needs mxfp8.");
  if (l.execution->kernels.graphs || (plan.model.moe() != nullptr && l.execution->kernels.fuses_experts))
    facts.emplace_back(
        "A graph of the whole step and experts in one kernel take a dozen settings: copy those of "
        "Megatron-Bridge's recipes named full_iteration.");
  if (plan.cluster.mixed())
    facts.emplace_back("Ranks are numbered in this order of the nodes' GPUs: " + plan.cluster.name + ".");
  return facts;
}

}  // namespace mpt::frameworks
