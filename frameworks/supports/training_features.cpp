// SPDX-License-Identifier: Apache-2.0

// Ways to train, as frameworks have them or not.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"
#include "frameworks/supports/supports.h"

namespace mpt::frameworks {
namespace {

std::string training_words(TrainingFeature feature) {
  using F = TrainingFeature;
  static const std::map<F, const char*> table{{F::lora, "LoRA"},
                                              {F::lora_on_fp8, "LoRA over weights in fp8"},
                                              {F::lora_on_nf4, "LoRA over weights in 4 bits"},
                                              {F::expert_adapters, "adapters in experts"},
                                              {F::bf16_gradients, "gradients in bf16"},
                                              {F::adamw8, "8-bit AdamW"},
                                              {F::adafactor, "Adafactor"},
                                              {F::sgd, "SGD"},
                                              {F::muon, "Muon"},
                                              {F::activation_offload, "activations in CPU memory"},
                                              {F::deterministic, "--deterministic"}};
  const auto found = table.find(feature);
  if (found != table.end()) return found->second;
  return replaced(enum_name(feature), '_', ' ');
}

}  // namespace

std::vector<TrainingFeature> features_of(const Training& t) {
  using F = TrainingFeature;
  const bool adapts = t.adapts();
  const std::pair<bool, F> table[] = {{adapts, F::lora},
                                      {adapts && t.frozen_format == FrozenFormat::fp8, F::lora_on_fp8},
                                      {adapts && t.frozen_format == FrozenFormat::nf4, F::lora_on_nf4},
                                      {t.adapts(AdapterTarget::experts), F::expert_adapters},
                                      {!adapts && !t.frozen.empty(), F::frozen_parts},
                                      {t.bf16_gradients, F::bf16_gradients},
                                      {t.optimizer == OptimizerKind::adamw8, F::adamw8},
                                      {t.optimizer == OptimizerKind::adafactor, F::adafactor},
                                      {t.optimizer == OptimizerKind::sgd, F::sgd},
                                      {t.optimizer == OptimizerKind::muon, F::muon},
                                      {t.packed_length > 0.0, F::packed_sequences},
                                      {!t.offloaded.empty(), F::activation_offload},
                                      {t.deterministic, F::deterministic}};
  std::vector<F> features;
  for (const auto& [present, feature] : table) {
    if (present) features.push_back(feature);
  }
  return features;
}

std::optional<Rejection> supports_training(const Framework& framework, const Training& training) {
  for (const TrainingFeature feature : features_of(training)) {
    const std::vector<TrainingFeature>& has = framework.abilities.trains;
    if (std::find(has.begin(), has.end(), feature) == has.end())
      return Rejection{"training", -1, 0.0, 0.0,
                       fmt::format("{} does not train with {}", framework.title, training_words(feature))};
  }
  return std::nullopt;
}

}  // namespace mpt::frameworks
