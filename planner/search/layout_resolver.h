// SPDX-License-Identifier: Apache-2.0
#pragma once

// LayoutResolver: turns members of families into layouts. It knows what they leave open, the division into
// balanced stages and the fitted recompute, and keeps what many of them share: prices, schedules, programs.

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "planner/cost/step_pricer.h"
#include "planner/search/evaluate.h"
#include "planner/search/fit_recompute.h"
#include "planner/search/program_cache.h"
#include "planner/search/space.h"

namespace mpt::planner {

using SharedSplit = std::shared_ptr<const SplitModel>;

class LayoutResolver {
 public:
  explicit LayoutResolver(const SearchProblem& problem)
      : problem_(problem), kinds_(std::make_shared<const models::LayerKinds>(problem.model)) {}

  /// Layouts of one split of the layers share their price, whatever the pipeline and the replicas.
  SharedSplit split_of(const Layout& layout);

  /// What is known of sharding, for layouts that differ in micro-batch, sequence parallelism, method of
  /// context parallelism, division and recompute alone.
  struct KnownSharding {
    StateCosts states;
    std::unordered_map<const StageKinds*, RestOfStep> rest;
  };
  KnownSharding& sharding_of(const Layout& layout);

  /// With stages as the member says. Fitted recompute is still open: it stands as no recompute, than which it
  /// is never faster.
  Layout layout(const Family& family, const Member& member);
  /// Whether the stages of a member of the family of `layout` are those of a simpler split, so that it is
  /// another under a second name.
  bool is_twin(const Layout& layout, const Member& member);

  /// The stages of a member of the family of `layout`; null for a twin.
  const StageKinds* stages(const Layout& layout, const Member& member);

  enum class Fit { some_layers, twin, over_memory, too_slow };
  /// Fits a layout that layout() left open: recompute becomes full, of as few layers as fit. `twin`: of none
  /// or of all layers, which is another layout's name; `over_memory`: of all layers, and that is not enough.
  /// `stages`: the layout's.
  Fit fit(Layout& layout, const StageKinds& stages, bool all_fit = false,
          const FirstRankIsTooSlow& too_slow = {});

  std::vector<StageFootprint> footprints(const Layout& layout);
  /// Durations of the layout, which is the member's.
  StepCost cost(const Layout& layout, const Member& member);

  /// Of a layout whose schedule is made to measure: of the leanest named one in its place, to which recompute
  /// is fitted.
  std::shared_ptr<const ActivationPeaks> peaks(const Layout& layout);
  std::shared_ptr<const OrderBound> order(const Layout& layout);
  std::shared_ptr<const StepProgram> program(const Layout& layout);
  ProgramCache& programs() { return programs_; }

 private:
  struct SplitKey {
    int64_t tensor = 0, context = 0, expert = 0, expert_split = 0, micro_batch = 0;
    ContextMethod context_method{};
    bool sequence_parallel = false, copies_embedding = false;
    bool operator==(const SplitKey&) const = default;
  };
  struct SplitHash {
    size_t operator()(const SplitKey& key) const;
  };

  // Layers of each stage; equal ones are one and the same.
  using Division = const std::vector<int64_t>*;

  std::vector<double> slowness(const Layout& layout, const Member& member, StageSplit split);
  Division even(const Layout& layout, const Member& member);
  Division balanced(const Layout& layout, const Member& member, StageSplit split);
  Division division(const Layout& layout, const Member& member);
  bool is_twin(const Layout& layout, const Member& member, Division division);

  const SearchProblem& problem_;
  const std::shared_ptr<const models::LayerKinds> kinds_;
  std::unordered_map<SplitKey, SharedSplit, SplitHash> splits_;
  std::map<std::tuple<int64_t, int64_t, ContextMethod, bool, int64_t>, SharedSplit> but_for_experts_;
  SplitKey last_key_{};  // families of one split follow each other
  SharedSplit last_split_;
  std::map<std::array<int64_t, 10>, KnownSharding> sharding_;
  std::set<std::vector<int64_t>> divisions_;
  std::map<int64_t, Division> even_;  // by number of stages
  std::map<std::tuple<const SplitModel*, int64_t, std::vector<double>>, Division> balanced_;
  // By division, whether chunks are laid in rounds, and devices of the ranks where they differ.
  std::map<std::tuple<Division, int64_t, bool, std::vector<PoolMask>>, StageKinds> stages_;
  ProgramCache programs_;
};

/// Every layout of the space, resolved, each once; twins under a second name left out. For small spaces: the
/// search itself never makes this list.
std::vector<Layout> enumerate_layouts(const SearchProblem& problem);

}  // namespace mpt::planner
