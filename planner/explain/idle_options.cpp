// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/plan_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/bound_words.h"
#include "planner/explain/nothing_divides.h"
#include "planner/search/space.h"

namespace mpt::planner {
namespace {

// The parallelism that the axis of a bound needs.
const std::map<std::string, const char*> kNeeds{
#include "generated/NeedsOfBounds.inc"
};

struct Idle {
  bool given, idle;
  const char *option, *why;
};

std::vector<std::string> told(const std::vector<Idle>& rows) {
  std::vector<std::string> notes;
  for (const Idle& row : rows)
    if (row.given && row.idle) notes.push_back(fmt::format("{} changes nothing: {}.", row.option, row.why));
  return notes;
}

// The layout with the largest degrees within the bounds; 2 for a degree without bounds.
Layout widest(const SearchProblem& problem) {
  const SearchBounds& b = problem.bounds;
  const auto most = [&](const std::vector<int64_t>& bound) {
    return bound.empty() ? std::min<int64_t>(2, problem.ranks)
                         : *std::max_element(bound.begin(), bound.end());
  };
  Layout layout;
  layout.tensor = most(b.tensor);
  layout.context = most(b.context);
  layout.pipeline = most(b.pipeline);
  layout.data = most(b.data);
  layout.expert = problem.model.moe() != nullptr ? most(b.expert) : 1;
  return layout;
}

std::vector<std::string> idle(const PlanRequest& r, const SearchProblem& problem, const Layout& layout,
                              bool selective) {
  const bool no_experts = problem.model.moe() == nullptr;
  std::vector<std::string> notes =
      told({{r.expert_load > 0.0, no_experts, "--expert-load", "the model has no experts"},
            {r.dispatch.has_value(), no_experts || layout.expert == 1, "--dispatch",
             no_experts ? "the model has no experts" : "there is no expert parallelism"},
            {!r.recompute_modules.empty(), !selective, "--recompute-modules",
             "it says what --recompute selective runs again"},
            {!r.storage_bandwidth.empty(), r.or_nodes.empty(), "--storage-bandwidth",
             "it times the reading of --or-nodes"},
            {!r.memory_margin.empty(), !r.memory.empty(), "--memory-margin", "--memory sets the limit"}});
  for (const BoundWords& bound : bound_words(r.bounds)) {
    const auto needs = kNeeds.find(bound.name);
    const bool off = bound.values.front() == "off" || bound.values.front() == "1";
    if (needs != kNeeds.end() && !off && axis_word(bound.name, layout).empty())
      notes.push_back(fmt::format("{} changes nothing: there is no {}.", bound.option(), needs->second));
  }
  return notes;
}

}  // namespace

std::vector<std::string> idle_options(const PlanRequest& request, const SearchProblem& problem,
                                      const Layout& layout) {
  return idle(request, problem, layout, layout.recompute == Recompute::selective);
}

std::vector<std::string> idle_of_search(const PlanRequest& request, const SearchProblem& problem,
                                        const Layout& best) {
  std::vector<std::string> notes =
      idle(request, problem, widest(problem), allowed(problem.bounds.recomputes, Recompute::selective));
  const std::vector<int64_t>& zero = problem.bounds.zero;
  if (zero.empty() || zero.front() == 0 || best.replicas() > 1 || problem.ranks == 1) return notes;
  std::string note =
      fmt::format("--zero {} changes nothing here: one replica shares nothing out.", zero.front());
  SearchProblem shared = problem;
  shared.bounds.data = divisors(problem.ranks);
  shared.bounds.data.erase(shared.bounds.data.begin());
  if (!has_layouts(shared)) note += fmt::format(" With more of them: {}.", nothing_divides(shared).found);
  notes.push_back(std::move(note));
  return notes;
}

}  // namespace mpt::planner
