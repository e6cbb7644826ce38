// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/plan_notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/quantity.h"
#include "frameworks/framework.h"

namespace mpt::planner {
namespace {

template <class E>
std::string joined(const std::vector<E>& values) {
  std::vector<std::string> names;
  for (const E value : values) names.push_back(enum_name(value));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string training_words(const Training& t) {
  std::vector<std::string> parts;
  if (t.adapts())
    parts.push_back(fmt::format("LoRA of rank {} on {} over {} weights", t.adapter_rank,
                                joined(t.adapter_targets), enum_name(t.frozen_format)));
  if (!t.frozen.empty()) parts.push_back("frozen: " + joined(t.frozen));
  if (t.optimizer != OptimizerKind::adamw) parts.push_back("optimizer " + enum_name(t.optimizer));
  if (t.bf16_gradients) parts.emplace_back("gradients in bf16");
  if (t.deterministic) parts.emplace_back("deterministic kernels");
  if (t.packed_length > 0.0)
    parts.push_back(fmt::format("packed sequences, attention as of {} tokens each",
                                format_count(int64_t(t.packed_length))));
  if (!t.offloaded.empty()) parts.push_back("activations in CPU memory: " + joined(t.offloaded));
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string precision_words(const Layout& l) {
  std::string words = enum_name(l.precision);
  if (l.precision == Precision::fp32 || l.training.adapts()) return words;
  const StateBytes& states = l.execution.states;
  const int64_t kept = gradient_element_bytes(l);
  const int64_t summed = l.training.bf16_gradients ? 2 : states.reduced_bytes > 0 ? states.reduced_bytes : 4;
  if (kept != 4 || summed != 4) words += kept == 4 ? ", fp32 gradients" : ", 16-bit gradients";
  if (summed != kept) words += summed == 4 ? " summed in fp32" : " summed in 16 bits";
  if (states.optimizer_bytes == 4) words += ", weights and moments in bf16 alone";
  return words;
}

std::vector<std::string> gradient_notes(const Plan& plan, bool offers) {
  const Layout& l = plan.layout;
  const auto* const framework = frameworks::find_framework(l.execution.framework);
  if (framework == nullptr || l.precision == Precision::fp32 || l.training.adapts()) return {};
  const int64_t count = micro_batches(l, plan.workload);
  // DeepSpeed's sums of 512 equal micro-batches had 0.72 of the gradient's norm; sums of 8 had all of it
  // (run: deepspeed-bf16-sums-default-zero1).
  constexpr int64_t kManySums = 64;
  if (gradient_element_bytes(l) == 2) {
    if (count < kManySums) return {};
    return {
        fmt::format("gradients of {} micro-batches are summed in 16 bits, which loses part of them: "
                    "--gradients fp32, or a larger --micro-batch",
                    count)};
  }
  if (!offers || !contains(framework->abilities.trains, frameworks::TrainingFeature::bf16_gradients))
    return {};
  int64_t most = 0;
  for (const StageFootprint& stage : plan.footprints) most = std::max(most, stage.gradient_bytes);
  return {fmt::format("--gradients bf16 would save {}, and round each sum to 16 bits",
                      format_bytes(double(most) / 2.0))};
}

}  // namespace mpt::planner
