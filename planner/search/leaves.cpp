// SPDX-License-Identifier: Apache-2.0
#include "planner/search/leaves.h"

#include <fmt/ranges.h>

#include <tuple>

#include "core/plan.h"
#include "planner/search/made_to_measure.h"

namespace mpt::planner {
namespace {

// Stages of a few layers in a model of thousands: nobody runs them, unless somebody asks for the chunks.
constexpr int64_t kMostStages = 1024;

// Without a pipeline there is nothing to order. 1F1B represents all, because it holds the fewest
// micro-batches. Who asks for other schedules alone wants a pipeline.
const ScheduleEntry* only_schedule(const SearchProblem& problem) {
  for (const ScheduleEntry& entry : schedule_catalog())
    if (entry.name == Layout{}.schedule && allowed(problem.bounds.schedules, entry.name)) return &entry;
  return nullptr;
}

class LeafEnumeration {
 public:
  LeafEnumeration(const SearchProblem& problem, const Layout& node, NotDividing* not_dividing)
      : problem_(problem),
        node_(node),
        micro_batches_(micro_batches(node, problem.workload)),
        only_(node.pipeline == 1 ? only_schedule(problem) : nullptr),
        not_dividing_(not_dividing) {}

  std::vector<Leaf> run() {
    for (const ScheduleEntry& entry : schedule_catalog()) {
      if (!allowed(problem_.bounds.schedules, entry.name) || (one_rank() && &entry != only_)) continue;
      const auto most = std::min<int64_t>(entry.max_chunks, problem_.model.layers.count() / node_.pipeline);
      for (int64_t chunks = entry.min_chunks; chunks <= most; ++chunks)
        if (has_chunks(entry, chunks)) add_splits(entry, chunks);
    }
    if (one_rank() && only_ == nullptr)
      note(fmt::format("without a pipeline there is no {} to follow",
                       fmt::join(problem_.bounds.schedules, " or ")));
    else if (leaves_.empty())
      note(fmt::format("no allowed schedule and chunks for {} pipeline stages", node_.pipeline));
    return std::move(leaves_);
  }

 private:
  bool one_rank() const { return node_.pipeline == 1; }
  // False, for use in conditions.
  bool note(const std::string& reason) {
    if (not_dividing_ != nullptr) ++(*not_dividing_)[reason];
    return false;
  }

  bool has_chunks(const ScheduleEntry& entry, int64_t chunks) {
    if (!allowed(problem_.bounds.chunks, chunks) || (one_rank() && chunks > 1)) return false;
    const int64_t stages = node_.pipeline * chunks;
    if (stages > kMostStages && problem_.bounds.chunks.empty())
      return note(fmt::format("more than {} virtual stages", kMostStages));
    if (stages * micro_batches_ > kMostScheduleCells)
      return note(fmt::format("more than {} stages x micro-batches", kMostScheduleCells));
    if (entry.made_to_measure && !is_worth_making(entry, chunks)) return false;
    const auto rejection = problem_.refused([&](const frameworks::Framework& f) {
      auto refused = supports_schedule(f, node_, entry.name, chunks, micro_batches_);
      return refused || problem_.from_rows || one_rank() ? refused : runs_by_name(f, entry.name);
    });
    return rejection ? note(rejection->reason) : true;
  }

  // Beyond what list scheduling is for, a schedule made to measure is the best named one. It stands only
  // where that one is not asked for by its own name.
  bool is_worth_making(const ScheduleEntry& entry, int64_t chunks) {
    if (node_.pipeline * chunks * micro_batches_ > kMostGeneratedCells)
      return note(fmt::format("no {} schedule of more than {} stages x micro-batches", entry.name,
                              kMostGeneratedCells));
    return chunks <= kMostListedChunks || !has_schedule(problem_, leanest_schedule(entry, int(chunks)).name);
  }

  void add_splits(const ScheduleEntry& entry, int64_t chunks) {
    Leaf leaf;
    leaf.schedule = uint16_t(&entry - schedule_catalog().data());
    leaf.chunks = uint16_t(chunks);
    const bool equal = problem_.model.layers.count() % (node_.pipeline * chunks) == 0;
    if (supports_stages(equal)) add_recomputes(leaf);
    if (one_rank() || !supports_stages(false)) return;
    leaf.split = StageSplit::balanced;
    add_recomputes(leaf);
    if (problem_.pools.empty()) return;
    leaf.split = StageSplit::by_memory;
    add_recomputes(leaf);
  }

  bool supports_stages(bool equal) const {
    return !problem_.refused([&](const auto& f) { return frameworks::supports_stages(f, equal); });
  }

  void add_recomputes(Leaf leaf) {
    for (const RecomputeChoice choice : {RecomputeChoice::none, RecomputeChoice::selective,
                                         RecomputeChoice::full, RecomputeChoice::fitted}) {
      const Recompute recompute = recompute_of(choice);
      if (!allowed(problem_.bounds.recomputes, recompute)) continue;
      const bool partial = choice == RecomputeChoice::fitted;
      if (partial && !problem_.fits_recompute) continue;
      if (problem_.refused(
              [&](const frameworks::Framework& f) { return supports_recompute(f, recompute, partial); }))
        continue;
      leaf.recompute = choice;
      leaves_.push_back(leaf);
    }
  }

  const SearchProblem& problem_;
  const Layout& node_;
  const int64_t micro_batches_;
  const ScheduleEntry* const only_;
  NotDividing* const not_dividing_;
  std::vector<Leaf> leaves_;
};

}  // namespace

bool has_schedule(const SearchProblem& problem, const std::string& name) {
  if (!allowed(problem.bounds.schedules, name)) return false;
  if (!problem.framework) return true;
  const auto& can = problem.framework->abilities.schedules;
  return any_of(can, [&](const frameworks::ScheduleAbility& s) { return s.schedule == name; });
}

std::vector<Leaf> leaves_of_degrees(const SearchProblem& problem, const Layout& node,
                                    NotDividing* not_dividing) {
  return LeafEnumeration(problem, node, not_dividing).run();
}

std::optional<Rejection> refused_below(const SearchProblem& problem, const Layout& node, const Leaf& leaf) {
  if (!problem.framework) return std::nullopt;
  return check_combination(
      *problem.framework, problem.model.type,
      frameworks::traits_of(problem.model) | frameworks::traits_of(node) | traits_of(node, leaf));
}

std::vector<Leaf> leaves_of(const SearchProblem& problem, const Layout& node) {
  std::vector<Leaf> leaves = leaves_of_degrees(problem, node);
  std::erase_if(leaves, [&](const Leaf& leaf) { return refused_below(problem, node, leaf); });
  return leaves;
}

frameworks::Traits traits_of(const Layout& node, const Leaf& leaf) {
  return frameworks::traits_of_leaf(node, schedule_catalog()[leaf.schedule].splits_backward, leaf.chunks,
                                    recompute_of(leaf.recompute));
}

// By all rules but those of traits. Leaves of one schedule and number of chunks stand together.
static std::vector<Runners> runners_of(const SearchProblem& problem, const Layout& node,
                                       const std::vector<Leaf>& leaves) {
  std::vector<Runners> runners;
  const Leaf* last = nullptr;
  Runners order = 0;
  for (const Leaf& leaf : leaves) {
    if (last == nullptr || last->schedule != leaf.schedule || last->chunks != leaf.chunks)
      order = problem.runners([&](const frameworks::Framework& f) {
        return supports_schedule(f, node, schedule_catalog()[leaf.schedule].name, leaf.chunks,
                                 micro_batches(node, problem.workload));
      });
    last = &leaf;
    const bool fitted = leaf.recompute == RecomputeChoice::fitted;
    const bool equal = leaf.split == StageSplit::even &&
                       problem.model.layers.count() % (node.pipeline * int64_t(leaf.chunks)) == 0;
    runners.push_back(order & problem.runners([&](const frameworks::Framework& f) {
      // What another rule of partial recompute fits is another layout.
      return (&f == problem.apart_from.get() && fitted &&
              f.abilities.partial_recompute != frameworks::PartialRecompute::any) ||
             frameworks::supports_stages(f, equal) ||
             supports_recompute(f, recompute_of(leaf.recompute), fitted);
    }));
  }
  return runners;
}

LeafList leaf_list_of(const SearchProblem& problem, const Layout& node) {
  NotDividing not_dividing;
  LeafList list(leaves_of_degrees(problem, node, &not_dividing));
  list.not_dividing = std::move(not_dividing);
  for (const Leaf& leaf : list.leaves) {
    const frameworks::Traits added = traits_of(node, leaf);
    auto known = find_if(list.traits, [&](const auto& one) { return one.first == added; });
    if (known == list.traits.end()) known = list.traits.insert(known, {added, 0});
    ++known->second;
    list.traits_of_leaf.push_back(uint8_t(known - list.traits.begin()));
  }
  MPT_CHECK(list.traits.size() <= LeafRunners{}.size(), "{} sets of traits", list.traits.size());
  list.runners = runners_of(problem, node, list.leaves);
  return list;
}

LeafList::LeafList(std::vector<Leaf> all) : leaves(std::move(all)), runners(leaves.size(), 1) {
  // By chunks, division into stages, recompute and placement. Open recompute counts as no recompute.
  std::map<std::tuple<uint16_t, StageSplit, Recompute, bool>, uint16_t> price_of;
  std::map<std::tuple<uint16_t, StageSplit, bool>, uint16_t> division_of;
  for (const Leaf& leaf : leaves) {
    const bool rounds = in_rounds(leaf);
    division_of_leaf.push_back(
        division_of.try_emplace({leaf.chunks, leaf.split, rounds}, uint16_t(division_of.size()))
            .first->second);
    price_of_leaf.push_back(
        price_of
            .try_emplace({leaf.chunks, leaf.split, least_recompute(leaf.recompute), rounds},
                         uint16_t(price_of.size()))
            .first->second);
  }
  prices = price_of.size();
  divisions = division_of.size();
}

Recompute recompute_of(RecomputeChoice choice) {
  return choice == RecomputeChoice::none        ? Recompute::none
         : choice == RecomputeChoice::selective ? Recompute::selective
                                                : Recompute::full;
}

Recompute least_recompute(RecomputeChoice choice) {
  return choice == RecomputeChoice::fitted ? Recompute::none : recompute_of(choice);
}

bool in_rounds(const Leaf& leaf) {
  return leaf.chunks != 2 || schedule_catalog()[leaf.schedule].placement == round_robin_placement;
}

std::vector<int> placement_of(const Layout& node, const Leaf& leaf) {
  return schedule_catalog()[leaf.schedule].placement(int(node.pipeline), int(leaf.chunks));
}

Layout with_leaf(const SearchProblem& problem, const Layout& node, const Leaf& leaf) {
  Layout layout = node;
  layout.schedule = schedule_catalog()[leaf.schedule].name;
  layout.chunks = leaf.chunks;
  layout.recompute = recompute_of(leaf.recompute);
  layout.layers_per_stage = even_stages(problem.model.layers.count(), layout.stages());
  return layout;
}

}  // namespace mpt::planner
