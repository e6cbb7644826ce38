// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/json.h"
#include "core/plan.h"
#include "core/quantity.h"
#include "planner/search/arrangement.h"
#include "reports/utilisation.h"

namespace mpt::planner {

const std::vector<std::pair<std::string_view, std::string_view>>& evidence_files();  // generated

namespace {

// Fewer runs do not tell what nine in ten do.
constexpr size_t kEnough = 10;
constexpr double kMost = 0.9;

const Evidence* evidence_of(const Plan& plan, const std::vector<Evidence>& all) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Evidence& e) {
    return e.framework == plan.layout.execution.framework && e.experts == plan.model.moe.has_value();
  });
  return found == all.end() ? nullptr : &*found;
}

std::string few(size_t runs, const char* what) {
  return fmt::format("{}: {} published it, too few to tell", what, runs == 0 ? "none" : std::to_string(runs));
}

double room_bytes(const Plan& plan) {
  return double(rank_limit_bytes(plan.cluster.device, plan.layout.execution, 0));
}

// `limit`: that of a plan with room for what most of them held, where this plan has none.
void add_memory(const std::vector<double>& held, const Plan& plan, std::optional<int64_t> limit,
                std::vector<std::string>& lines) {
  if (held.size() < kEnough) {
    lines.push_back(few(held.size(), "peak memory"));
    return;
  }
  std::string& text =
      lines.emplace_back(fmt::format("peak memory: nine in ten of {} held at most {:.2f} times the predicted",
                                     held.size(), quantile(held, kMost)));
  // Ranks of mixed clusters have room of their own.
  if (plan.cluster.mixed()) return;
  if (!limit) {
    text += ", for which there is room";
    return;
  }
  const double share = double(reports::peak_bytes(plan)) / room_bytes(plan);
  const auto more =
      std::count_if(held.begin(), held.end(), [&](double ratio) { return ratio * share > 1.0; });
  text += fmt::format("; {} held so much more that this plan would not fit", more);
  lines.push_back(
      fmt::format("--memory {:.1f}GiB leaves room for nine in ten", double(*limit) / double(kGiB)));
}

void add_failed(const std::vector<double>& failed, const Plan& plan, std::vector<std::string>& lines) {
  const auto accepted = size_t(std::upper_bound(failed.begin(), failed.end(), 1.0) - failed.begin());
  if (accepted == 0 && failed.size() < kEnough) return;
  std::string& text = lines.emplace_back(fmt::format(
      "out of memory: {} of {} layouts that ran out of it were predicted to fit", accepted, failed.size()));
  if (accepted == 0 || plan.cluster.mixed()) return;
  text += fmt::format(", with {} of the room or more; this plan takes {}", format_percent(failed.front()),
                      format_percent(double(reports::peak_bytes(plan)) / room_bytes(plan)));
}

}  // namespace

std::vector<Evidence> published_evidence() {
  const auto& [file, text] = evidence_files().front();
  const std::string name(file);
  return from_json<std::vector<Evidence>>(parse_json(std::string(text), name), name);
}

double quantile(const std::vector<double>& values, double share) {
  const double place = share * double(values.size() - 1);
  const auto below = size_t(place);
  const double above = values[std::min(below + 1, values.size() - 1)];
  return values[below] + (place - double(below)) * (above - values[below]);
}

std::vector<std::string> evidence_beside(const Plan& plan, const std::vector<Evidence>& all) {
  const Evidence* e = evidence_of(plan, all);
  if (e == nullptr) return {};
  std::vector<std::string> lines{fmt::format("Beside published runs of {}, models {} experts", e->framework,
                                             e->experts ? "with" : "without")};
  // A profile is of the user's own machine; published runs are of GPUs whose kernels are measured.
  if (plan.cost.source == "roofline") {
    lines.push_back(fmt::format("step time: no run tells, {} is priced by its peak rates alone",
                                plan.cluster.device.name));
  } else if (plan.cost.source != "profile") {
    const size_t runs = e->step_time.size();
    lines.push_back(
        runs < kEnough
            ? few(runs, "step time")
            : fmt::format("step time: eight in ten of {} took {:.2f} to {:.2f} times the predicted", runs,
                          quantile(e->step_time, 1.0 - kMost), quantile(e->step_time, kMost)));
  }
  add_failed(e->failed, plan, lines);
  add_memory(e->peak_memory, plan, limit_with_room(plan, all), lines);
  return lines;
}

std::optional<int64_t> limit_with_room(const Plan& plan, const std::vector<Evidence>& all) {
  const Evidence* e = evidence_of(plan, all);
  if (e == nullptr || e->peak_memory.size() < kEnough || plan.cluster.mixed()) return std::nullopt;
  const double limit = room_bytes(plan) / quantile(e->peak_memory, kMost);
  if (double(reports::peak_bytes(plan)) <= limit) return std::nullopt;
  // As it is printed: whole tenths of a GiB.
  return int64_t(std::floor(10.0 * limit / double(kGiB)) / 10.0 * double(kGiB));
}

std::string describe_evidence(const Plan& plan) {
  std::string text;
  for (const std::string& line : plan.evidence) text += (text.empty() ? "\n" : "  ") + line + "\n";
  return text;
}

}  // namespace mpt::planner
