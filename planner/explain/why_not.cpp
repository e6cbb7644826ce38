// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/why_not.h"

#include <fmt/format.h>

#include "core/quantity.h"
#include "planner/explain/explain.h"

namespace mpt::planner {
namespace {

std::string rules_that_fail(const SearchResult& result) {
  std::string text = "No layout of this kind divides the model and the batch:\n";
  constexpr size_t kMost = 8;
  size_t told = 0;
  for (const auto& [reason, count] : result.not_dividing) {
    if (told++ < kMost) text += "  " + reason + "\n";
  }
  return told > kMost ? text + fmt::format("  and {} more\n", told - kMost) : text;
}

std::string over_memory(const SearchResult& result, const SearchProblem& part) {
  const MemoryFamily& family = result.over_memory.front();
  return fmt::format(
      "All {} layouts of this kind need more than {} per rank.\n"
      "  The nearest, {}, is {} over: {}\n"
      "  It would fit with --memory {} or more.\n",
      format_count(result.certificate.layouts), format_bytes(double(part.memory_limit_bytes)),
      layout_name(family.layout), format_bytes(family.nearest.needed - family.nearest.available),
      family.nearest.reason, format_bytes(family.nearest.needed));
}

std::string slower(const SearchProblem& problem, const SearchResult& result, const Candidate& chosen) {
  const Candidate& best = result.best.front();
  const double loss = best.evaluation.step_time_s - chosen.evaluation.step_time_s;
  std::string text = fmt::format(
      "The fastest of the {} layouts of this kind is {}: {} per step, {} of memory.\n",
      format_count(result.certificate.layouts), layout_name(best.estimate.layout),
      format_seconds(best.evaluation.step_time_s), format_bytes(double(best.evaluation.peak_bytes)));
  if (loss <= 0.0) {
    return text + fmt::format("  It is no slower than the plan's {} ({}).\n",
                              layout_name(chosen.estimate.layout),
                              format_seconds(chosen.evaluation.step_time_s));
  }
  text += "  " + describe_loss(problem, chosen, best) + "\n";
  const Breakdown a = breakdown(problem, chosen), b = breakdown(problem, best);
  const double parts[] = {b.compute_s - a.compute_s, b.collectives_s - a.collectives_s, b.idle_s - a.idle_s};
  const char* remedies[] = {
      "It computes longer, by recompute, an offloaded optimizer or small products: more memory per rank or a "
      "larger micro-batch would win it back.",
      "It communicates more: a faster link under its collectives would win it back.",
      "It idles more: more micro-batches per step (a larger global batch) would win it back."};
  size_t most = 0;
  for (size_t i = 1; i < 3; ++i) most = parts[i] > parts[most] ? i : most;
  return text + "  " + remedies[most] + "\n";
}

}  // namespace

std::string why_not(const SearchProblem& part, const Candidate& chosen) {
  const SearchResult result = search(part, 1);
  if (!result.best.empty()) return slower(part, result, chosen);
  return result.over_memory.empty() ? rules_that_fail(result) : over_memory(result, part);
}

}  // namespace mpt::planner
