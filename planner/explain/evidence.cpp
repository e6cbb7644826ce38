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
  return fmt::format("  {}: {} published it, too few to tell\n", what,
                     runs == 0 ? "none" : std::to_string(runs));
}

std::string describe_memory(const std::vector<double>& held, const Plan& plan) {
  if (held.size() < kEnough) return few(held.size(), "peak memory");
  const double most = quantile(held, kMost);
  const std::string text = fmt::format(
      "  peak memory: nine in ten of {} held at most {:.2f} times the predicted", held.size(), most);
  // Ranks of mixed clusters have room of their own.
  if (plan.cluster.mixed()) return text + "\n";
  const auto peak = double(reports::peak_bytes(plan));
  const auto room = double(rank_limit_bytes(plan.cluster.device, plan.layout.execution, 0));
  if (most * peak <= room) return text + ", for which there is room\n";
  const auto more =
      std::count_if(held.begin(), held.end(), [&](double ratio) { return ratio * peak > room; });
  return text + fmt::format(
                    "; {} held so much more that this plan would not fit.\n"
                    "    --memory {:.1f}GiB leaves room for nine in ten\n",
                    more, std::floor(10.0 * room / most / double(kGiB)) / 10.0);
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

std::string describe_evidence(const Plan& plan, const std::vector<Evidence>& all) {
  const Evidence* e = evidence_of(plan, all);
  if (e == nullptr) return "";
  std::string text = fmt::format("\nBeside published runs of {}, models {} experts\n", e->framework,
                                 e->experts ? "with" : "without");
  // A profile is of the user's own machine.
  if (plan.cost.source != "profile") {
    const size_t runs = e->step_time.size();
    text += runs < kEnough
                ? few(runs, "step time")
                : fmt::format("  step time: eight in ten of {} took {:.2f} to {:.2f} times the predicted\n",
                              runs, quantile(e->step_time, 1.0 - kMost), quantile(e->step_time, kMost));
  }
  return text + describe_memory(e->peak_memory, plan);
}

}  // namespace mpt::planner
