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

void add_memory(const std::vector<double>& held, const Plan& plan, std::vector<std::string>& lines) {
  if (held.size() < kEnough) {
    lines.push_back(few(held.size(), "peak memory"));
    return;
  }
  const double most = quantile(held, kMost);
  std::string& text = lines.emplace_back(fmt::format(
      "peak memory: nine in ten of {} held at most {:.2f} times the predicted", held.size(), most));
  // Ranks of mixed clusters have room of their own.
  if (plan.cluster.mixed()) return;
  const auto peak = double(reports::peak_bytes(plan));
  const auto room = double(rank_limit_bytes(plan.cluster.device, plan.layout.execution, 0));
  if (most * peak <= room) {
    text += ", for which there is room";
    return;
  }
  const auto more =
      std::count_if(held.begin(), held.end(), [&](double ratio) { return ratio * peak > room; });
  text += fmt::format("; {} held so much more that this plan would not fit", more);
  lines.push_back(fmt::format("--memory {:.1f}GiB leaves room for nine in ten",
                              std::floor(10.0 * room / most / double(kGiB)) / 10.0));
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
  // A profile is of the user's own machine.
  if (plan.cost.source != "profile") {
    const size_t runs = e->step_time.size();
    lines.push_back(
        runs < kEnough
            ? few(runs, "step time")
            : fmt::format("step time: eight in ten of {} took {:.2f} to {:.2f} times the predicted", runs,
                          quantile(e->step_time, 1.0 - kMost), quantile(e->step_time, kMost)));
  }
  add_memory(e->peak_memory, plan, lines);
  return lines;
}

std::string describe_evidence(const Plan& plan) {
  std::string text;
  for (const std::string& line : plan.evidence) text += (text.empty() ? "\n" : "  ") + line + "\n";
  return text;
}

}  // namespace mpt::planner
