// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/utilisation.h"

#include <fmt/format.h>

namespace mpt::planner {
namespace {

// A row without runs is corrected by the factor of the plan's layout.
void correct_row(const Corrected& corrected, double slower, RankedLayout& r) {
  const CorrectedLayout* const known =
      first_if(corrected.layouts, [&](const CorrectedLayout& c) { return c.layout == r.layout; });
  const double times = known != nullptr ? known->step_time_s / r.step_time_s : slower;
  r.step_time_s *= times;
  r.tokens_per_s /= times;
  r.confidence = known != nullptr ? known->confidence : Confidence{};
  if (known != nullptr && known->peak_bytes > 0) r.peak_bytes = known->peak_bytes;
}

}  // namespace

Plan as_observed(Plan plan) {
  if (!plan.corrected) return plan;
  const CorrectedLayout& own = plan.corrected->layouts.front();
  Prediction& p = plan.prediction;
  const double slower = own.step_time_s / p.step_time_s;
  p.step_time_s = own.step_time_s;
  p.tokens_per_s /= slower;
  for (ExposedCommunication& e : p.exposed) e.seconds *= slower;
  p.confidence = own.confidence;
  for (RankedLayout& r : plan.ranking) correct_row(*plan.corrected, slower, r);
  if (own.peak_bytes == 0) return plan;
  const double more = double(own.peak_bytes) / double(reports::peak_bytes(plan));
  for (RankMemory& m : p.memory)
    for (int64_t RankMemory::*bytes :
         {&RankMemory::parameter_bytes, &RankMemory::gradient_bytes, &RankMemory::optimizer_bytes,
          &RankMemory::transfer_buffer_bytes, &RankMemory::activation_peak_bytes, &RankMemory::peak_bytes})
      m.*bytes = int64_t(more * double(m.*bytes));
  return plan;
}

double as_observed(const Plan& plan, double predicted_s) {
  return predicted_s / plan.prediction.step_time_s * as_observed(plan).prediction.step_time_s;
}

TrainingCost training_cost(int64_t ranks, double tokens_per_s, double tokens, double price_per_device_hour,
                           double goodput) {
  constexpr double kSecondsPerHour = 3600.0;
  const double hours = tokens / (tokens_per_s * goodput) / kSecondsPerHour;
  TrainingCost cost;
  cost.days = hours / 24.0;
  cost.device_hours = hours * double(ranks);
  cost.price = cost.device_hours * price_per_device_hour;
  return cost;
}

TrainingCost training_cost(const Plan& plan, double tokens, double price_per_device_hour, double goodput) {
  return training_cost(plan.layout.ranks(), plan.prediction.tokens_per_s, tokens, price_per_device_hour,
                       goodput);
}

std::string with_range(double value, double step_s, const Confidence& c, std::string (*in_words)(double)) {
  std::string plain = in_words(value);
  if (!c.least_s || !c.most_s || !(step_s > 0.0)) return plain;
  return fmt::format("{} ({} to {})", plain, in_words(value * *c.least_s / step_s),
                     in_words(value * *c.most_s / step_s));
}

std::string format_days(double days) { return fmt::format("{:.1f}", days); }

}  // namespace mpt::planner
