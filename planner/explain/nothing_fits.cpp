// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/nothing_fits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/interruption.h"
#include "base/quantity.h"
#include "core/bound_words.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

// "8 GPUs", "1 rank".
std::string devices(int64_t count, const SearchProblem& problem) {
  return fmt::format("{} {}{}", format_count(count), reports::device_word(problem.cluster),
                     count == 1 ? "" : "s");
}

// Where every degree that is given has one value: what they need together, and what that says of the ranks.
std::string degrees_in_the_way(const SearchProblem& problem) {
  const SearchBounds& b = problem.bounds;
  const std::pair<const char*, const std::vector<int64_t>*> degrees[] = {
      {"--tp", &b.tensor}, {"--cp", &b.context}, {"--pp", &b.pipeline}, {"--dp", &b.data}};
  std::vector<std::string> given;
  int64_t product = 1;
  for (const auto& [name, values] : degrees) {
    if (values->empty()) continue;
    if (values->size() > 1) return "";
    given.push_back(fmt::format("{} {}", name, values->front()));
    product *= std::min<int64_t>(values->front(), 10'000'000);
    if (product > 100'000'000) break;
  }
  const std::string options = fmt::format("{}", fmt::join(given, " x "));
  if (product > problem.ranks)
    return fmt::format("{} needs {}, there {} {}", options, devices(product, problem),
                       problem.ranks == 1 ? "is" : "are", format_count(problem.ranks));
  if (product <= 1 || problem.ranks % product != 0)
    return product <= 1
               ? ""
               : fmt::format("{} cannot be split into groups of {}{}", devices(problem.ranks, problem),
                             options, given.size() == 1 ? "" : fmt::format(" = {}", format_count(product)));
  if (product == problem.ranks || b.data.empty()) return "";
  return fmt::format("{} uses {} of {}", options, format_count(product), devices(problem.ranks, problem));
}

Problem nothing_divides(const SearchResult& result, const SearchProblem& problem) {
  const std::vector<std::string> options = bounded_options(problem.bounds);
  std::string remedy =
      "change --global-batch or the number of " + std::string(reports::device_word(problem.cluster)) + "s";
  if (!options.empty()) remedy += fmt::format(", or {}", fmt::join(options, ", "));
  const std::string degrees = degrees_in_the_way(problem);
  if (!degrees.empty())
    return {"layouts", degrees, "degrees whose product divides the number of GPUs", remedy};
  constexpr size_t kMost = 6;
  std::string why;
  size_t told = 0;
  for (const auto& [reason, count] : result.not_dividing) {
    if (told++ < kMost) why += (told == 1 ? ": " : "; ") + reason;
  }
  if (told > kMost) why += fmt::format("; and {} more", told - kMost);
  const bool lacks =
      problem.framework &&
      std::any_of(result.not_dividing.begin(), result.not_dividing.end(),
                  [&](const auto& rule) { return rule.first.starts_with(problem.framework->title); });
  if (lacks) remedy += "; or name another --framework; or search --beyond-framework";
  return {"layouts",
          fmt::format("none divides the model and the batch over {}{}", devices(problem.ranks, problem), why),
          "at least one", remedy};
}

}  // namespace

Problem why_nothing_fits(const SearchResult& result, const SearchProblem& problem) {
  if (stop_requested())
    return {
        "interrupted",
        fmt::format("after {} no layout that fits was found yet", format_seconds(result.certificate.seconds)),
        "", ""};
  if (!result.certificate.optimal) {
    return {"--time-limit",
            fmt::format("the search was stopped after {} without a layout that fits",
                        format_seconds(result.certificate.seconds)),
            "more time", "raise it, or bound the space with --tp, --pp and the like"};
  }
  if (result.over_memory.empty()) return nothing_divides(result, problem);
  const NearMiss& family = result.over_memory.front();
  const char* const one = reports::device_word(problem.cluster);
  return {"memory",
          fmt::format("{} needs at least {} per {} on {}; there are {}", problem.model.name,
                      format_bytes(family.nearest.needed), one, devices(problem.ranks, problem),
                      format_bytes(double(problem.memory_limit_bytes))),
          fmt::format("a layout that fits; of {} the smallest is {} ({})",
                      format_count(result.certificate.layouts), layout_name(family.layout),
                      family.nearest.reason),
          "use more GPUs (--cluster, --ranks), a smaller --global-batch or --seq, or more --memory if it was "
          "given"};
}

void throw_nothing_fits(const SearchResult& result, const SearchProblem& problem) {
  throw UserError(why_nothing_fits(result, problem));
}

}  // namespace mpt::planner
