// SPDX-License-Identifier: Apache-2.0
#include "planner/search/search.h"

#include <algorithm>
#include <memory>

#include "base/threads.h"
#include "planner/search/search_thread.h"

namespace mpt::planner {
namespace {

void merge(SearchResult& sum, SearchResult part) {
  add(sum.certificate, part.certificate);
  sum.bound_s = std::min(sum.bound_s, part.bound_s);
  std::move(part.best.begin(), part.best.end(), std::back_inserter(sum.best));
  std::move(part.over_memory.begin(), part.over_memory.end(), std::back_inserter(sum.over_memory));
  sum.more_over_memory += part.more_over_memory;
}

std::vector<double> times_of(const SearchResult& result) {
  std::vector<double> times;
  for (const Candidate& c : result.best) times.push_back(c.evaluation.step_time_s);
  return times;
}

// Of the threads' best those that are wanted, and of their near misses the nearest.
void select(SearchResult& result, const Wanted& wanted) {
  const auto incumbent = [](const Candidate& c) {
    return Incumbent{c.evaluation.step_time_s, c.evaluation.peak_bytes, c.estimate.layout};
  };
  std::stable_sort(result.best.begin(), result.best.end(), [&](const Candidate& a, const Candidate& b) {
    return incumbent(a).key() < incumbent(b).key();
  });
  result.best.erase(result.best.begin() + ptrdiff_t(wanted.count(times_of(result))), result.best.end());
  std::vector<NearMiss>& misses = result.over_memory;
  std::stable_sort(misses.begin(), misses.end(),
                   [](const NearMiss& a, const NearMiss& b) { return a.nearest.needed < b.nearest.needed; });
  const size_t told = result.best.empty() && result.certificate.optimal ? 1 : kNearMissesTold;
  if (misses.size() <= told) return;
  result.more_over_memory += int64_t(misses.size() - told);
  misses.erase(misses.begin() + ptrdiff_t(told), misses.end());
}

// `known_s`: nothing slower is wanted. `tells`: whether what does not fit
// is looked into.
SearchResult search_in_threads(const SearchProblem& problem, const Wanted& wanted, double known_s, bool tells,
                               const OnProgress& on_progress) {
  const auto count = size_t(std::max(1, problem.threads));
  SharedIncumbent shared(known_s, int(count), on_progress);
  std::vector<std::unique_ptr<SearchThread>> threads(count);
  in_threads(count, [&](size_t thread) {
    threads[thread] = std::make_unique<SearchThread>(problem, wanted, thread, count, shared);
    threads[thread]->run();
  });
  const bool optimal = std::all_of(threads.begin(), threads.end(), [](auto& t) { return t->optimal(); });
  const bool nothing_fits = std::none_of(threads.begin(), threads.end(), [](auto& t) { return t->found(); });
  if (tells && optimal && (nothing_fits || problem.near_misses))
    in_threads(count, [&](size_t thread) { threads[thread]->tell_near_misses(nothing_fits); });
  SearchResult result = threads.front()->take();
  for (size_t thread = 1; thread < count; ++thread) merge(result, threads[thread]->take());
  select(result, wanted);
  result.certificate.seconds = shared.seconds();
  return result;
}

// Sharded optimizer states cost least where they may be had; frameworks without them share out gradients,
// too.
std::vector<int64_t> likely_zero(const SearchProblem& problem) {
  if (!problem.framework) return {1};
  const std::vector<int64_t>& zero = problem.framework->abilities.zero;
  if (std::find(zero.begin(), zero.end(), 1) != zero.end()) return {1};
  return {2, 3};
}

// The part of a large space where good layouts are likely. Its best layouts are the first incumbents, by
// which most of the rest is pruned as it is listed. Bounds that were given stay as they are.
SearchProblem warm_start(const SearchProblem& problem) {
  SearchProblem part = problem;
  SearchBounds& b = part.bounds;
  if (b.zero.empty()) b.zero = likely_zero(problem);
  if (b.offload.empty()) b.offload = {Switch::off};
  if (b.orders.empty()) b.orders = {RankOrder::pipeline_outermost};
  if (b.context_methods.empty()) b.context_methods = {ContextMethod::ring};
  if (b.sequence_parallel.empty()) b.sequence_parallel = {Switch::on};
  if (b.expert_tensor.empty() && problem.model.moe() != nullptr) b.expert_tensor = {1};
  if (b.micro_batch.empty()) b.micro_batch = {1, 2, 4};
  if (b.chunks.empty()) b.chunks = {1, 2, 3, 4, 6, 8};
  if (b.schedules.empty()) {
    for (const ScheduleEntry& entry : schedule_catalog()) {
      if (entry.warm_start) b.schedules.push_back(entry.name);
    }
  }
  part.fits_recompute = false;
  return part;
}

double best_s(const SearchResult& result) {
  return result.best.empty() ? kInfinity : result.best.front().evaluation.step_time_s;
}

}  // namespace

void add(SearchCertificate& sum, const SearchCertificate& part) {
  sum.layouts += part.layouts;
  sum.over_memory += part.over_memory;
  sum.over_bound += part.over_bound;
  sum.simulated += part.simulated;
  sum.same += part.same;
  sum.not_reached += part.not_reached;
  sum.seconds += part.seconds;
  sum.optimal = sum.optimal && part.optimal;
  if (sum.pruned.empty()) {
    sum.pruned = part.pruned;
    return;
  }
  // Each search has all tiers.
  for (size_t t = 0; t < part.pruned.size(); ++t) sum.pruned[t].layouts += part.pruned[t].layouts;
}

size_t Wanted::count(std::span<const double> times) const {
  if (times.empty()) return 0;
  const auto end = std::upper_bound(times.begin(), times.end(), (1.0 + equal_share) * times.front());
  return std::min(times.size(), std::max(fastest, std::min(equals, size_t(end - times.begin()))));
}

double Wanted::most_s(std::span<const double> times) const {
  if (times.size() < fastest) return kInfinity;
  if (equals <= fastest) return times[fastest - 1];
  const double equal_s = (1.0 + equal_share) * times.front();
  return std::max(times[fastest - 1], times.size() < equals ? equal_s : std::min(equal_s, times[equals - 1]));
}

SearchResult search(const SearchProblem& problem, const Wanted& wanted, const OnProgress& on_progress) {
  constexpr int64_t kManyRanks = 64;
  double known_s = kInfinity;
  SearchResult first;
  SearchProblem rest = problem;
  if (problem.ranks >= kManyRanks) {
    first = search_in_threads(warm_start(problem), wanted, kInfinity, false, on_progress);
    // A rounding error must not prune the very layouts that were found.
    known_s = wanted.most_s(times_of(first)) * (1.0 + 1e-9);
    constexpr double kAtLeast = 1e-6;  // zero would be no limit
    if (rest.time_limit_s > 0.0)
      rest.time_limit_s = std::max(kAtLeast, rest.time_limit_s - first.certificate.seconds);
  }
  SearchResult result = search_in_threads(rest, wanted, known_s, true, on_progress);
  SearchCertificate& c = result.certificate;
  c.seconds += first.certificate.seconds;
  if (c.optimal) return result;
  if (best_s(first) < best_s(result)) result.best = std::move(first.best);
  if (!result.best.empty()) c.gap = std::max(0.0, 1.0 - result.bound_s / best_s(result));
  return result;
}

}  // namespace mpt::planner
