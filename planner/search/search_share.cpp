// SPDX-License-Identifier: Apache-2.0
#include "planner/search/search_share.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <queue>

#include "base/clock.h"
#include "base/error.h"
#include "planner/memory/memory_model.h"
#include "planner/search/family_bound.h"
#include "planner/search/layout_resolver.h"
#include "planner/search/made_to_measure.h"
#include "planner/search/member_bounds.h"
#include "planner/search/member_fits.h"
#include "planner/search/over_memory.h"

namespace mpt::planner {
namespace {

// How far what waits is known. That a member fits is often known early. A member with fitted recompute waits
// again under the bound that its fitted layers give.
enum class Known : uint8_t { family, member, member_that_fits, fitted };

struct Waiting {
  double bound_s = 0.0;
  uint32_t family = 0;
  Known known = Known::family;
  Member member;
  int32_t fitted = -1;  // index into the fitted counts
};
struct Later {
  bool operator()(const Waiting& a, const Waiting& b) const { return a.bound_s > b.bound_s; }
};

}  // namespace

Together::Together(double reached_s, int shares, const OnProgress& on_progress)
    : on_progress_(on_progress),
      start_s_(now_s()),
      reached_s_(reached_s),
      best_s_(kInfinity),
      looked_(size_t(shares)),
      fronts_s_(size_t(shares)) {}

double Together::seconds() const { return now_s() - start_s_; }

namespace {

void lower(std::atomic<double>& value, double to) {
  double now = value.load();
  while (to < now && !value.compare_exchange_weak(now, to)) {
  }
}

}  // namespace

void Together::reach(double last_s) { lower(reached_s_, last_s); }
void Together::found(double step_time_s) { lower(best_s_, step_time_s); }

void Together::look(size_t share, int64_t layouts, double front_s, double time_limit_s) {
  looked_[share].store(layouts, std::memory_order_relaxed);
  fronts_s_[share].store(front_s, std::memory_order_relaxed);
  if (time_limit_s > 0.0 && seconds() >= time_limit_s) stopped_ = true;
  const std::unique_lock lock(asking_, std::try_to_lock);
  if (!lock.owns_lock() || !on_progress_) return;
  SearchProgress progress{0, seconds(), best_s_.load(), kInfinity};
  for (const auto& looked : looked_) progress.layouts += looked.load(std::memory_order_relaxed);
  for (const auto& front_s : fronts_s_) progress.bound_s = std::min(progress.bound_s, front_s.load());
  if (!on_progress_(progress)) stopped_ = true;
}

class SearchShare::Impl {
 public:
  Impl(const SearchProblem& problem, size_t keep, size_t share, size_t shares, Together& together)
      : problem_(problem),
        keep_(keep),
        share_(share),
        shares_(shares),
        together_(together),
        makes_schedules_(together.reached_s() < kInfinity),
        resolver_(problem),
        over_memory_(problem, resolver_) {}

  void run() {
    visit_groups(
        problem_, [this](const Layout& group) { add_group(group); }, &result_.not_dividing);
    listed_ = true;
    while (!queue_.empty() && queue_.top().bound_s <= last_kept_s() && go_on()) {
      const Waiting next = queue_.top();
      queue_.pop();
      if (next.known == Known::family) {
        open(next.family);
      } else {
        settle(next);
      }
    }
    finish();
  }

  /// What fell to memory. Where nothing fits, only what the smallest layout needs is told.
  void tell_over_memory(bool nothing_fits) {
    if (nothing_fits) {
      if (auto least = over_memory_.least()) result_.over_memory.push_back(std::move(*least));
    } else {
      result_.over_memory = over_memory_.near_misses(kFamiliesTold);
    }
    result_.more_over_memory = over_memory_.splits() - int64_t(result_.over_memory.size());
  }

  bool optimal() const { return result_.certificate.optimal; }
  bool found() const { return !best_.empty(); }
  SearchResult take() { return std::move(result_); }

 private:
  struct Group {
    Layout layout;
    std::optional<GroupBounds> bounds;  // none until one of its families is opened
  };
  // A member that memory rules out.
  struct TooLarge {
    double bound_s;
    uint32_t family;
  };
  struct WaitingFamily {
    uint32_t group;
    Sharding sharding;
    double floor_bytes;  // negative once it is among those over memory
  };

  // Nothing slower is of interest: the last one kept, or what is known to be reached.
  double last_kept_s() const {
    return best_.size() < keep_ ? together_.reached_s()
                                : std::min(together_.reached_s(), best_.back().step_time_s);
  }
  SearchCertificate& certificate() { return result_.certificate; }

  const MemberList& members(const Layout& layout) {
    const std::tuple key{layout.pipeline, micro_batches(layout, problem_.workload), layout.overlap_exchange};
    auto at = members_.find(key);
    if (at == members_.end())
      at = members_.emplace(key, MemberList(members_of(problem_, {layout}, &result_.not_dividing))).first;
    return at->second;
  }

  // Splits go round the threads.
  bool is_mine(const Layout& l) {
    const std::array split{l.tensor, l.context, l.pipeline, l.data};
    if (split != last_split_) ++splits_seen_;
    last_split_ = split;
    return splits_seen_ % shares_ == share_;
  }

  bool fits(const FamilyBound& bound) const {
    return bound.floor_bytes <= double(problem_.memory_limit_bytes);
  }
  // Whether `count` layouts fall at once, to memory or to the time that is reached.
  bool falls(const FamilyBound& bound, int64_t count) {
    if (!fits(bound)) {
      certificate().over_memory += count;
    } else if (bound.bound_s > together_.reached_s()) {
      certificate().over_bound += count;
    } else {
      return false;
    }
    return true;
  }

  void add_group(const Layout& layout) {
    const auto member_count = int64_t(members(layout).members.size());
    if (!is_mine(layout) || member_count == 0) return;
    const std::vector<Sharding> shardings = shardings_of(problem_, layout);
    const int64_t count = member_count * int64_t(shardings.size());
    certificate().layouts += count;
    if (!go_on()) {
      certificate().not_reached += count;
      return;
    }
    const FamilyBound bound = group_bound(problem_, layout, *resolver_.split_of(layout));
    if (falls(bound, count)) {
      if (!fits(bound)) over_memory_.add_group(layout, bound.floor_bytes, count);
      return;
    }
    groups_.push_back({layout, {}});
    for (const Sharding& sharding : shardings) add_family(sharding, member_count);
  }

  // Of the group added last.
  void add_family(const Sharding& sharding, int64_t count) {
    const Family family = family_of(groups_.back().layout, sharding);
    const FamilyBound bound = family_bound(problem_, family, *resolver_.split_of(family.layout));
    if (falls(bound, count)) {
      if (!fits(bound)) over_memory_.add(family, bound.floor_bytes, count);
      return;
    }
    waiting_ += count;
    families_.push_back({uint32_t(groups_.size() - 1), sharding, bound.floor_bytes});
    queue_.push({bound.bound_s, uint32_t(families_.size() - 1), Known::family, {}, -1});
  }

  Family family(uint32_t f) const {
    return family_of(groups_[families_[f].group].layout, families_[f].sharding);
  }

  Layout layout_of_waiting(const Waiting& w) {
    Layout layout = resolver_.layout(family(w.family), w.member);
    if (w.fitted < 0) return layout;
    layout.recompute = Recompute::full;
    layout.recomputed_layers = fitted_[size_t(w.fitted)];
    return layout;
  }

  void open(uint32_t f) {
    const Layout layout = family(f).layout;
    const MemberList& list = members(layout);
    Group& group = groups_[families_[f].group];
    if (!group.bounds) add_bounds(group);
    MemberBounds bounds(problem_, resolver_, layout, list, *group.bounds);
    MemberFits memory(problem_, resolver_, layout, list, makes_schedules_);
    for (size_t m = 0; m < list.members.size(); ++m) {
      --waiting_;
      if (group.bounds->twin(m)) {
        ++certificate().same;
        continue;
      }
      const double least_s = group.bounds->too_slow(m) ? kInfinity : bounds.least_s(m);
      if (least_s > last_kept_s()) {
        ++certificate().over_bound;
        continue;
      }
      // Memory rules out most of what is left, and costs less to ask for than the bound.
      const MemberFits::Fits fits = memory.fits(m, group.bounds->stages(m));
      if (fits == MemberFits::Fits::no) {
        ++waiting_;
        too_large_.push_back({least_s, f});
        continue;
      }
      const double bound_s = bounds.bound_s(m);
      if (bound_s > last_kept_s()) {
        ++certificate().over_bound;
        continue;
      }
      ++waiting_;
      const bool sure = fits == MemberFits::Fits::yes;
      queue_.push({bound_s, f, sure ? Known::member_that_fits : Known::member, list.members[m], -1});
    }
  }

  void add_bounds(Group& group) {
    std::array<double, 3> recompute_bounds_s;
    for (const auto& [recompute, name] : EnumNames<Recompute>::table())
      recompute_bounds_s[size_t(recompute)] =
          recompute_bound_s(problem_, group.layout, *resolver_.split_of(group.layout), recompute);
    // Of every micro-batch, there and back, on one chunk.
    const double launches_s = 2.0 * double(micro_batches(group.layout, problem_.workload)) *
                              least_dispatch_s(problem_) * (1.0 - 1e-9);
    // What its recompute, or the launching of so many chunks, alone makes too slow needs no better bound.
    group.bounds.emplace(problem_, resolver_, group.layout, members(group.layout), [&](const Member& member) {
      return recompute_bounds_s[size_t(least_recompute(member.recompute))] +
                 double(member.chunks - 1) * launches_s >
             last_kept_s();
    });
  }

  void drop_for_memory(uint32_t f) {
    ++certificate().over_memory;
    double& floor = families_[f].floor_bytes;
    if (floor >= 0.0) over_memory_.add(family(f), floor, 0);
    floor = -1.0;  // added once
    over_memory_.count_one(groups_[families_[f].group].layout);
  }

  // Of what does not fit, what is slower than asked for fell to that.
  void drop_too_large() {
    for (const TooLarge& t : too_large_) {
      if (t.bound_s > last_kept_s()) continue;
      --waiting_;
      drop_for_memory(t.family);
    }
  }

  // Memory, then the simulated time, of a layout at the front of the queue.
  void settle(const Waiting& w) {
    --waiting_;
    Layout layout = layout_of_waiting(w);
    if (w.member.recompute == RecomputeChoice::fitted && w.known != Known::fitted)
      return fit(w, std::move(layout));
    const bool made = schedule_catalog()[w.member.schedule].made_to_measure;
    if (w.known == Known::member && !made &&
        !resolver_.peaks(layout)->fit(resolver_.footprints(layout), limits_of_ranks(problem_, layout)))
      return drop_for_memory(w.family);
    const StepCost cost = resolver_.cost(layout, w.member);
    const double slowest_s = last_kept_s();
    if (made) return settle_made(w, std::move(layout), cost);
    const double best_rate = contention_of(problem_, layout).best(layout.pipeline).of_one;
    if (resolver_.order(layout)->seconds(layout, cost, best_rate) > slowest_s) {
      ++certificate().over_bound;
      return;
    }
    const std::vector<StageFootprint> footprints = resolver_.footprints(layout);
    const std::vector<int64_t> peaks = resolver_.peaks(layout)->peak_bytes(footprints);
    const auto program = resolver_.program(layout);
    const int64_t peak = *std::max_element(peaks.begin(), peaks.end());
    cost.durations(*program, durations_);
    const double seconds =
        step_time_within(*program, durations_, contention_of(problem_, layout), slowest_s, timeline_);
    ++certificate().simulated;
    if (seconds <= slowest_s) keep({seconds, peak, std::move(layout)});
  }

  void settle_made(const Waiting& w, Layout layout, const StepCost& cost) {
    const double slowest_s = last_kept_s();
    const std::vector<StageFootprint> footprints = resolver_.footprints(layout);
    const auto made = make_to_measure(problem_, layout, footprints, cost, resolver_.programs(), slowest_s);
    if (!made) return drop_for_memory(w.family);
    const auto& allowed = problem_.bounds.schedules;
    const std::string& name = made->schedule->name;
    const bool known = name != layout.schedule &&
                       (allowed.empty() || std::find(allowed.begin(), allowed.end(), name) != allowed.end());
    ++(known ? certificate().same : certificate().simulated);
    // What is slower than asked for need not be the best that the layout can have.
    if (!known && made->step_time_s <= slowest_s)
      keep({made->step_time_s, made->peak_bytes, std::move(layout)});
  }

  // Chooses the fewest recomputed layers that fit; the layout then waits under the bound that they give.
  void fit(Waiting w, Layout layout) {
    const StageKinds& stages = *resolver_.stages(family(w.family).layout, w.member);
    const SharedSplit split = resolver_.split_of(layout);
    const FittedBounds bounds(problem_, *split, layout, stages, resolver_.sharding_of(layout).states);
    // Where it fits with all its layers recomputed, time is what decides.
    const bool all_fit = w.known == Known::member_that_fits;
    const auto too_slow = [&](std::span<const int64_t> recomputed_layers) {
      return all_fit && bounds.first_rank_s(recomputed_layers) > last_kept_s();
    };
    switch (resolver_.fit(layout, stages, all_fit, too_slow)) {
      case LayoutResolver::Fit::too_slow:
        ++certificate().over_bound;
        return;
      case LayoutResolver::Fit::over_memory:
        return drop_for_memory(w.family);
      case LayoutResolver::Fit::twin:
        ++certificate().same;
        return;
      case LayoutResolver::Fit::some_layers:
        break;
    }
    w.known = Known::fitted;
    w.bound_s = std::max(w.bound_s, bounds.bound_s());
    fitted_.push_back(std::move(layout.recomputed_layers));
    w.fitted = int32_t(fitted_.size() - 1);
    ++waiting_;
    queue_.push(w);
  }

  void keep(Kept kept) {
    const auto at = std::upper_bound(best_.begin(), best_.end(), kept,
                                     [](const Kept& a, const Kept& b) { return a.key() < b.key(); });
    best_.insert(at, std::move(kept));
    if (best_.size() > keep_) best_.pop_back();
    if (best_.size() == keep_) together_.reach(best_.back().step_time_s);
    together_.found(best_.front().step_time_s);
  }

  double front_s() const { return !listed_ ? 0.0 : queue_.empty() ? kInfinity : queue_.top().bound_s; }

  bool go_on() {
    constexpr int kLookEvery = 64;
    if (++looked_ % kLookEvery == 0)
      together_.look(share_, certificate().layouts - waiting_, front_s(), problem_.time_limit_s);
    return !together_.stopped();
  }

  void finish() {
    drop_too_large();
    const bool front_is_slower = queue_.empty() || queue_.top().bound_s > last_kept_s();
    SearchCertificate& c = certificate();
    const bool complete = front_is_slower && c.not_reached == 0;
    (front_is_slower ? c.over_bound : c.not_reached) += waiting_;
    MPT_CHECK(c.over_memory + c.over_bound + c.same + c.simulated + c.not_reached == c.layouts,
              "{} layouts, {} accounted for", c.layouts,
              c.over_memory + c.over_bound + c.same + c.simulated + c.not_reached);
    c.optimal = complete;
    // Nothing is known of families that were not looked at; of the rest the front of the queue is fastest.
    result_.bound_s = c.not_reached > waiting_ ? 0.0 : queue_.empty() ? kInfinity : queue_.top().bound_s;
    for (const Kept& kept : best_) {
      Estimate e = estimate(problem_, *resolver_.split_of(kept.layout), kept.layout);
      Evaluation evaluation = evaluate(problem_, e);
      MPT_CHECK(!evaluation.rejection && evaluation.peak_bytes == kept.peak_bytes &&
                    std::abs(evaluation.step_time_s - kept.step_time_s) <= 1e-9 * kept.step_time_s,
                "{}: {} s and {} bytes in the search, {} s and {} bytes evaluated again",
                layout_name(kept.layout), kept.step_time_s, kept.peak_bytes, evaluation.step_time_s,
                evaluation.peak_bytes);
      result_.best.push_back({std::move(e), std::move(evaluation)});
    }
  }

  const SearchProblem& problem_;
  const size_t keep_, share_, shares_;
  Together& together_;
  // Where a good time is known from the start, nearly all that its bound leaves is looked at in the end.
  const bool makes_schedules_;
  LayoutResolver resolver_;
  std::vector<Group> groups_;  // those that wait
  std::vector<WaitingFamily> families_;
  std::map<std::tuple<int64_t, int64_t, bool>, MemberList> members_;
  std::vector<std::vector<int64_t>> fitted_;
  std::vector<TooLarge> too_large_;
  std::priority_queue<Waiting, std::vector<Waiting>, Later> queue_;
  bool listed_ = false;  // all families of the space are in the queue, or fell
  int64_t waiting_ = 0;  // layouts in the queue, those in unopened families included
  std::vector<Kept> best_;
  OverMemory over_memory_;
  std::vector<double> durations_;  // of the step that was simulated last, and its times
  Timeline timeline_;
  SearchResult result_;
  int64_t looked_ = 0;
  std::array<int64_t, 4> last_split_{};
  size_t splits_seen_ = 0;
};

SearchShare::SearchShare(const SearchProblem& problem, size_t keep, size_t share, size_t shares,
                         Together& together)
    : impl_(std::make_unique<Impl>(problem, keep, share, shares, together)) {}
SearchShare::~SearchShare() = default;
void SearchShare::run() { impl_->run(); }
bool SearchShare::optimal() const { return impl_->optimal(); }
bool SearchShare::found() const { return impl_->found(); }
void SearchShare::tell_over_memory(bool nothing_fits) { impl_->tell_over_memory(nothing_fits); }
SearchResult SearchShare::take() { return impl_->take(); }

}  // namespace mpt::planner
