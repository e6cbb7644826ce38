// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/drawn_choice.h"

#include "base/quantity.h"
#include "planner/explain/confidence.h"
#include "planner/observe/features.h"

namespace mpt::planner {

DrawnChoice draw_choice(const LogTimes& log_times, const Posterior& posterior,
                        std::span<const double> scales) {
  const DrawnLosses drawn = draw_losses(log_times, posterior, 0, kDraws, scales);
  const auto& losses = drawn.losses;
  const auto wins = losses.end() - std::upper_bound(losses.begin(), losses.end(), 0.0);
  const auto other = std::max_element(drawn.by_winner.begin(), drawn.by_winner.end());
  // More digits would show noise of the draws and of the machine's order of additions.
  const auto rounded = [](double loss) { return std::round(1e6 * loss) / 1e6; };
  const double most = losses[size_t(0.95 * double(kDraws - 1))];
  DrawnChoice choice{int64_t(kDraws),       log_times.size(), double(wins) / double(kDraws),
                     rounded(drawn.mean()), rounded(most),    {}};
  if (*other > 0.0) choice.measure = {1, 1 + (other - drawn.by_winner.begin())};
  return choice;
}

std::optional<DrawnChoice> draw_choice(const SearchResult& result, const SearchProblem& problem) {
  const bool known = errors_are_known(problem.cost->origin().source, problem.execution.framework);
  if (result.best.empty() || !known) return std::nullopt;
  const double most_s = (1.0 + kNearFront) * result.best.front().evaluation.step_time_s;
  std::vector<CorrectedPoint> points;
  std::vector<double> log_times;
  for (const Candidate& c : result.best) {
    if (points.size() == kMostDrawn || c.evaluation.step_time_s > most_s) continue;
    points.push_back({time_features_of(problem, c), layout_name(c.estimate.layout)});
    log_times.push_back(std::log(c.evaluation.step_time_s));
  }
  if (points.size() < 2) return std::nullopt;
  const ObservedPriors priors = published_priors();
  return draw_choice(Eigen::Map<const LogTimes>(log_times.data(), Eigen::Index(log_times.size())),
                     Posterior(points, priors.time), priors.scales);
}

std::string describe_order(const DrawnChoice& d, const std::vector<Layout>& ranking) {
  constexpr int kSteps = 50;
  const size_t other = d.measure.size() == 2 ? size_t(d.measure.back()) : 0;
  if (d.regret_mean < kUncertainOrder || other < 1 || other > ranking.size()) return "";
  return fmt::format(
      "Order is uncertain: expect to lose {:.0f}% against the true best. To decide, time these two for {} "
      "steps: {} and {}.",
      100.0 * d.regret_mean, kSteps, layout_name(ranking.front()), layout_name(ranking[other - 1]));
}

std::string describe_drawn(const DrawnChoice& d, const std::vector<Layout>& ranking) {
  if (d.other_wins <= 0.0)
    return fmt::format("If prices are off as in published runs, none of {} others near it wins in {} draws.",
                       d.layouts - 1, format_count(d.draws));
  std::string text = fmt::format(
      "If prices are off as in published runs, another layout wins in {} of {} draws; this one then costs "
      "{} on average over all draws, {} at 95%",
      format_percent(d.other_wins), format_count(d.draws), format_percent(d.regret_mean),
      format_percent(d.regret_95));
  const size_t other = d.measure.size() == 2 ? size_t(d.measure.back()) : 0;
  if (other < 1 || other > ranking.size()) return text + ".";
  return text + fmt::format(": measure it and {} to decide.", layout_name(ranking[other - 1]));
}

}  // namespace mpt::planner
