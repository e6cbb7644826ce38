// SPDX-License-Identifier: Apache-2.0
#pragma once

// LayoutResolver: turns members of families into layouts. It knows what they leave open, the division into
// balanced stages and the fitted recompute, and keeps what many of them share: prices, schedules, programs.

#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "planner/search/evaluate.h"
#include "planner/search/program_cache.h"
#include "planner/search/space.h"

namespace mpt::planner {

using SharedSplit = std::shared_ptr<const SplitModel>;

class LayoutResolver {
 public:
  explicit LayoutResolver(const SearchProblem& problem) : problem_(problem) {}

  /// Layouts of one split of the layers share their price, whatever the pipeline and the replicas.
  SharedSplit split_of(const Layout& layout);

  /// With stages as the member says. Fitted recompute is still open: it stands as no recompute, than which it
  /// is never faster.
  Layout layout(const Family& family, const Member& member);
  /// Whether its stages are those of a simpler split, so that the member is another under a second name.
  bool is_twin(const Member& member, const Layout& layout);

  enum class Fit { some_layers, twin, over_memory };
  /// Fits a layout that layout() left open: recompute becomes full, of as few layers as fit. `twin`: of none
  /// or of all layers, which is another layout's name; `over_memory`: of all layers, and that is not enough.
  /// Without transfer buffers, which only lowering can count, it needs no program and asks for no more layers
  /// than with them.
  Fit fit(Layout& layout, bool with_transfer_buffers);

  /// Of a layout whose schedule is made to measure: of the leanest named one in its place, to which recompute
  /// is fitted.
  std::shared_ptr<const ActivationPeaks> peaks(const Layout& layout);
  std::shared_ptr<const OrderBound> order(const Layout& layout);
  std::shared_ptr<const StepProgram> program(const Layout& layout);
  ProgramCache& programs() { return programs_; }

 private:
  using SplitKey = std::tuple<int64_t, int64_t, ContextMethod, int64_t, int64_t, bool, int64_t>;

  std::vector<double> slowness(const Layout& layout, StageSplit split);
  const std::vector<int64_t>& balanced(const Layout& layout, StageSplit split);

  const SearchProblem& problem_;
  std::map<SplitKey, SharedSplit> splits_;
  SplitKey last_key_{};  // families of one split follow each other
  SharedSplit last_split_;
  std::map<std::tuple<const SplitModel*, int64_t, std::vector<double>>, std::vector<int64_t>> balanced_;
  ProgramCache programs_;
};

/// Every layout of the space, resolved, each once; twins under a second name left out. For small spaces: the
/// search itself never makes this list.
std::vector<Layout> enumerate_layouts(const SearchProblem& problem);

}  // namespace mpt::planner
