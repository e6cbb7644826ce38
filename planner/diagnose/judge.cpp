// SPDX-License-Identifier: Apache-2.0
#include "planner/diagnose/judge.h"

#include <fmt/format.h>

#include <cmath>

#include "base/quantity.h"
#include "base/terminal.h"

namespace mpt::planner {
namespace {

std::string verdict(const Plan& plan, const Measurement& m) {
  const double predicted_s = plan.prediction.step_time_s, ratio = m.step_time_s / predicted_s;
  const std::string precision = enum_name(plan.layout.precision);
  std::string text = "Measured " + m.said;
  if (m.flop_per_s > 0.0 || m.tokens_per_s > 0.0)
    text += fmt::format(", which is {} per step", format_seconds(m.step_time_s));
  text += fmt::format("; predicted {} in {}: ", format_seconds(predicted_s), precision);
  if (std::abs(ratio - 1.0) < 5e-3) return text + "as predicted.";
  return text + (ratio < 1.0 ? fmt::format("{:.2f} times as fast as predicted.", 1.0 / ratio)
                             : fmt::format("{:.2f} times the predicted time.", ratio));
}

// Comparison with published runs; empty if there are none.
std::string compared_with_published(const Plan& plan, double ratio, const std::vector<Evidence>& published) {
  const auto range = published_range(plan, published);
  if (!range) return "";
  return (ratio < range->low    ? "Faster than 9 in 10. "
          : ratio > range->high ? "Slower than 9 in 10. "
                                : "Usual. ") +
         describe_range(*range);
}

// Ways of counting, and explanations, that differ by less are treated as equal.
constexpr double kClearly = 0.03;

struct WayOfCounting {
  Counting counting;
  const char *name, *question;
};
constexpr WayOfCounting kWays[] = {
    {{true, false}, "recompute", "Does your counter count recompute?"},
    {{false, true}, "attention as a whole square", "Does your counter leave out that attention is causal?"},
    {{true, true},
     "recompute, and attention as a whole square",
     "Does your counter count recompute and the masked half of attention?"}};

double rate_of_one(const Plan& plan, double flop) {
  return flop / plan.prediction.step_time_s / double(plan.layout.ranks());
}

std::string counted_as(const Plan& plan, const Measurement& m, const WayOfCounting& way, double more) {
  return fmt::format(
      "With {} counted, {} per GPU are predicted: the step then takes {}, {:.2f} times the predicted time.",
      way.name, format_flop_rate(more * rate_of_one(plan, plan.prediction.model_flop_per_step)),
      format_seconds(m.step_time_s * more), m.step_time_s * more / plan.prediction.step_time_s);
}

// The way of counting that fits clearly better than the model's work; null if none does.
const WayOfCounting* better_way(const Plan& plan, double ratio, double own) {
  if (std::abs(ratio - 1.0) < kWorthExplaining) return nullptr;
  double nearest = std::abs(std::log(ratio)) - kClearly;
  const WayOfCounting* best = nullptr;
  for (const WayOfCounting& way : kWays) {
    const double more = counted_flop(plan, way.counting) / own;
    const double distance = std::abs(std::log(ratio * more));
    if (more < 1.0 + kClearly || distance >= nearest) continue;
    // Later ways count more than this one, so they must fit clearly better.
    nearest = distance - kClearly;
    best = &way;
  }
  return best;
}

// Adds the counted work, the same with recompute, and the way that fits better.
void add_counting(const Plan& plan, const Measurement& m, std::vector<std::string>& lines) {
  lines.push_back(
      fmt::format("This counts the model's work: no recompute, causal attention as half of a square; "
                  "predicted {} per GPU.",
                  format_flop_rate(rate_of_one(plan, plan.prediction.model_flop_per_step))));
  const double own = counted_flop(plan, {});
  const double recompute = counted_flop(plan, kWays[0].counting) / own;
  const WayOfCounting* best = better_way(plan, m.step_time_s / plan.prediction.step_time_s, own);
  if (recompute < 1.0 + kClearly)
    lines.push_back("The layout recomputes nearly nothing, so both ways of counting agree.");
  else if (best == nullptr)
    lines.push_back(counted_as(plan, m, kWays[0], recompute));
  if (best == nullptr) return;
  lines.push_back(counted_as(plan, m, *best, counted_flop(plan, best->counting) / own) + " " +
                  best->question);
}

}  // namespace

std::optional<StepRange> published_range(const Plan& plan, const std::vector<Evidence>& published) {
  const Confidence sure = confidence(predicted_by(plan), published);
  if (!sure.least_s || !sure.most_s) return std::nullopt;
  const double step_s = plan.prediction.step_time_s;
  return StepRange{*sure.least_s / step_s, *sure.most_s / step_s};
}

std::string describe_range(const StepRange& range) {
  return fmt::format("By published runs, 8 of 10 steps take {:.2f} to {:.2f} times the predicted time.",
                     range.low, range.high);
}

std::vector<std::string> judge(const Plan& plan, const Measurement& m,
                               const std::vector<Evidence>& published) {
  const double ratio = m.step_time_s / plan.prediction.step_time_s;
  std::vector<std::string> lines{verdict(plan, m)};
  const std::string published_text = compared_with_published(plan, ratio, published);
  if (!published_text.empty()) lines.push_back(published_text);
  if (m.flop_per_s > 0.0) add_counting(plan, m, lines);
  return lines;
}

std::string describe_against_best(const Plan& plan, const Plan& best, const std::string& text) {
  if (text.empty()) return "";
  const Measurement m = parse_measurement(text, "--measured", plan);
  const double best_s = best.prediction.step_time_s;
  return fmt::format("It is expected at {} per step, {} per GPU: {:.2f} times as fast as your measured {}.",
                     format_seconds(best_s),
                     format_flop_rate(rate_of_one(best, best.prediction.model_flop_per_step)),
                     m.step_time_s / best_s, format_seconds(m.step_time_s));
}

std::string describe_judgement(const Plan& plan, const std::string& text) {
  if (text.empty()) return "";
  const Measurement m = parse_measurement(text, "--measured", plan);
  std::string lines = "\nYour measurement\n";
  for (const std::string& line : judge(plan, m, published_evidence())) lines += wrapped(line, "  ");
  const auto range = published_range(plan, published_evidence());
  if (range && m.step_time_s > range->high * plan.prediction.step_time_s)
    lines += wrapped(
        "Where the time goes: write this layout with -o plan.json, and mpt-plan diagnose plan.json "
        "LOG reads the log of the run.",
        "  ");
  return lines;
}

}  // namespace mpt::planner
