// SPDX-License-Identifier: Apache-2.0
#include "planner/search/search.h"

#include "base/clock.h"
#include "base/threads.h"
#include "core/ties.h"
#include "planner/search/search_thread.h"

namespace mpt::planner {
namespace {

constexpr double kSlack = 1.0 + 1e-9;  // a rounding error must not prune the very layouts that were found

int kinds_of(const Layout& l) { return kinds_of_parallelism(l.degrees(), l.expert); }

// Layouts of one set, and what its search found out.
struct PartialResult {
  std::vector<Incumbent> best;  // fastest first
  SearchResult about;           // its certificate and near misses
};

// `sum` gets those of `part` that it lacks. With more memory a schedule made to measure may be a faster one.
void add_best(std::vector<Incumbent>& sum, const std::vector<Incumbent>& part, const ResultLimits& wanted) {
  for (const Incumbent& one : part) {
    const auto known = find_if(sum, [&](const Incumbent& other) { return other.layout == one.layout; });
    if (known == sum.end())
      sum.push_back(one);
    else if (one.key() < known->key())
      *known = one;
  }
  sort_by(sum, [](const Incumbent& i) { return i.key(); });
  sum.erase(sum.begin() + ptrdiff_t(wanted.count(mapped<double>(sum, &Incumbent::step_time_s))), sum.end());
}

void add_reasons(NotDividing& sum, const NotDividing& part) {
  for (const auto& [reason, times] : part) sum[reason] += times;
}

void merge(SearchResult& sum, SearchResult part) {
  add(sum.certificate, part.certificate);
  sum.bound_s = std::min(sum.bound_s, part.bound_s);
  std::move(part.over_memory.begin(), part.over_memory.end(), std::back_inserter(sum.over_memory));
  sum.more_over_memory += part.more_over_memory;
  add_reasons(sum.not_dividing, part.not_dividing);
}

void keep_nearest(std::vector<NearMiss>& misses, size_t told, SearchResult& result) {
  sort_by(misses, [](const NearMiss& m) { return m.nearest.needed - m.nearest.available; });
  if (misses.size() <= told) return;
  result.more_over_memory += int64_t(misses.size() - told);
  misses.erase(misses.begin() + ptrdiff_t(told), misses.end());
}

// Searches of parts of one problem, one after the other. They share prices and programs.
class SearchSession {
 public:
  explicit SearchSession(const SearchProblem& problem)
      : problem_(problem), count_(problem.searching_threads()) {
    for (size_t thread = 0; thread < count_; ++thread)
      resolvers_.push_back(std::make_unique<LayoutResolver>(problem));
  }

  // `known_s`: nothing slower is wanted.
  PartialResult run(const SearchPart& part, double known_s, const OnProgress& on_progress) {
    fits_ = fits_ || known_s < kInfinity;
    SharedIncumbent shared(known_s, int(count_), on_progress);
    threads_.resize(count_);
    in_threads(count_, [&](size_t t) {
      threads_[t] = std::make_unique<SearchThread>(part, t, *resolvers_[t], shared);
      threads_[t]->run();
    });
    const auto all = [&](auto&& is) { return all_of(threads_, is); };
    const bool optimal = all([](const auto& t) { return t->optimal(); });
    fits_ = fits_ || !all([](const auto& t) { return !t->found(); });
    const bool nothing_fits = !fits_;
    if (part.tells && optimal && (nothing_fits || problem_.near_misses))
      in_threads(count_, [&](size_t t) { threads_[t]->tell_near_misses(nothing_fits); });
    PartialResult found{incumbents(part.wanted), threads_.front()->take()};
    for (size_t t = 1; t < count_; ++t) merge(found.about, threads_[t]->take());
    SearchThread::LeafLists lists;  // threads have some of them alike
    for (const auto& thread : threads_)
      lists.insert(thread->leaf_lists().begin(), thread->leaf_lists().end());
    for (const auto& [nodes, list] : lists) add_reasons(found.about.not_dividing, list.not_dividing);
    keep_nearest(found.about.over_memory, nothing_fits && optimal ? 1 : kNearMissesTold, found.about);
    found.about.certificate.seconds = shared.seconds();
    return found;
  }

  // After run() of a part with a roomier problem: that one, or the next on the way to it.
  std::vector<Incumbent> run_roomier(const SearchProblem& next, double known_s,
                                     const OnProgress& on_progress) {
    SharedIncumbent shared(known_s, int(count_), on_progress);
    in_threads(count_, [&](size_t t) { threads_[t]->run_roomier(next, shared); });
    return incumbents(1);
  }

  // The code that prices any layout prices a layout that was found again, and must agree.
  Candidate evaluated(const SearchProblem& problem, const Incumbent& found) {
    const SplitModel& split = resolvers_.front()->prices().split(found.layout);
    Estimate e = estimate(problem, split, found.layout);
    Evaluation evaluation = evaluate_by_rounds(problem, e, resolvers_.front()->programs());
    MPT_CHECK(!evaluation.rejection && evaluation.peak_bytes == found.peak_bytes &&
                  std::abs(evaluation.step_time_s - found.step_time_s) <= 1e-9 * found.step_time_s,
              "{}: {} s and {} bytes in the search, {} s and {} bytes evaluated again, {}",
              layout_name(found.layout), found.step_time_s, found.peak_bytes, evaluation.step_time_s,
              evaluation.peak_bytes, evaluation.rejection ? evaluation.rejection->reason : "which fit");
    return {std::move(e), std::move(evaluation)};
  }

 private:
  std::vector<Incumbent> incumbents(const ResultLimits& wanted) const {
    std::vector<Incumbent> all;
    for (const auto& thread : threads_) add_best(all, thread->incumbents(), wanted);
    return all;
  }

  const SearchProblem& problem_;
  const size_t count_;
  bool fits_ = false;  // whether any layout is known that fits
  std::vector<std::unique_ptr<LayoutResolver>> resolvers_;
  std::vector<std::unique_ptr<SearchThread>> threads_;  // of the last run
};

// Sharded optimizer states cost least where they may be had; frameworks without them share out gradients,
// too.
std::vector<int64_t> likely_zero(const SearchProblem& problem) {
  if (!problem.framework || allowed(problem.framework->abilities.zero, int64_t{1})) return {1};
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
  if (b.schedules.empty())
    for (const ScheduleEntry& entry : schedule_catalog())
      if (entry.warm_start) b.schedules.push_back(entry.name);
  part.fits_recompute = false;
  return part;
}

// What a person would try first: FSDP or ZeRO alone, tensor ranks and a plain pipeline, one node. Few enough
// to be priced whatever the time limit.
SearchProblem obvious_part(const SearchProblem& problem) {
  SearchProblem part = warm_start(problem);
  const SearchBounds& given = problem.bounds;
  SearchBounds& b = part.bounds;
  if (given.context.empty()) b.context = {1};
  if (given.zero.empty()) b.zero = {};
  if (given.chunks.empty()) b.chunks = {1};
  if (given.schedules.empty()) b.schedules = {Layout{}.schedule};
  part.time_limit_s = part.gap = 0.0;
  return part;
}

bool is_within(const SearchBounds& b, const Layout& l) {
  return allowed(b.tensor, l.tensor) && allowed(b.context, l.context) && allowed(b.pipeline, l.pipeline) &&
         allowed(b.data, l.data) && allowed(b.expert, l.expert) && allowed(b.micro_batch, l.micro_batch) &&
         allowed(b.zero, l.zero) && allowed(b.offload, l.offload_optimizer) && allowed(b.orders, l.order) &&
         allowed(b.chunks, l.chunks) && allowed(b.schedules, l.schedule) &&
         allowed(b.recomputes, l.recompute);
}

// Of the layouts that somebody has, those that the search may answer with.
std::vector<Incumbent> known_incumbents(const SearchProblem& problem) {
  std::vector<Incumbent> known;
  for (Layout layout : problem.known) {
    problem.set_job(layout);
    problem.set_overlaps(layout);
    const Degrees degrees{layout.tensor, layout.context, layout.pipeline, layout.data};
    if (layout.ranks() != problem.ranks || kinds_of(layout) > problem.most_kinds ||
        !is_within(problem.bounds, layout) || check_division(problem.model, degrees, problem.workload) ||
        check_layout(problem.model, layout, problem.workload) ||
        problem.refused([&](const frameworks::Framework& f) {
          return frameworks::supports(f, problem.model, layout, problem.workload);
        }))
      continue;
    const Evaluation e = evaluate(problem, estimate(problem, layout));
    if (!e.rejection) known.push_back({e.step_time_s, e.peak_bytes, layout});
  }
  return known;
}

// The simplest of the equals goes first, then the fastest. Layouts that are dominated by another are dropped;
// at least one remains.
std::vector<Incumbent> rank_results(std::vector<Incumbent> best, const ResultLimits& wanted) {
  if (best.empty()) return best;
  if (wanted.equals > 0) {
    const std::vector<Incumbent> all = best;
    std::erase_if(best, [&](const Incumbent& one) {
      return any_of(all, [&](const auto& other) { return is_dominated(one, other, wanted.equal_share); });
    });
    const double most_s = (1.0 + wanted.equal_share) * best.front().step_time_s;
    const auto end = find_if(best, [&](const Incumbent& one) { return one.step_time_s > most_s; });
    const auto order = [](const Incumbent& one) { return std::pair(kinds_of(one.layout), one.peak_bytes); };
    const auto simplest = std::min_element(
        best.begin(), end, [&](const Incumbent& a, const Incumbent& b) { return order(a) < order(b); });
    std::rotate(best.begin(), simplest, simplest + 1);
  }
  if (best.size() > wanted.fastest) best.erase(best.begin() + ptrdiff_t(wanted.fastest), best.end());
  return best;
}

// The best layouts of a set, part after part.
class ResultMerger {
 public:
  ResultMerger(SearchSession& searches, ResultLimits wanted) : searches_(searches), wanted_(wanted) {}

  // Nothing slower is wanted.
  double most_s(double gap) const {
    return wanted_.most_s(mapped<double>(best_, &Incumbent::step_time_s), gap) * kSlack;
  }
  void add(const std::vector<Incumbent>& more) { add_best(best_, more, wanted_); }
  SearchResult run(const SearchProblem& part, const OnProgress& watch, const SearchProblem* roomier = nullptr,
                   bool tells = false) {
    PartialResult found = searches_.run({part, roomier, wanted_, tells}, most_s(part.gap), watch);
    add(found.best);
    return std::move(found.about);
  }
  double fastest_s() const { return best_.empty() ? kInfinity : best_.front().step_time_s; }
  std::vector<Incumbent> rank_results() const { return planner::rank_results(best_, wanted_); }

 private:
  SearchSession& searches_;
  const ResultLimits wanted_;
  std::vector<Incumbent> best_;
};

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
  sum.counted = sum.counted && part.counted;
  if (sum.pruned.empty()) {
    sum.pruned = part.pruned;
    return;
  }
  // Each search has all tiers.
  for (size_t t = 0; t < part.pruned.size(); ++t) sum.pruned[t].layouts += part.pruned[t].layouts;
}

size_t ResultLimits::count(std::span<const double> times) const {
  if (times.empty()) return 0;
  const auto end = std::upper_bound(times.begin(), times.end(), (1.0 + equal_share) * times.front());
  return std::min(times.size(), std::max(fastest, std::min(equals, size_t(end - times.begin()))));
}

double ResultLimits::most_s(std::span<const double> times, double gap) const {
  if (gap > 0.0 && !times.empty()) return times.front() / (1.0 + gap);
  if (times.size() < fastest) return kInfinity;
  if (equals <= fastest) return times[fastest - 1];
  const double equal_s = (1.0 + equal_share) * times.front();
  return std::max(times[fastest - 1], times.size() < equals ? equal_s : std::min(equal_s, times[equals - 1]));
}

SearchResult search(const SearchProblem& problem, const ResultLimits& wanted, const OnProgress& on_progress,
                    const Beside& beside) {
  constexpr int64_t kManyRanks = 64;
  SearchSession searches(problem);
  const double start_s = now_s(), limit_s = problem.time_limit_s;  // of all parts together
  ResultMerger best(searches, wanted);
  best.add(known_incumbents(problem));
  best.run(obvious_part(problem), {});  // to its end, whatever stops the rest
  if (problem.ranks >= kManyRanks)
    best.run(with_time_left(warm_start(problem), limit_s, start_s), on_progress);

  const SearchProblem rest = with_time_left(problem, limit_s, start_s);
  SearchProblem roomier = beside.roomier != nullptr ? *beside.roomier : problem;
  SearchResult result = best.run(rest, on_progress, beside.roomier != nullptr ? &roomier : nullptr, true);
  SearchCertificate& c = result.certificate;
  const double best_s = best.fastest_s();
  if (std::isfinite(best_s)) c.fastest_s = best_s;
  result.bound_s = std::min(result.bound_s, c.optimal ? best_s / (1.0 + problem.gap) : best_s);
  if (std::isfinite(best_s)) c.gap = 1.0 - result.bound_s / best_s;
  for (const Incumbent& one : best.rank_results()) result.best.push_back(searches.evaluated(problem, one));
  if (c.optimal && beside.roomier != nullptr) {
    roomier = with_time_left(roomier, limit_s, start_s);
    const auto faster = searches.run_roomier(roomier, best_s / kSlack, on_progress);
    for (const Incumbent& one : faster) result.roomier.push_back(searches.evaluated(roomier, one));
  }
  if (c.optimal && beside.beyond != nullptr && !result.best.empty()) {
    const SearchProblem beyond = with_time_left(*beside.beyond, limit_s, start_s);
    const double below_s = beside.below * result.best.front().evaluation.step_time_s;
    const PartialResult faster = searches.run({beyond, nullptr, 1}, below_s, on_progress);
    if (!faster.best.empty()) result.beyond = searches.evaluated(beyond, faster.best.front());
  }
  if (!result.best.empty() && kinds_of(result.best.front().estimate.layout) > beside.simplest_kinds) {
    SearchProblem simple = with_time_left(problem, limit_s, start_s);
    simple.most_kinds = beside.simplest_kinds;
    ResultMerger simplest(searches, {1, wanted.equals, wanted.equal_share});
    simplest.run(obvious_part(simple), {});
    simplest.run(simple, on_progress);
    for (const Incumbent& one : simplest.rank_results()) result.simplest = searches.evaluated(problem, one);
  }
  c.seconds = now_s() - start_s;
  return result;
}

std::vector<std::optional<Candidate>> search_limits(const SearchProblem& problem,
                                                    std::span<const int64_t> limits,
                                                    const OnProgress& on_progress) {
  std::vector<SearchProblem> problems(limits.size(), problem);
  for (size_t n = 0; n < limits.size(); ++n) {
    problems[n].memory_limit_bytes = limits[n];
    problems[n].time_limit_s = 0.0;  // it is of all together
  }
  SearchSession searches(problems.front());
  ResultMerger best(searches, 1);
  std::vector<std::optional<Candidate>> all;
  const double start_s = now_s();
  std::optional<Incumbent> last;
  bool stopped = false;
  const OnProgress watch = [&](const SearchProgress& p) {
    stopped = stopped || (on_progress && !on_progress(p)) ||
              (problem.time_limit_s > 0.0 && now_s() - start_s > problem.time_limit_s);
    return !stopped;
  };
  for (const SearchProblem& part : problems) {
    if (&part != &problems.front()) {
      best.add(searches.run_roomier(part, best.most_s(0.0), watch));
    } else {
      best.run(obvious_part(part), watch);
      best.run(warm_start(part), watch);
      best.run(part, watch, &problems.back());
    }
    if (stopped) return {};
    const std::vector<Incumbent> fastest = best.rank_results();
    // What was made to measure for one limit would be another schedule within the next.
    if (fastest.empty()) {
      all.emplace_back();
    } else if (last && last->layout == fastest.front().layout && last->key() == fastest.front().key()) {
      all.push_back(all.back());
    } else {
      last = fastest.front();
      all.emplace_back(searches.evaluated(part, *last));
    }
  }
  return all;
}

}  // namespace mpt::planner
