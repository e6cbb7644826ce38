// SPDX-License-Identifier: Apache-2.0
#include "core/plan_words.h"

#include <fmt/format.h>

#include "base/quantity.h"

namespace mpt {
namespace {

std::string counted(int64_t count, std::string_view one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : one.ends_with("ch") ? "es" : "s");
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

std::string fates(const SearchCertificate& c) {
  std::vector<std::string> parts;
  const auto add = [&](int64_t count, const char* what) {
    if (count > 0) parts.push_back(fmt::format("{} {}", format_count(count), what));
  };
  add(c.over_memory, c.over_memory == 1 ? "does not fit" : "do not fit");
  add(c.over_bound, c.over_bound == 1 ? "is provably slower" : "are provably slower");
  add(c.same, c.same == 1 ? "is a duplicate" : "are duplicates");
  add(c.not_reached, "not reached");
  add(c.simulated, "simulated in full");
  return joined(parts, ", ");
}

// The plan may be slower than the fastest: a tied plan was preferred (core/ties.h).
std::string distance(const SearchCertificate& c, double step_time_s) {
  if (c.gap > 0.0) return fmt::format("none is more than {} faster by MPT's model", format_percent(c.gap));
  if (c.fastest_s <= 0.0 || step_time_s <= c.fastest_s) return "none is faster by MPT's model";
  const double less = 1.0 - c.fastest_s / step_time_s;
  return fmt::format("by MPT's model a layout {} faster exists, which is less simple or larger",
                     less < 5e-4 ? "under 0.1%" : format_percent(less));
}

}  // namespace

std::string describe_recompute(const Layout& l) {
  if (l.recompute == Recompute::none) return "no recompute";
  if (l.recompute == Recompute::selective)
    return fmt::format("selective recompute of {}", joined(recompute_modules_of(l.selective), ", "));
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

const char* describe_offload(const Layout& l) {
  return l.execution->states.offloads_weights ? "weights and optimizer in host memory"
                                              : "optimizer in host memory";
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
  if (l.offload_optimizer) parts.emplace_back(describe_offload(l));
  const std::string of = " of " + counted(l.micro_batch, "sequence");
  const int64_t count = workload == nullptr ? 1 : micro_batches(l, *workload);
  parts.push_back((workload == nullptr ? "micro-batches" : counted(count, "micro-batch")) + of +
                  (count > 1 ? " (gradient accumulation)" : ""));
  parts.push_back(describe_recompute(l) +
                  (l.recompute == Recompute::none ? "" : " (activation checkpointing)"));
  return parts;
}

std::string describe_layout_in_words(const Layout& layout, const Workload* workload) {
  return joined(layout_words(layout, workload), ", ");
}

std::string describe_likelihood(double probability) {
  constexpr double kNearlyOne = 0.99;
  if (probability >= 1.0) return "100%";
  if (probability > kNearlyOne) return "over 99%";
  return fmt::format("{}%", int(100.0 * probability + 1e-9));
}

std::string describe_range(const Confidence& c) {
  if (!c.least_s || !c.most_s) return "";
  std::string least = format_seconds(*c.least_s);
  const std::string most = format_seconds(*c.most_s);
  const size_t unit = least.rfind(' ');
  if (unit != std::string::npos && least.substr(unit) == most.substr(most.rfind(' '))) least.resize(unit);
  return least + " to " + most;
}

std::string describe_certificate(const SearchCertificate& c, double step_time_s,
                                 std::optional<double> waited_s) {
  const std::string time = format_seconds(waited_s.value_or(c.seconds));
  if (c.optimal)
    return fmt::format("Searched all {} layouts in {}: {}; {}.", format_count(c.layouts), time, fates(c),
                       distance(c, step_time_s));
  const std::string gap = c.gap >= 1.0 ? "the best may be any amount faster, since not all was bounded"
                                       : fmt::format("the best is at most {} faster", format_percent(c.gap));
  return fmt::format("Stopped after {}: of {}{} layouts {}; {}.", time, c.counted ? "" : "at least ",
                     format_count(c.layouts), fates(c), gap);
}

}  // namespace mpt
