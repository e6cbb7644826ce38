// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/details.h"

#include <fmt/ranges.h>

#include "base/quantity.h"
#include "base/terminal.h"
#include "planner/explain/confidence.h"
#include "planner/explain/drawn_choice.h"
#include "planner/explain/utilisation.h"
#include "planner/memory/memory_model.h"
#include "reports/table.h"

namespace mpt::planner {
namespace {

// Layouts with one name differ in the content of their stages; the table then shows it.
std::string ranking_table(const Plan& plan) {
  reports::Table table(
      reports::columns({"<layout", "step time", "8 of 10 cases", "fits", "idle", "peak memory", "tokens/s"}));
  std::map<std::string, int> of_name;
  for (const RankedLayout& r : plan.ranking) ++of_name[layout_name(r.layout)];
  for (const RankedLayout& r : plan.ranking) {
    std::string name = layout_name(r.layout);
    if (of_name[name] > 1) name += fmt::format(" layers {}", fmt::join(r.layout.layers_per_stage, " "));
    const std::string range = describe_range(r.confidence);
    const auto& fits = r.confidence.fits;
    table.add_row({name, format_seconds(r.step_time_s), range.empty() ? "-" : range,
                   fits ? describe_likelihood(*fits) : "-", format_percent(r.bubble_share),
                   format_bytes(double(r.peak_bytes)), format_count(int64_t(r.tokens_per_s))});
  }
  return table.text(screen_columns());
}

std::string listed(const char* heading, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string text = fmt::format("\n{}\n", heading);
  for (const std::string& line : lines) text += wrapped(line, "  - ");
  return text;
}

}  // namespace

std::string describe_prices(const Plan& plan) {
  const bool same = plan.objective.same;  // for another objective there is a separate line
  return fmt::format("Prices: {} of {}{}. A prediction, not a measurement.{}", plan.cost.source,
                     plan.cost.machine, plan.cost.date.empty() ? "" : ", " + plan.cost.date,
                     same ? " Same objective as on one GPU." : "");
}

std::string part_of(double bytes, double all) {
  std::string part = format_bytes(bytes);
  if (all == 0.0) return part;
  const std::string whole = format_bytes(all);
  if (part.substr(part.find(' ')) == whole.substr(whole.find(' '))) part.resize(part.find(' '));
  return part + " of " + whole;
}

std::string describe_host_memory(const Plan& plan) {
  const ClusterSpec& cluster = plan.cluster;
  const auto room = double(cluster.host_memory_bytes);
  std::vector<std::string> parts;
  const auto [of_rank, of_host] = offloaded_bytes(plan.model, plan.layout, plan.workload, cluster);
  if (of_rank > 0)
    parts.push_back(fmt::format("up to {} per {} in host memory, {} of a host", format_bytes(double(of_rank)),
                                reports::device_word(cluster), part_of(double(of_host), room)));
  const int64_t built = host_build_bytes(plan.model, plan.layout.execution, plan.layout.training,
                                         cluster.ranks_of_host(plan.layout.ranks()));
  if (built > 0)
    parts.push_back(fmt::format("each host holds {} while the model is built", part_of(double(built), room)));
  return joined(parts, "; ");
}

std::string describe_prediction(const Plan& plan) {
  return fmt::format(
      "{}: {} per step, idle {}, {} tokens/s, peak memory {}", layout_name(plan.layout),
      format_seconds(plan.prediction.step_time_s), format_percent(plan.prediction.bubble_share),
      format_count(int64_t(plan.prediction.tokens_per_s)), format_bytes(double(reports::peak_bytes(plan))));
}

std::string describe_memory_table(const Plan& plan) {
  reports::Table table(reports::columns(
      {"stage", "weights", "gradients", "optimizer", "transfer buffers", "activations", "peak"}));
  constexpr size_t kShown = 16;
  const auto& memory = plan.prediction.memory;
  for (size_t r = 0; r < memory.size() && r < kShown; ++r) {
    const RankMemory& m = memory[r];
    table.add_row({std::to_string(m.rank), format_bytes(double(m.parameter_bytes)),
                   format_bytes(double(m.gradient_bytes)), format_bytes(double(m.optimizer_bytes)),
                   format_bytes(double(m.transfer_buffer_bytes)),
                   format_bytes(double(m.activation_peak_bytes)), format_bytes(double(m.peak_bytes))});
  }
  const std::string more =
      memory.size() > kShown ? fmt::format("  and {} more stages\n", memory.size() - kShown) : "";
  return fmt::format("Memory per {} of each stage, {} usable\n", reports::device_word(plan.cluster),
                     format_bytes(double(plan.memory_limit_bytes))) +
         table.text(screen_columns()) + more;
}

std::string describe_evidence(const Plan& plan) {
  std::string text;
  for (const auto& line : plan.evidence) text += text.empty() ? "\n" + wrapped(line) : wrapped(line, "  - ");
  return text;
}

std::string describe_draws(const Plan& plan) {
  if (!plan.search.drawn) return "";
  const auto ranking = mapped<Layout>(plan.ranking, &RankedLayout::layout);
  return "\n" + wrapped(describe_drawn(*plan.search.drawn, ranking));
}

std::string describe_details(const Plan& predicted) {
  const Plan plan = as_observed(predicted);
  return "\nLayouts that were simulated, the fastest first\n" + ranking_table(plan) + "\n" +
         describe_memory_table(plan) + listed("Why this one", plan.reasons) +
         listed("What ruled the others out", plan.rejected) + describe_evidence(plan) + describe_draws(plan);
}

}  // namespace mpt::planner
