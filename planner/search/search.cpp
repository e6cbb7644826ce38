// SPDX-License-Identifier: Apache-2.0
#include "planner/search/search.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <memory>
#include <thread>

#include "planner/search/search_share.h"

namespace mpt::planner {
namespace {

// Runs `body` for every share, each in a thread of its own; what one throws is thrown here.
template <class F>
void in_threads(size_t shares, F&& body) {
  std::vector<std::exception_ptr> thrown(shares);
  const auto guarded = [&](size_t share) {
    try {
      body(share);
    } catch (...) {
      thrown[share] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (size_t share = 1; share < shares; ++share) threads.emplace_back(guarded, share);
  guarded(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : thrown) {
    if (error) std::rethrow_exception(error);
  }
}

void add(SearchResult& sum, SearchResult part) {
  SearchCertificate& c = sum.certificate;
  c.layouts += part.certificate.layouts;
  c.over_memory += part.certificate.over_memory;
  c.over_bound += part.certificate.over_bound;
  c.simulated += part.certificate.simulated;
  c.same += part.certificate.same;
  c.not_reached += part.certificate.not_reached;
  c.optimal = c.optimal && part.certificate.optimal;
  sum.bound_s = std::min(sum.bound_s, part.bound_s);
  std::move(part.best.begin(), part.best.end(), std::back_inserter(sum.best));
  std::move(part.over_memory.begin(), part.over_memory.end(), std::back_inserter(sum.over_memory));
  sum.more_over_memory += part.more_over_memory;
}

// Of the shares' best the `keep` fastest, and of their near misses the nearest.
void select(SearchResult& result, size_t keep) {
  const auto kept = [](const Candidate& c) {
    return Kept{c.evaluation.step_time_s, c.evaluation.peak_bytes, c.estimate.layout};
  };
  std::stable_sort(result.best.begin(), result.best.end(),
                   [&](const Candidate& a, const Candidate& b) { return kept(a).key() < kept(b).key(); });
  if (result.best.size() > keep) result.best.erase(result.best.begin() + ptrdiff_t(keep), result.best.end());
  std::vector<MemoryFamily>& misses = result.over_memory;
  std::stable_sort(misses.begin(), misses.end(), [](const MemoryFamily& a, const MemoryFamily& b) {
    return a.nearest.needed < b.nearest.needed;
  });
  const size_t told = result.best.empty() && result.certificate.optimal ? 1 : kFamiliesTold;
  if (misses.size() <= told) return;
  result.more_over_memory += int64_t(misses.size() - told);
  misses.erase(misses.begin() + ptrdiff_t(told), misses.end());
}

// `tells`: whether what fell to memory is looked into.
SearchResult search_in_shares(const SearchProblem& problem, size_t keep, double reached_s, bool tells,
                              const OnProgress& on_progress) {
  const auto shares = size_t(std::max(1, problem.threads));
  Together together(reached_s, int(shares), on_progress);
  std::vector<std::unique_ptr<SearchShare>> searches(shares);
  in_threads(shares, [&](size_t share) {
    searches[share] = std::make_unique<SearchShare>(problem, keep, share, shares, together);
    searches[share]->run();
  });
  const bool optimal = std::all_of(searches.begin(), searches.end(), [](auto& s) { return s->optimal(); });
  const bool nothing_fits =
      std::none_of(searches.begin(), searches.end(), [](auto& s) { return s->found(); });
  if (tells && optimal && (nothing_fits || problem.near_misses))
    in_threads(shares, [&](size_t share) { searches[share]->tell_over_memory(nothing_fits); });
  SearchResult result = searches.front()->take();
  for (size_t share = 1; share < shares; ++share) add(result, searches[share]->take());
  select(result, keep);
  result.certificate.seconds = together.seconds();
  return result;
}

}  // namespace

namespace {

// Sharded optimizer states cost least where they may be had; frameworks without them share out gradients,
// too.
std::vector<int64_t> likely_zero(const SearchProblem& problem) {
  if (!problem.framework) return {1};
  const std::vector<int64_t>& zero = problem.framework->abilities.zero;
  if (std::find(zero.begin(), zero.end(), 1) != zero.end()) return {1};
  return {2, 3};
}

// The part of a large space where good layouts are likely: what is found there lets most of the rest be
// dropped as it is enumerated. Bounds that were given stay as they are.
SearchProblem likely_part(const SearchProblem& problem) {
  SearchProblem part = problem;
  SearchBounds& b = part.bounds;
  if (b.zero.empty()) b.zero = likely_zero(problem);
  if (b.offload.empty()) b.offload = {Switch::off};
  if (b.orders.empty()) b.orders = {RankOrder::pipeline_outermost};
  if (b.context_methods.empty()) b.context_methods = {ContextMethod::ring};
  if (b.sequence_parallel.empty()) b.sequence_parallel = {Switch::on};
  if (b.expert_tensor.empty() && problem.model.moe) b.expert_tensor = {1};
  if (b.micro_batch.empty()) b.micro_batch = {1, 2, 4};
  if (b.chunks.empty()) b.chunks = {1, 2, 3, 4, 6, 8};
  if (b.schedules.empty()) b.schedules = {"1f1b", "interleaved", "zb-v", "dualpipe-v"};
  part.fits_recompute = false;
  return part;
}

}  // namespace

SearchResult search(const SearchProblem& problem, size_t keep, const OnProgress& on_progress) {
  constexpr int64_t kManyRanks = 64;
  double reached_s = kInfinity;
  SearchResult likely;
  SearchProblem rest = problem;
  if (problem.ranks >= kManyRanks) {
    likely = search_in_shares(likely_part(problem), keep, kInfinity, false, on_progress);
    // A rounding error must not drop the very layouts that were found.
    if (likely.best.size() == keep) reached_s = likely.best.back().evaluation.step_time_s * (1.0 + 1e-9);
    constexpr double kAtLeast = 1e-6;  // zero would be no limit
    if (rest.time_limit_s > 0.0)
      rest.time_limit_s = std::max(kAtLeast, rest.time_limit_s - likely.certificate.seconds);
  }
  SearchResult result = search_in_shares(rest, keep, reached_s, true, on_progress);
  SearchCertificate& c = result.certificate;
  c.seconds += likely.certificate.seconds;
  if (c.optimal) return result;
  const bool likely_is_better =
      !likely.best.empty() && (result.best.empty() || likely.best.front().evaluation.step_time_s <
                                                          result.best.front().evaluation.step_time_s);
  if (likely_is_better) result.best = std::move(likely.best);
  if (!result.best.empty())
    c.gap = std::max(0.0, 1.0 - result.bound_s / result.best.front().evaluation.step_time_s);
  return result;
}

}  // namespace mpt::planner
