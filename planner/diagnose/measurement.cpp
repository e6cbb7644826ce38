// SPDX-License-Identifier: Apache-2.0
#include "planner/diagnose/judge.h"

#include <cmath>

#include "base/error.h"
#include "base/quantity.h"
#include "models/layer_program.h"
#include "planner/cost/operator_pieces.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

// The name is in lower case, without blanks. `counted` is s, flop/s, tokens/s, or tokens/s/gpu.
struct MeasuredUnit {
  const char *name, *scale;
  std::string_view counted;
};
constexpr MeasuredUnit kUnits[] = {
#include "generated/MeasuredUnits.inc"
};

// The text in lower case, without blanks.
std::string packed_lower(std::string_view text) {
  std::string packed = lower_case(std::string(text));
  std::erase(packed, ' ');
  return packed;
}

Measurement measured_as(std::string_view counted, double value, const Plan& plan) {
  const auto ranks = double(plan.layout.ranks()), tokens = double(plan.workload.tokens_per_step());
  Measurement m;
  if (counted == "s") {
    m.step_time_s = value;
    m.said = format_seconds(value) + " per step";
  } else if (counted == "flop/s") {
    m.flop_per_s = value;
    m.step_time_s = plan.prediction.model_flop_per_step / ranks / value;
    m.said = format_flop_rate(value) + " per GPU";
  } else {
    const bool all = counted == "tokens/s";
    m.tokens_per_s = value * (all ? 1.0 : ranks);
    m.step_time_s = tokens / m.tokens_per_s;
    m.said = fmt::format("{} tokens/s {}", format_count(int64_t(value)), all ? "of all GPUs" : "per GPU");
  }
  return m;
}

// FLOP of one layer in the forward; `again`: the part that its backward recomputes.
struct LayerFlop {
  double forward = 0.0, again = 0.0;
};

double flop_of(const models::OperatorShape& shape, bool whole_squares) {
  if (!whole_squares || shape.kind != models::OperatorKind::attention) return models::forward_flop(shape);
  return 2.0 * double(shape.batch) * double(shape.sequence) * double(shape.sequence) * double(shape.heads) *
         double(shape.head_dim + shape.value_head_dim);
}

LayerFlop layer_flop(const models::LayerProgram& layer, Recompute recompute, bool whole_squares) {
  LayerFlop flop;
  for (size_t i = 0; i < layer.operators.size(); ++i) {
    const double forward = flop_of(layer.operators[i].shape, whole_squares);
    flop.forward += forward;
    flop.again += recomputed_share(layer, i, recompute) * forward;
  }
  return flop;
}

// The share in "mfu 41%", "41% mfu" and "mfu=0.41", all in lower case without blanks; `word` is "mfu" or
// "hfu".
std::optional<double> utilisation_in(std::string text, const char* word) {
  const size_t at = text.find(word);
  if (at == std::string::npos) return std::nullopt;
  text.erase(at, 3);
  std::erase_if(text, [](char c) { return c == '=' || c == ':'; });
  const auto [value, length] = leading_number(text);
  const std::string rest = text.substr(length);
  if (length == 0 || (!rest.empty() && rest != "%")) return std::nullopt;
  const double share = rest == "%" ? value / 100.0 : value;
  return share > 0.0 && share < 10.0 ? std::optional(share) : std::nullopt;
}

std::optional<Measurement> measured_utilisation(const std::string& text, const Plan& plan) {
  const double peak = reports::peak_flop_per_s(plan);
  if (peak <= 0.0) return std::nullopt;
  Measurement m;
  if (const auto mfu = utilisation_in(text, "mfu")) {
    m = measured_as("flop/s", *mfu * peak / double(plan.layout.ranks()), plan);
    m.said = fmt::format("MFU {}, {}", format_percent(*mfu), m.said);
    return m;
  }
  const auto hfu = utilisation_in(text, "hfu");
  if (!hfu) return std::nullopt;
  m.step_time_s = counted_flop(plan, {.recompute = true}) / (*hfu * peak);
  m.said = fmt::format("HFU {}, that is {} per step with recompute counted", format_percent(*hfu),
                       format_seconds(m.step_time_s));
  return m;
}

// The quantity that may have been measured instead of a step, if that would be near the prediction.
std::string likely_mistake(const Measurement& m, const Plan& plan) {
  const struct {
    double times;
    const char* instead;
  } candidates[] = {
      {double(micro_batches(plan.layout, plan.workload)), "this is the time of one micro-batch"},
      {1000.0, "this is a thousandth of a step: milliseconds and seconds are mixed up"},
      {double(plan.layout.ranks()), "the work of all GPUs is given as that of one"}};
  double nearest = std::log(2.0);
  std::string likely;
  for (const auto& [times, instead] : candidates) {
    const double distance = std::abs(std::log(m.step_time_s * times / plan.prediction.step_time_s));
    if (times < 1.5 || distance >= nearest) continue;
    nearest = distance;
    likely = fmt::format("likely {}; ", instead);
  }
  return likely;
}

// Refuses a rate of one GPU that was given as that of all.
void check_rate_of_one(const Measurement& m, const std::string& where, const Plan& plan) {
  const auto ranks = double(plan.layout.ranks());
  const double slower = m.step_time_s / plan.prediction.step_time_s / ranks;
  if (m.tokens_per_s <= 0.0 || ranks < 4.0 || slower < 0.5 || slower > 2.0) return;
  refuse_input(
      where, fmt::format("{}, about what one of the {} GPUs does", m.said, format_count(plan.layout.ranks())),
      "the tokens of all GPUs together",
      fmt::format("for one GPU: --measured {:.0f}tokens/s/GPU", m.tokens_per_s));
}

}  // namespace

double counted_flop(const Plan& plan, Counting counting) {
  const Layout& layout = plan.layout;
  Layout one;
  one.execution = layout.execution;
  const int64_t sequence = plan.workload.sequence;
  double sum = 0.0;
  for (const models::Operator& op : models::head_program(plan.model, one, sequence).operators)
    sum += 3.0 * models::forward_flop(op.shape);
  const std::vector<StageContent> stages = stage_contents(plan.model, layout);
  for (size_t s = 0; s < stages.size(); ++s) {
    const int64_t recomputed = recomputed_layers(layout, s, stages[s].layer_count);
    for (int64_t n = 0; n < stages[s].layer_count; ++n) {
      const bool again = layout.recompute == Recompute::selective || n < recomputed;
      const LayerFlop flop =
          layer_flop(models::layer_program(plan.model, stages[s].first_layer + n, one, sequence),
                     again ? layout.recompute : Recompute::none, counting.whole_squares);
      sum += 3.0 * flop.forward + (counting.recompute ? flop.again : 0.0);
    }
  }
  return sum * double(plan.workload.global_batch);
}

void check_possible(const Measurement& m, const std::string& where, const Plan& plan) {
  const double peak = reports::peak_flop_per_s(plan);
  // The peaks of CPUs are only estimates.
  if (plan.cluster.device.kind == DeviceKind::cpu || peak <= 0.0) return;
  const double least_s = plan.prediction.model_flop_per_step / peak;
  if (m.step_time_s >= least_s) return;
  refuse_input(
      where, fmt::format("{}, faster than the GPUs can be", m.said),
      fmt::format("at most {} per GPU, the {} peak of {}: {} or more per step",
                  format_flop_rate(peak / double(plan.layout.ranks())), enum_name(plan.layout.precision),
                  plan.cluster.device.name, format_seconds(least_s)),
      likely_mistake(m, plan) +
          "check the unit, and that model, batch, sequence length, precision and number of GPUs are those of "
          "the run");
}

std::string describe_other_work(const Plan& plan, double flop_per_s, double step_time_s) {
  // Counters differ in details, such as the work of embedding and router.
  constexpr double kMargin = 1.25;
  if (flop_per_s <= 0.0) return "";
  const double own = counted_flop(plan, {});
  const double logged = flop_per_s * step_time_s * double(plan.layout.ranks());
  const double most = counted_flop(plan, {.recompute = true, .whole_squares = true});
  if (logged > own / kMargin && logged < most * kMargin) return "";
  return fmt::format(
      "The log's own {} per GPU are {} in a step; the plan's step has {} to {}. Is it a run of the plan's "
      "model, sequence length and batch?",
      format_flop_rate(flop_per_s), format_flop(logged), format_flop(own), format_flop(most));
}

Measurement parse_measurement(const std::string& text, const std::string& where, const Plan& plan) {
  const auto [value, length] = leading_number(text);
  const std::string unit = packed_lower(text.substr(length));
  if (const auto utilisation = measured_utilisation(packed_lower(text), plan)) {
    check_possible(*utilisation, where, plan);
    return *utilisation;
  }
  for (const MeasuredUnit& known : kUnits) {
    const double scaled = value * number_of<double>(known.scale).value_or(0.0);
    if (length == 0 || unit != known.name || !(scaled > 1e-9) || !(scaled < 1e24)) continue;
    Measurement measured = measured_as(known.counted, scaled, plan);
    check_possible(measured, where, plan);
    if (known.counted == "tokens/s") check_rate_of_one(measured, where, plan);
    return measured;
  }
  refuse_input(where, fmt::format("\"{}\"", text.substr(0, 40)),
               "a number with its unit: 18.7s, 380TFLOP/s (of one GPU), 56000tokens/s (of all "
               "GPUs), 7000tokens/s/GPU or \"MFU 41%\"");
}

}  // namespace mpt::planner
