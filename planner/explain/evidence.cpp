// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/json.h"
#include "base/quantity.h"
#include "core/plan.h"
#include "frameworks/framework.h"
#include "planner/search/arrangement.h"
#include "reports/utilisation.h"

namespace mpt::planner {

const std::vector<std::pair<std::string_view, std::string_view>>& evidence_files();  // generated

namespace {

// Fewer runs do not tell what nine in ten do.
constexpr size_t kEnough = 10;
constexpr double kMost = 0.9;

// Plans of earlier releases may have an alias.
std::string published_name(const std::string& framework, const std::vector<Evidence>& all) {
  const auto has_name = [&](const Evidence& e) { return e.framework == framework; };
  const frameworks::Framework* known = frameworks::find_framework(framework);
  return known == nullptr || std::any_of(all.begin(), all.end(), has_name) ? framework : known->name;
}

const Evidence* evidence_of(const Plan& plan, const std::vector<Evidence>& all) {
  const std::string name = published_name(plan.layout.execution.framework, all);
  const auto found = std::find_if(all.begin(), all.end(), [&](const Evidence& e) {
    return e.framework == name && e.experts == plan.model.moe.has_value();
  });
  return found == all.end() ? nullptr : &*found;
}

std::string few(size_t runs, const char* what) {
  return fmt::format("{}: {}, too few to tell", what,
                     runs == 0   ? "no published run"
                     : runs == 1 ? "1 published run"
                                 : fmt::format("{} published runs", runs));
}

double room_bytes(const Plan& plan) {
  return double(rank_limit_bytes(plan.cluster.device, plan.layout.execution, 0));
}

double used_share(const Plan& plan) { return double(reports::peak_bytes(plan)) / room_bytes(plan); }

size_t predicted_to_fit(const std::vector<double>& failed) {
  return size_t(std::upper_bound(failed.begin(), failed.end(), 1.0) - failed.begin());
}

// How many runs exceeded their prediction by more than the plan leaves.
ptrdiff_t beyond(const std::vector<double>& used, const Plan& plan) {
  const double share = used_share(plan);
  return std::count_if(used.begin(), used.end(), [&](double ratio) { return ratio * share > 1.0; });
}

void add_memory(const std::vector<double>& used, const Plan& plan, std::vector<std::string>& lines) {
  if (used.size() < kEnough) {
    lines.push_back(few(used.size(), "memory"));
    return;
  }
  std::string& text = lines.emplace_back(
      fmt::format("memory: 9 of 10 runs ({} in all) used at most {:.2f} times the prediction", used.size(),
                  quantile(used, kMost)));
  if (plan.cluster.mixed()) return;
  const ptrdiff_t more = beyond(used, plan);
  text += more == 0 ? "; this plan has room for what any of them used"
                    : fmt::format("; {} used so much more that this plan would run out", more);
}

void add_failed(const std::vector<double>& failed, const Plan& plan, std::vector<std::string>& lines) {
  const size_t accepted = predicted_to_fit(failed);
  if (accepted == 0 && failed.size() < kEnough) return;
  std::string& text = lines.emplace_back(fmt::format(
      "out of memory: {} of {} runs that ran out were predicted to fit", accepted, failed.size()));
  if (accepted == 0 || plan.cluster.mixed()) return;
  text += fmt::format(", at {} of memory or more; this plan is at {}", format_percent(failed.front()),
                      format_percent(used_share(plan)));
}

}  // namespace

std::string MemoryRisk::option() const {
  return fmt::format("--memory={:.1f}GiB", double(safe_bytes) / double(kGiB));
}

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

std::optional<ExpectedStep> expected_step(const Plan& plan, const std::vector<Evidence>& all) {
  const Evidence* e = evidence_of(plan, all);
  const bool of_others = plan.cost.source == "profile" || plan.cost.source == "roofline";
  if (e == nullptr || of_others || e->step_time.size() < kEnough) return std::nullopt;
  const double step_s = plan.prediction.step_time_s;
  return ExpectedStep{step_s * quantile(e->step_time, 1.0 - kMost), step_s * quantile(e->step_time, kMost),
                      e->step_time.size(), e->framework};
}

int64_t MemoryMargin::safe_bytes(int64_t usable_bytes) const {
  if (factor <= 1.0) return usable_bytes;
  const double tenths = std::floor(10.0 * double(usable_bytes) / factor / double(kGiB));
  return int64_t(tenths / 10.0 * double(kGiB));
}

std::string MemoryMargin::words(const std::string& framework) const {
  return fmt::format("9 of 10 published runs{} ({} in all)", of_others ? "" : " of " + framework, runs);
}

namespace {

// What published runs used beside their predictions: of this framework, or of all where too few of it say so.
struct Used {
  std::vector<double> ratios;  // ascending
  bool of_others = false;
};
Used used_by(const std::string& framework, bool experts, const std::vector<Evidence>& all) {
  Used own, of_all{{}, true};
  const std::string name = published_name(framework, all);
  for (const Evidence& e : all) {
    of_all.ratios.insert(of_all.ratios.end(), e.peak_memory.begin(), e.peak_memory.end());
    if (e.framework == name && e.experts == experts) own.ratios = e.peak_memory;
  }
  std::sort(of_all.ratios.begin(), of_all.ratios.end());
  return own.ratios.size() < kEnough ? of_all : own;
}

}  // namespace

MemoryMargin memory_margin(const std::string& framework, bool experts, const std::vector<Evidence>& all) {
  const Used used = used_by(framework, experts, all);
  if (framework == Execution{}.framework || used.ratios.size() < kEnough) return {};
  return {std::max(1.0, quantile(used.ratios, kMost)), used.ratios.size(), used.of_others};
}

std::optional<MemoryRisk> memory_risk(const Plan& plan, const std::vector<Evidence>& all) {
  if (plan.cluster.mixed()) return std::nullopt;
  const std::string& framework = plan.layout.execution.framework;
  const bool experts = plan.model.moe.has_value();
  const int64_t room = rank_limit_bytes(plan.cluster.device, plan.layout.execution, 0);
  const int64_t safe = memory_margin(framework, experts, all).safe_bytes(room),
                peak = reports::peak_bytes(plan);
  if (peak <= safe) return std::nullopt;
  const Used used = used_by(framework, experts, all);
  return MemoryRisk{
      fmt::format("memory is {} full; {} of {} published runs would have run out",
                  format_percent(double(peak) / double(room)), beyond(used.ratios, plan), used.ratios.size()),
      safe};
}

std::vector<std::string> evidence_beside(const Plan& plan, const std::vector<Evidence>& all) {
  const Evidence* e = evidence_of(plan, all);
  if (e == nullptr) return {};
  std::vector<std::string> lines{
      fmt::format("Published runs of {}, models {} experts, beside MPT's predictions", e->framework,
                  e->experts ? "with" : "without")};
  const size_t runs = e->step_time.size();
  // A profile is of the user's own machine.
  if (plan.cost.source == "roofline") {
    lines.push_back(fmt::format("step time: no run tells, {} is priced by its peak rates alone",
                                plan.cluster.device.name));
  } else if (plan.cost.source != "profile" && runs < kEnough) {
    lines.push_back(few(runs, "step time"));
  } else if (const auto expected = expected_step(plan, all)) {
    lines.push_back(
        fmt::format("step time: 8 of 10 runs ({} in all) took {:.2f} to {:.2f} times the prediction", runs,
                    quantile(e->step_time, 1.0 - kMost), quantile(e->step_time, kMost)));
  }
  add_failed(e->failed, plan, lines);
  add_memory(e->peak_memory, plan, lines);
  return lines;
}

}  // namespace mpt::planner
