// SPDX-License-Identifier: Apache-2.0
#include "planner/answer/layout_changes.h"

#include <utility>

#include "base/error.h"

namespace mpt::planner {
namespace {

bool set_recompute(Layout& l, Recompute to) {
  const bool same = l.recompute == to && !recomputes_partly(l);
  l.recompute = to;
  l.recomputed_layers.clear();
  return !same;
}

bool set_zero(Layout& l, int64_t to) {
  l.shard = to > 0 ? l.replicas() : 1;
  return std::exchange(l.zero, to) != to && l.replicas() > 1;
}

bool set_micro_batch(Layout& l, int64_t to) { return to > 0 && std::exchange(l.micro_batch, to) != to; }

constexpr LayoutChange kChanges[] = {
    {"--recompute full", "with full recompute (activation checkpointing)", true,
     [](Layout& l) { return set_recompute(l, Recompute::full); }},
    {"--micro-batch 1", "with micro-batches of one sequence (more gradient accumulation)", true,
     [](Layout& l) { return set_micro_batch(l, 1); }},
    {"--zero 3", "with ZeRO 3 (FULL_SHARD)", true, [](Layout& l) { return set_zero(l, 3); }},
    {"--offload on", "with the optimizer in CPU memory", true,
     [](Layout& l) { return !std::exchange(l.offload_optimizer, true); }},
    {"--recompute none", "without recompute (activation checkpointing off)", false,
     [](Layout& l) { return set_recompute(l, Recompute::none); }},
    {"", "with micro-batches twice as large", false,
     [](Layout& l) { return set_micro_batch(l, 2 * l.micro_batch); }},
    {"", "with micro-batches four times as large", false,
     [](Layout& l) { return set_micro_batch(l, 4 * l.micro_batch); }},
    {"--zero 0", "with ZeRO 0 (plain data parallel, DDP)", false, [](Layout& l) { return set_zero(l, 0); }},
    {"--offload off", "with the optimizer on the GPU", false,
     [](Layout& l) { return std::exchange(l.offload_optimizer, false); }}};

}  // namespace

std::span<const LayoutChange> layout_changes() { return kChanges; }

std::optional<Estimated> estimate_instead(PlanRequest request, const Layout& layout) {
  request.layout = layout;
  try {
    Estimated found = estimate(request);
    return found.refusal ? std::nullopt : std::optional(std::move(found));
  } catch (const UserError&) {
    return std::nullopt;
  }
}

std::string memory_savers(Layout layout) {
  std::string options;
  for (const LayoutChange& change : kChanges) {
    if (change.saves_memory && change.make(layout))
      options += (options.empty() ? "" : " or ") + std::string(change.option);
  }
  return options;
}

}  // namespace mpt::planner
