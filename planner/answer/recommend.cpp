// SPDX-License-Identifier: Apache-2.0
#include "planner/answer/recommend.h"

#include "base/clock.h"
#include "base/interruption.h"
#include "base/quantity.h"
#include "core/ties.h"
#include "frameworks/framework.h"
#include "frameworks/supports/supports.h"
#include "planner/explain/confidence.h"
#include "planner/explain/details.h"
#include "planner/explain/drawn_choice.h"
#include "planner/explain/explain.h"
#include "planner/explain/memory_parts.h"
#include "planner/explain/nothing_divides.h"
#include "planner/explain/plan_notes.h"
#include "planner/explain/screen.h"
#include "planner/observe/observed_plan.h"
#include "planner/observe/observed_run.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

// The problem with all usable memory, if the user did not set the margin.
std::optional<SearchProblem> roomier_problem(const Resolved& resolved) {
  constexpr double kMostSeconds = 10.0;
  if (!has_default_margin(resolved)) return std::nullopt;
  SearchProblem roomier = without_margin(resolved.problem);
  roomier.time_limit_s = kMostSeconds;
  return roomier;
}

// The problem with the other frameworks that train the model, apart from mpt-run. No other framework runs a
// schedule made to measure.
std::optional<SearchProblem> problem_beyond(const SearchProblem& problem) {
  constexpr double kMostSeconds = 3.0;
  if (!problem.framework || problem.cluster.device.kind == DeviceKind::cpu || problem.cluster.mixed())
    return std::nullopt;
  SearchProblem beyond = problem;
  beyond.apart_from = std::exchange(beyond.framework, nullptr);
  for (const frameworks::Framework& f : frameworks::known_frameworks()) {
    const bool other = f.name != problem.execution.framework && f.name != frameworks::own_runtime().name;
    if (other && !frameworks::supports_model(f, problem.model, problem.precision))
      beyond.any_of.push_back(&f);
  }
  if (beyond.any_of.empty()) return std::nullopt;
  beyond.near_misses = false;
  beyond.time_limit_s = kMostSeconds;
  return beyond;
}

// Notes the cost of the framework's limits, if another framework runs a faster layout.
void note_limits_of_framework(const SearchProblem& beyond, const Resolved& resolved, const Candidate& faster,
                              Plan& plan) {
  const SearchProblem& problem = resolved.problem;
  const Layout& layout = faster.estimate.layout;
  const auto lacks = frameworks::supports(*problem.framework, problem.model, layout, problem.workload);
  if (!lacks) return;
  const auto runner = find_if(beyond.any_of, [&](const auto* f) {
    return !frameworks::supports(*f, problem.model, layout, problem.workload);
  });
  plan.notes.push_back(
      fmt::format("{} would be {} faster. {}; {} runs it (--framework {}).", layout_name(layout),
                  format_percent(1.0 - faster.evaluation.step_time_s / plan.prediction.step_time_s),
                  lacks->reason, (*runner)->title, (*runner)->name));
}

constexpr const char* kNothingLikelyFits = "No layout is 90% likely to fit; this one is the likeliest.";

// The search also keeps the layouts over which errors are drawn, and tied ones that may need less memory. So
// the recommended layout does not depend on the number of layouts that the user asks for.
constexpr size_t kMostEquals = 32;
// At most this many of tp, pp, cp, ep and dp are above 1 in a layout that is called simplest.
constexpr int kSimple = 2;

std::unique_ptr<ArrangedSearch> considered_search(const SearchProblem& problem, size_t keep,
                                                  const Watch& watch, const std::string& what,
                                                  const Beside& beside = {}) {
  return search_arrangements(
      problem, {std::max(keep, kMostDrawn), kMostEquals, kEqualTimes},
      [&](const SearchProgress& p) { return (!watch || watch(what, p)) && !stop_requested(); }, beside);
}

void keep_first(size_t keep, std::vector<Candidate>& best) {
  if (best.size() > keep) best.erase(best.begin() + ptrdiff_t(keep), best.end());
}

// Draws errors over all found layouts, and keeps the first `keep`. Returns the layout to measure together
// with the first, if it is not among those kept. The ranking lists it after them.
std::optional<Candidate> draw_and_keep(size_t keep, ArrangedSearch& search) {
  std::vector<Candidate>& best = search.result.best;
  std::optional<DrawnChoice>& drawn = search.result.certificate.drawn;
  drawn = draw_choice(search.result, search.problem);
  std::optional<Candidate> rival;
  if (drawn && !drawn->measure.empty() && drawn->measure.back() > int64_t(keep)) {
    rival = std::move(best[size_t(drawn->measure.back() - 1)]);
    drawn->measure.back() = int64_t(keep) + 1;
  }
  keep_first(keep, best);
  return rival;
}

// Searches data parallelism alone, sharded or not, which people try first, also if it may not fit. Null:
// something else was asked for, or none fits.
std::unique_ptr<ArrangedSearch> plain_search(SearchProblem problem, const Watch& watch) {
  SearchBounds& bounds = problem.bounds;
  for (auto* degrees : {&bounds.tensor, &bounds.context, &bounds.pipeline, &bounds.expert}) {
    if (!allowed(*degrees, int64_t{1})) return nullptr;
    *degrees = {1};
  }
  auto found = considered_search(problem, 1, watch, "of data parallelism alone");
  return found->result.best.empty() ? nullptr : std::move(found);
}

// Marks the simplest layout in the ranking, and adds it if it is missing.
void add_simplest(const std::optional<Candidate>& simplest, const SearchProblem& problem,
                  std::vector<RankedLayout>& ranking) {
  if (!simplest) return;
  auto row = find_if(ranking, [&](const RankedLayout& r) { return r.layout == simplest->estimate.layout; });
  if (row == ranking.end())
    row = ranking.insert(ranking.end(), ranked(*simplest, problem, published_evidence()));
  row->role = Role::simplest;
}

// Adds data parallelism alone if it runs; else the simplest layout that the search found.
void add_simplest(const ArrangedSearch* plain, const ArrangedSearch& search, Plan& plan) {
  if (plain == nullptr)
    add_simplest(search.result.simplest, search.problem, plan.ranking);
  else if (kinds_of_parallelism(plan.layout.degrees(), plan.layout.expert) > 1)
    add_simplest(plain->result.best.front(), plain->problem, plan.ranking);
}

// Adds the fastest of the layouts that may not fit, or the one to try first, at the end of the ranking.
// Returns its index in search.result.roomier.
template <class Is>
size_t add_roomier(const ArrangedSearch& search, Plan& plan, Is&& is_pointless) {
  const std::vector<Candidate>& all = search.result.roomier;
  if (all.empty()) return 0;
  std::vector<RankedLayout> rows;
  for (const Candidate& c : all) rows.push_back(ranked(c, search.problem, published_evidence()));
  plan.risk = weigh(plan.ranking.front(), rows);
  const size_t place = plan.risk ? size_t(plan.risk->try_first) : 0;
  if (!plan.risk && is_pointless(rows[place])) return place;
  plan.ranking.push_back(rows[place]);
  if (plan.risk) plan.risk->try_first = int64_t(plan.ranking.size());
  return place;
}

// The plan of the layout to try first. Its ranking has the safe layout second.
Plan tried_first(const Plan& safe, const ArrangedSearch& search, size_t risky) {
  Plan plan = plan_of(without_margin(search.problem), search.result.roomier[risky], safe.request);
  plan.search = safe.search;
  plan.search.drawn.reset();
  plan.search.fastest_s = search.result.roomier.front().evaluation.step_time_s;
  plan.rejected = safe.rejected;
  plan.ranking.insert(plan.ranking.end(), safe.ranking.begin(), safe.ranking.end() - 1);
  plan.ranking[0].role = Role::recommended;
  plan.ranking[1].role = Role::alternative;
  plan.notes = safe.notes;
  plan.risk = safe.risk;
  plan.risk->try_first = 1;
  plan.risk->fall_back = 2;
  return plan;
}

Plan with_verdict(Plan plan, const PlanRequest& request, const SearchProblem& problem) {
  plan.request = portable(request, problem);
  if (!problem.framework) return plan;
  const ModelVerdict verdict = frameworks::verdict_on(*problem.framework, problem.model, problem.training);
  if (verdict.verdict != VerdictKind::exported) plan.verdict = verdict;
  return plan;
}

// A trial costs relatively more in a short training. This number is for a short one.
constexpr double kStepsOfTraining = 1000.0;
constexpr double kWorthATrial = 0.1;

}  // namespace

std::unique_ptr<ArrangedSearch> recommended_search(const SearchProblem& problem, size_t keep,
                                                   const Watch& watch, const std::string& what) {
  auto found = considered_search(problem, keep, watch, what);
  keep_first(keep, found->result.best);
  return found;
}

Plan plan_of(const ArrangedSearch& search, const PlanRequest& request) {
  Plan plan = with_verdict(make_plan(search.result, search.problem), request, search.problem);
  plan.ranking.front().role = Role::recommended;
  for (const std::string& note : search.notes) plan.reasons.push_back("On " + note + ".");
  return plan;
}

Candidate priced(const SearchProblem& problem, const Layout& layout) {
  Candidate c{estimate(problem, layout), {}};
  c.evaluation = evaluate_regardless(problem, c.estimate);
  return c;
}

Plan plan_of(const SearchProblem& problem, const Candidate& candidate, const PlanRequest& request) {
  SearchResult one;
  one.best.push_back(candidate);
  one.certificate.layouts = one.certificate.simulated = 1;
  return with_verdict(make_plan(one, problem), request, problem);
}

PlanOrReason plan_or_reason(const ArrangedSearch& search, const PlanRequest& request) {
  const SearchResult& result = search.result;
  if (!result.best.empty()) return {plan_of(search, request), ""};
  if (result.over_memory.empty()) {
    const Problem why = why_nothing_fits(result, search.problem);
    return {std::nullopt, fmt::format("{}: {}", why.where, why.found)};
  }
  const Rejection& nearest = result.over_memory.front().nearest;
  return {std::nullopt,
          fmt::format("nothing fits: at least {} of {} per {}", format_bytes(nearest.needed),
                      format_bytes(nearest.available), reports::device_word(search.problem.cluster))};
}

PlanOrReason plan_or_reason(SearchProblem problem, const PlanRequest& request, const Watch& watch) {
  problem.near_misses = false;
  return plan_or_reason(*recommended_search(problem, 1, watch), request);
}

bool has_default_margin(const Resolved& resolved) {
  const SearchProblem& problem = resolved.problem;
  return resolved.request.memory.empty() && resolved.request.memory_margin.empty() &&
         problem.memory_limit_bytes < without_margin(problem).memory_limit_bytes;
}

std::unique_ptr<ArrangedSearch> likely_search(Resolved& resolved, const Watch& watch,
                                              const std::string& what) {
  const double start_s = now_s();
  SearchProblem& problem = resolved.problem;
  problem.near_misses = false;
  auto found = recommended_search(problem, 1, watch, what);
  if (!found->result.best.empty() || !has_default_margin(resolved)) return found;
  problem = with_time_left(problem, problem.time_limit_s, start_s);
  auto likeliest = likeliest_search(resolved, watch);
  return likeliest->result.best.empty() ? std::move(found) : std::move(likeliest);
}

std::unique_ptr<ArrangedSearch> likeliest_search(const Resolved& resolved, const Watch& watch) {
  const double start_s = now_s(), limit_s = resolved.problem.time_limit_s;
  const SearchProblem full = without_margin(resolved.problem);
  std::unique_ptr<ArrangedSearch> found = recommended_search(full, 1, watch, "without a margin");
  const SearchProblem& least = resolved.problem;
  const auto span = double(full.memory_limit_bytes - least.memory_limit_bytes);
  double enough = 1.0, too_little = 0.0;  // shares of the span
  std::vector<Candidate> riskier;
  while (!found->result.best.empty() && (enough - too_little) * span > double(kGiB) && !stop_requested()) {
    const double share = too_little + (enough - too_little) / 2.0;
    auto tighter =
        recommended_search(with_time_left(with_limits_between(least, full, share), limit_s, start_s), 1,
                           watch, "with less memory");
    const bool fits = !tighter->result.best.empty();
    (fits ? enough : too_little) = share;
    if (!fits) continue;
    riskier.push_back(std::move(found->result.best.front()));
    found = std::move(tighter);
  }
  for (Candidate& c : riskier)
    if (c.evaluation.step_time_s < found->result.best.front().evaluation.step_time_s)
      found->result.roomier.push_back(std::move(c));
  return found;
}

void check_searches(const PlanRequest& request) {
  if (!request.layout && request.layers_per_stage.empty()) return;
  refuse_input(request.layout ? "/layout" : "/layers_per_stage", "of a search",
               "of a layout to estimate, with mpt-plan estimate", "leave it out: a search chooses the layout itself");
}

Plan plan(Resolved& resolved, const Watch& watch) {
  check_fewer_nodes(resolved);
  const double start_s = now_s();
  // The other half is for the plans on fewer nodes.
  if (!resolved.request.or_nodes.empty()) resolved.problem.time_limit_s = resolved.request.time_limit_s / 2.0;
  Plan plan = searched_plan(resolved, watch);
  if (!resolved.request.or_nodes.empty()) add_fewer_nodes(resolved, start_s, watch, plan);
  return plan;
}

Plan searched_plan(const Resolved& resolved, const Watch& watch) {
  check_searches(resolved.request);
  if (!resolved.request.observed.empty()) {
    Problem why;
    if (auto by_runs = observed_plan(resolved, watch, why)) return std::move(*by_runs);
    throw UserError(std::move(why));
  }
  constexpr double kWorthSaying = 0.02;
  const auto keep = size_t(resolved.request.top);
  const double start_s = now_s(), limit_s = resolved.problem.time_limit_s;
  const auto roomier = roomier_problem(resolved);
  const auto beyond = problem_beyond(resolved.problem);
  const auto plain = plain_search(roomier ? *roomier : resolved.problem, watch);
  Beside beside{roomier ? &*roomier : nullptr, beyond ? &*beyond : nullptr, 1.0 - kWorthSaying};
  if (!plain) beside.simplest_kinds = kSimple;
  auto search =
      considered_search(with_time_left(resolved.problem, limit_s, start_s), keep, watch, "", beside);
  const auto rival = draw_and_keep(keep, *search);
  std::vector<std::string> notes = resolved.notes;
  if (search->result.best.empty() && !search->result.roomier.empty()) {
    if (auto likeliest = likeliest_search(resolved, watch); !likeliest->result.best.empty()) {
      search = std::move(likeliest);
      notes.emplace_back(kNothingLikelyFits);
    }
  }
  if (search->result.best.empty()) {
    Problem problem = why_nothing_fits(search->result, search->problem);
    const std::string remedy = remedy_of_nothing_fits(resolved, search->result, search->problem, watch);
    if (!remedy.empty())
      problem.remedy = search->result.over_memory.empty() ? problem.remedy + "\n    " + remedy : remedy;
    if (search->result.over_memory.empty()) throw UserError(std::move(problem));
    const Layout& nearest = search->result.over_memory.front().layout;
    const Plan lacking = plan_of(search->problem, priced(search->problem, nearest), resolved.request);
    problem.expected += "\n" + describe_parts(lacking);
    problem.expected.pop_back();
    throw NothingFits(std::move(problem), nearest);
  }
  Plan plan = plan_of(*search, resolved.request);
  plan.notes = with_kernel_note(std::move(notes), plan);
  for (std::string& note : idle_of_search(resolved.request, resolved.problem, plan.layout))
    plan.notes.push_back(std::move(note));
  for (std::string& note : gradient_notes(plan)) plan.notes.push_back(std::move(note));
  if (!search->left_out.empty()) plan.notes.push_back(search->left_out);
  const auto is_pointless = [&](const RankedLayout& row) {
    return any_of(plan.ranking, [&](const RankedLayout& other) { return is_dominated(row, other); });
  };
  if (rival) {
    const RankedLayout row = ranked(*rival, search->problem, published_evidence());
    if (!is_pointless(row)) plan.ranking.push_back(row);
  }
  add_simplest(plain.get(), *search, plan);
  if (const size_t risky = add_roomier(*search, plan, is_pointless); plan.risk && resolved.request.try_first)
    return tried_first(plan, *search, risky);
  if (resolved.request.try_first)
    plan.notes.emplace_back("No layout that may not fit is worth a trial: this is the safe one.");
  if (search->result.beyond) note_limits_of_framework(*beyond, resolved, *search->result.beyond, plan);
  return plan;
}

Plan plan(const PlanRequest& request, const Watch& watch) { return plan(*resolve(request), watch); }

std::vector<PlanOrReason> compare(const std::vector<PlanRequest>& requests, const Watch& watch) {
  std::vector<PlanOrReason> all;
  for (const PlanRequest& request : requests) {
    const auto resolved = resolve(request);
    check_searches(request);
    if (request.gap.empty()) resolved->problem.gap = kEqualTimes;
    const std::string unlike = drop_unlike_runs(*resolved);
    if (resolved->request.observed.empty()) {
      all.push_back(plan_or_reason(*likely_search(*resolved, watch), request));
    } else {
      Problem why;
      auto by_runs = observed_plan(*resolved, watch, why);
      all.push_back({std::move(by_runs), why.where + ": " + why.found});
    }
    if (!all.back().plan) continue;
    all.back().plan->notes = with_kernel_note(resolved->notes, *all.back().plan);
    if (may_not_fit(all.back().plan->prediction.confidence))
      all.back().plan->notes.emplace_back(kNothingLikelyFits);
    if (!unlike.empty()) all.back().plan->notes.push_back(unlike);
  }
  return all;
}

std::string explain(const Plan& plan) {
  ScreenOptions options;
  options.lines = 1000;
  return plan_screen(plan, options) + describe_details(plan);
}

double expected_step_s(double fits, double first_s, double other_s) {
  return fits * first_s + (1.0 - fits) * (double(kTrialSteps) / kStepsOfTraining * first_s + other_s);
}

std::optional<WeighedRisk> weigh(const RankedLayout& safe, const std::vector<RankedLayout>& candidates) {
  std::optional<WeighedRisk> best;
  for (size_t n = 0; n < candidates.size(); ++n) {
    const auto& fits = candidates[n].confidence.fits;
    if (!may_not_fit(candidates[n].confidence)) continue;
    const double expected_s = expected_step_s(*fits, candidates[n].step_time_s, safe.step_time_s);
    const double gain = 1.0 - expected_s / safe.step_time_s;
    if (gain <= (best ? best->gain : kWorthATrial)) continue;
    best = WeighedRisk{int64_t(n), 1, expected_s, gain};
  }
  return best;
}

}  // namespace mpt::planner
