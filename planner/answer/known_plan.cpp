// SPDX-License-Identifier: Apache-2.0
#include "planner/answer/known_plan.h"

#include "base/terminal.h"
#include "core/bound_words.h"
#include "planner/answer/recommend.h"
#include "planner/explain/nothing_divides.h"

namespace mpt::planner {
namespace {

// The option of the file that gave the plan's prices; null if they are from the catalog.
const char* priced_by(const Plan& plan) {
  return plan.cost.source == "profile"       ? "--profile"
         : plan.cost.source == "own kernels" ? "--kernels"
                                             : nullptr;
}

// The same problem with faster links; nothing if the prices are from a file.
std::unique_ptr<Resolved> on_faster_links(KnownPlan known, const SearchBounds& bounds) {
  if (priced_by(known.plan) != nullptr) return nullptr;
  for (LinkLevel& level : known.plan.cluster.levels) level.bandwidth_bytes_per_s *= kFasterLinks;
  for (DeviceGroup& group : known.plan.cluster.groups)
    for (LinkLevel& level : group.levels) level.bandwidth_bytes_per_s *= kFasterLinks;
  return problem_of(known, bounds);
}

// Wraps each line with the indent of that line.
std::string wrapped_lines(const std::string& text) {
  std::string all;
  for (const std::string& line : split_at(text.substr(0, text.find_last_not_of('\n') + 1), '\n')) {
    const size_t depth = std::min(line.find_first_not_of(' '), line.size());
    all += wrapped(line.substr(depth), line.substr(0, depth));
  }
  return all;
}

}  // namespace

bool lacks_prices(const KnownPlan& known) {
  return priced_by(known.plan) != nullptr &&
         (known.plan.cost.source == "profile" ? known.profile : known.kernels).empty();
}

PlanRequest request_again(const KnownPlan& known, SearchBounds bounds) {
  const Plan& plan = known.plan;
  PlanRequest request = request_of(plan);
  request.profile = known.profile;
  request.kernels = known.kernels;
  request.memory = std::to_string(plan.memory_limit_bytes) + "B";
  if (plan.cluster.mixed()) {  // each kind of GPU has a separate limit
    request.memory = plan.request.memory;
    request.memory_margin = plan.request.memory_margin;
  }
  request.gpus = plan.layout.ranks();
  request.bounds = std::move(bounds);
  return request;
}

std::unique_ptr<Resolved> problem_of(const KnownPlan& known, const SearchBounds& bounds) {
  const char* const option = priced_by(known.plan);
  const auto refuse = [&](const std::string& found) {
    refuse_input(
        option, found,
        fmt::format("the file that {} was priced with (digest {})", known.name, known.plan.cost.digest),
        "its times are needed to price other layouts");
  };
  if (lacks_prices(known)) refuse("missing");
  auto resolved = resolve(request_again(known, bounds));
  resolved->problem.meant = bound_words(bounds);
  std::erase_if(resolved->problem.meant, [](const BoundWords& bound) {  // one replica has no ZeRO either
    return bound.name == "zero" && contains(bound.values, std::string("0"));
  });
  for (const BoundWords& bound : resolved->problem.meant)
    if (axis_word(bound.name, known.plan.layout).empty()) resolved->problem.known.clear();
  if (option != nullptr && resolved->cost->origin().digest != known.plan.cost.digest) refuse("another file");
  if (option == nullptr && !(known.profile + known.kernels).empty())
    refuse_input(known.profile.empty() ? "--kernels" : "--profile", "given",
                 fmt::format("none: {} was priced by the catalog", known.name), "leave it out");
  return resolved;
}

std::string why_not(const KnownPlan& known, const Resolved& resolved, const std::string& words) {
  const SearchProblem& problem = resolved.problem;
  const auto faster = on_faster_links(known, parse_bounds(words, "layout"));
  const Question question{known.plan, problem, known.plan.request.bounds,
                          faster ? &faster->problem : nullptr};
  return fmt::format("Why not {}?\n", words) +
         wrapped_lines(why_not(question, priced(problem, known.plan.layout)));
}

}  // namespace mpt::planner
