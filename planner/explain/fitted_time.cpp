// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/fitted_time.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "base/quantity.h"
#include "planner/cost/calibration.h"
#include "planner/cost/operator_pieces.h"

namespace mpt::planner {
namespace {

using models::CollectiveKind;
using profiler::Phase;
using profiler::Piece;

constexpr double kStep = 0.01;         // relative change of each constant
constexpr double kListedShare = 5e-4;  // of the step: a constant that moves less of it is not listed

using Sources = std::vector<const CostSource*>;

// Prices of `source`. Each is longer by its changes in `moved` sources, and by kStep of itself at most.
class FollowingCost final : public CostSource {
 public:
  FollowingCost(const CostSource& source, Sources moved)
      : CostSource(source.constants()), source_(source), moved_(std::move(moved)) {}

  std::array<PieceSeconds, 3> pieces_s(Piece piece, const Layout& layout,
                                       const models::LayerProgram& program) const override {
    std::array<PieceSeconds, 3> pieces = source_.pieces_s(piece, layout, program);
    const auto more = sums_of_operators(program, piece, [&](const models::Operator& op) {
      return PhaseSeconds{more_s(op, Phase::forward), more_s(op, Phase::input_gradient),
                          more_s(op, Phase::weight_gradient)};
    });
    for (size_t r = 0; r < pieces.size(); ++r) {
      pieces[r].forward_s += more[r].forward_s;
      pieces[r].backward_s += more[r].backward_s;
      pieces[r].input_gradient_s += more[r].input_gradient_s;
      pieces[r].weight_gradient_s += more[r].weight_gradient_s;
    }
    return pieces;
  }
  std::array<PieceSeconds, 3> launching_s(Piece piece, const models::LayerProgram& program) const override {
    return source_.launching_s(piece, program);
  }
  double piece_s(Piece piece, Phase phase, const Layout& layout,
                 const models::LayerProgram& program) const override {
    return seconds_of(pieces_s(piece, layout, program)[size_t(layout.recompute)], phase);
  }
  double operator_s(const models::OperatorShape& shape, Phase phase) const override {
    return followed([&](const CostSource& s) { return s.operator_s(shape, phase); });
  }
  double collective_s(CollectiveKind kind, int64_t bytes, const GroupPlace& group) const override {
    return followed([&](const CostSource& s) { return s.collective_s(kind, bytes, group); });
  }
  double exchange_s(int64_t bytes, const models::CopyRoute& route, const GroupPlace& group) const override {
    return followed([&](const CostSource& s) { return s.exchange_s(bytes, route, group); });
  }
  double transfer_s(int64_t bytes, int64_t first, int64_t last, int64_t senders) const override {
    return followed([&](const CostSource& s) { return s.transfer_s(bytes, first, last, senders); });
  }
  double overlap_share(const GroupPlace& group) const override {
    return followed([&](const CostSource& s) { return s.overlap_share(group); });
  }
  double pipelined_overlap_share() const override {
    return followed([](const CostSource& s) { return s.pipelined_overlap_share(); });
  }
  double sharded_rate(const GroupPlace& group) const override { return source_.sharded_rate(group); }
  double optimizer_s(int64_t parameters) const override {
    return followed([&](const CostSource& s) { return s.optimizer_s(parameters); });
  }
  double offloaded_optimizer_s(int64_t parameters) const override {
    return followed([&](const CostSource& s) { return s.offloaded_optimizer_s(parameters); });
  }
  double gradient_norm_s(int64_t parameters) const override {
    return followed([&](const CostSource& s) { return s.gradient_norm_s(parameters); });
  }
  double dispatch_s() const override { return source_.dispatch_s(); }
  std::vector<double> rate_by_active_ranks() const override { return source_.rate_by_active_ranks(); }
  CostOrigin origin() const override { return source_.origin(); }

 private:
  template <class Price>
  double followed(Price&& price) const {
    const double whole = price(source_);
    double change = 0.0;
    for (const CostSource* moved : moved_) change += std::abs(price(*moved) - whole);
    return whole + std::min(change, kStep * whole);
  }
  double more_s(const models::Operator& op, Phase phase) const {
    return operator_s(op.shape, phase) - source_.operator_s(op.shape, phase);
  }

  const CostSource& source_;
  const Sources moved_;
};

// The sources of a problem with one fitted constant moved, for each of them.
class MovedProblem {
 public:
  MovedProblem(const SearchProblem& problem, const Candidate& candidate)
      : problem_(problem), candidate_(candidate) {
    for (size_t c = 0; c < constants().size(); ++c) {
      if (constants()[c].origin != ConstantOrigin::fitted) continue;
      Row& row = rows_.emplace_back();
      row.name = constants()[c].name;
      for (size_t pool = 0; pool < problem.pool_count(); ++pool) {
        Calibration moved = problem.source(pool).constants();
        moved.*Calibration::members()[c].second *= 1.0 + kStep;
        row.pools.push_back(problem.source(pool).with(moved));
      }
    }
  }

  size_t size() const { return rows_.size(); }
  const std::string& name(size_t constant) const { return rows_[constant].name; }

  // The share of the step that follows the constants from `first` to before `end`.
  double share(size_t first, size_t end) const {
    std::vector<std::unique_ptr<FollowingCost>> following;
    SearchProblem changed = problem_;
    for (size_t pool = 0; pool < problem_.pool_count(); ++pool) {
      Sources moved;
      for (size_t c = first; c < end; ++c) {
        if (rows_[c].pools[pool] != nullptr) moved.push_back(rows_[c].pools[pool].get());
      }
      following.push_back(std::make_unique<FollowingCost>(problem_.source(pool), std::move(moved)));
      if (!changed.pools.empty()) changed.pools[pool].cost = following.back().get();
    }
    changed.cost = following.front().get();
    const Layout& layout = candidate_.estimate.layout;
    const Evaluation& e = candidate_.evaluation;
    const std::vector<double> durations = estimate(changed, layout).cost.durations(e.program);
    if (durations == e.durations_s) return 0.0;
    const double step_s = step_time_s(simulate(e.program, durations, contention_of(problem_, layout)));
    return std::clamp((step_s / e.step_time_s - 1.0) / kStep, 0.0, 1.0);
  }

 private:
  struct Row {
    std::string name;
    std::vector<std::unique_ptr<CostSource>> pools;
  };
  const SearchProblem& problem_;
  const Candidate& candidate_;
  std::vector<Row> rows_;
};

}  // namespace

FittedTime fitted_time(const SearchProblem& problem, const Candidate& candidate) {
  const MovedProblem moved(problem, candidate);
  FittedTime fitted;
  fitted.share = moved.share(0, moved.size());
  for (size_t c = 0; c < moved.size(); ++c) {
    const double share = moved.share(c, c + 1);
    if (share >= kListedShare) fitted.constants.push_back({moved.name(c), share});
  }
  std::stable_sort(fitted.constants.begin(), fitted.constants.end(),
                   [](const ConstantShare& a, const ConstantShare& b) { return a.share > b.share; });
  return fitted;
}

std::string describe_fitted_time(const Plan& plan) {
  if (!plan.fitted) return "";
  constexpr size_t kShown = 5;
  std::vector<std::string> names;
  for (const ConstantShare& c : plan.fitted->constants) {
    if (names.size() < kShown) names.push_back(fmt::format("{} {}", c.name, format_percent(c.share)));
  }
  const std::string most = names.empty() ? "" : fmt::format(" (most on {})", fmt::join(names, ", "));
  return fmt::format("{} of the step time rests on constants that were fitted to published runs{}.",
                     format_percent(plan.fitted->share), most);
}

}  // namespace mpt::planner
