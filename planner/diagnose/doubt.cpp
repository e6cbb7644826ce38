// SPDX-License-Identifier: Apache-2.0
#include "planner/diagnose/trouble.h"

#include <cmath>

#include "base/error.h"
#include "base/quantity.h"
#include "core/bound_words.h"
#include "planner/api.h"
#include "planner/explain/confidence.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

// Smaller errors of predicted memory prove nothing, whatever the errors of published runs.
constexpr double kFar = 1.2;

struct Variant {
  const char* words;
  double bytes = 0.0, step_s = 0.0;
};

// With small changes of the layout that users make, or forget.
std::vector<Variant> variants_of(const Plan& plan) {
  const auto micro_batch = [&](int64_t times) {
    return fmt::format("micro-batch={}", times * plan.layout.micro_batch);
  };
  const std::pair<const char*, std::string> changes[] = {
      {"with full recompute (activation checkpointing)", "recompute=full"},
      {"with micro-batches of one sequence (more gradient accumulation)", "micro-batch=1"},
      {"with ZeRO 3 (FULL_SHARD)", "zero=3"},
      {"with the optimizer in CPU memory", "offload=on"},
      {"without recompute (activation checkpointing off)", "recompute=none"},
      {"with micro-batches twice as large", micro_batch(2)},
      {"with micro-batches four times as large", micro_batch(4)},
      {"with ZeRO 0 (plain data parallel, DDP)", "zero=0"},
      {"with the optimizer on the GPU", "offload=off"}};
  std::vector<Variant> variants;
  PlanRequest request = request_of(plan);
  for (const auto& [words, bounds] : changes) {
    request.bounds = parse_bounds(bounds, words);
    try {
      const Estimated other = estimate(request);
      const Variant variant{words, double(reports::peak_bytes(other.plan)),
                            other.plan.prediction.step_time_s};
      if (!other.refusal && other.plan.layout != plan.layout) variants.push_back(variant);
    } catch (const UserError&) {  // there is no such layout
      continue;
    }
  }
  return variants;
}

// Variants that explain the memory at least twice as well as the plan, nearest first.
std::vector<Variant> explaining(const Plan& plan, double bytes, bool at_least) {
  constexpr size_t kMost = 2;
  const double own = std::abs(std::log(bytes / double(reports::peak_bytes(plan))));
  const auto distance = [&](const Variant& v) { return std::abs(std::log(bytes / v.bytes)); };
  std::vector<Variant> variants = variants_of(plan);
  std::erase_if(variants,
                [&](const Variant& v) { return distance(v) > own / 2.0 && !(at_least && v.bytes > bytes); });
  sort_by(variants, distance);
  if (variants.size() > kMost) variants.resize(kMost);
  return variants;
}

}  // namespace

std::string doubt_by_memory(const Plan& plan, double bytes, bool at_least) {
  const double ratio = bytes / double(reports::peak_bytes(plan));
  const Spread used = memory_spread(predicted_by(plan).like, published_evidence());
  const double most = used.empty() ? kFar : std::max(kFar, used.quantile(0.9));
  const double least = used.empty() ? 1.0 / kFar : std::min(1.0 / kFar, used.quantile(0.1));
  if (ratio <= most && (ratio >= least || at_least)) return "";
  std::string text = fmt::format(
      "That is {}{:.2f} times the prediction, where 9 of 10 published runs use {} {:.2f} times: the run is "
      "probably not this plan.",
      at_least ? "at least " : "", ratio, ratio > 1.0 ? "at most" : "at least", ratio > 1.0 ? most : least);
  std::vector<std::string> explained;
  for (const Variant& v : explaining(plan, bytes, at_least))
    explained.push_back(fmt::format("{} it is predicted at {} and {} per step", v.words,
                                    format_bytes(v.bytes), format_seconds(v.step_s)));
  if (explained.empty())
    return text + " Check the model, the sequence length, the micro-batch and the precision of the run.";
  explained.front()[0] = char(std::toupper(static_cast<unsigned char>(explained.front()[0])));
  return fmt::format("{} {}. Check that first.", text, joined(explained, "; "));
}

}  // namespace mpt::planner
