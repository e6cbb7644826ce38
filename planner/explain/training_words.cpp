// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/training_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/quantity.h"

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
  if (!t.adapts() && !t.frozen.empty()) parts.push_back("frozen: " + joined(t.frozen));
  if (t.optimizer != OptimizerKind::adamw) parts.push_back("optimizer " + enum_name(t.optimizer));
  if (t.bf16_gradients) parts.emplace_back("gradients in bf16");
  if (t.deterministic) parts.emplace_back("deterministic kernels");
  if (t.packed_length > 0.0)
    parts.push_back(fmt::format("packed sequences, attention as of {} tokens each",
                                format_count(int64_t(t.packed_length))));
  if (!t.offloaded.empty()) parts.push_back("activations in CPU memory: " + joined(t.offloaded));
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace mpt::planner
