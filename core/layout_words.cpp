// SPDX-License-Identifier: Apache-2.0
#include "core/plan_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "core/layout.h"

namespace mpt {
namespace {

std::string counted(int64_t count, std::string_view one) {
  const char* const more = count == 1 ? "" : one.ends_with("ch") ? "es" : "s";
  return fmt::format("{} {}{}", count, one, more);
}

std::string pipeline_words(const Layout& l) {
  std::string text = fmt::format("{} ({}", counted(l.pipeline, "pipeline stage"), l.schedule);
  if (l.chunks > 1) text += fmt::format(", {} chunks each", l.chunks);
  const std::string layers = describe_layers_per_stage(l);
  return text + (layers.empty() ? ")" : ", " + layers + ")");
}

std::string expert_words(const Layout& l) {
  std::string text = fmt::format("experts over {} GPUs", l.expert * l.expert_split());
  if (l.expert_split() > 1) text += fmt::format(", each split over {}", l.expert_split());
  return text;
}

// Only ZeRO 3 gets the added words, since most people call it fully sharded.
std::string zero_words(const Layout& l) {
  std::string text = l.zero == 3 ? "ZeRO 3 (fully sharded, FULL_SHARD)" : fmt::format("ZeRO {}", l.zero);
  if (l.shard < l.replicas()) text += fmt::format(" within groups of {}", l.shard);
  return text;
}

}  // namespace

std::string describe_recompute(const Layout& l) {
  if (l.recompute == Recompute::none) return "no recompute";
  if (l.recompute == Recompute::selective)
    return fmt::format("selective recompute of {}", fmt::join(recompute_modules_of(l.selective), ", "));
  if (l.recomputed_layers.empty()) return "full recompute";
  const auto [least, most] = std::minmax_element(l.recomputed_layers.begin(), l.recomputed_layers.end());
  const std::string of = counted(*most, "layer") + (l.stages() == 1 ? "" : " per stage");
  if (*least == *most) return "recompute of " + of;
  return *least == 0 ? "recompute of up to " + of : fmt::format("recompute of {} to {}", *least, of);
}

std::string describe_layers_per_stage(const Layout& l) {
  constexpr size_t kMostListed = 16;
  const auto& layers = l.layers_per_stage;
  if (layers.empty()) return "";
  if (std::equal(layers.begin() + 1, layers.end(), layers.begin()))
    return counted(layers.front(), "layer") + (l.chunks > 1 ? " a chunk" : " a stage");
  std::string text = "layers";
  for (size_t s = 0, next = 0; s < layers.size(); s = next) {
    while (next < layers.size() && layers[next] == layers[s]) ++next;
    const size_t alike = layers.size() > kMostListed ? next - s : 1;
    text += fmt::format(" {}{}", layers[s], alike > 1 ? fmt::format(" ({} times)", alike) : "");
    next = s + alike;
  }
  return text;
}

std::vector<std::string> layout_words(const Layout& l, const Workload* workload) {
  std::vector<std::string> parts;
  if (l.tensor > 1)
    parts.push_back(
        fmt::format("tensor parallel {}{}", l.tensor, l.sequence_parallel ? " with sequence parallel" : ""));
  if (l.context > 1)
    parts.push_back(fmt::format("context parallel {} ({})", l.context,
                                l.context_method == ContextMethod::ring ? "ring" : "all-to-all"));
  if (l.pipeline > 1) parts.push_back(pipeline_words(l));
  if (l.data > 1) parts.push_back(fmt::format("data parallel {}", l.data));
  if (l.expert > 1) parts.push_back(expert_words(l));
  if (parts.empty()) parts.emplace_back("nothing split");
  if (l.zero > 0) parts.push_back(zero_words(l));
  if (l.order == RankOrder::data_outermost && l.pipeline > 1 && l.data > 1)
    parts.emplace_back("stages of one replica side by side (data outermost)");
  if (l.offload_optimizer) parts.emplace_back("optimizer in host memory");
  const std::string of = " of " + counted(l.micro_batch, "sequence");
  const int64_t count = workload == nullptr ? 1 : micro_batches(l, *workload);
  parts.push_back((workload == nullptr ? "micro-batches" : counted(count, "micro-batch")) + of +
                  (count > 1 ? " (gradient accumulation)" : ""));
  parts.push_back(describe_recompute(l) +
                  (l.recompute == Recompute::none ? "" : " (activation checkpointing)"));
  return parts;
}

std::string describe_layout_in_words(const Layout& layout, const Workload* workload) {
  return fmt::format("{}", fmt::join(layout_words(layout, workload), ", "));
}

}  // namespace mpt
