// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/drawn_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/quantity.h"
#include "core/layout_words.h"
#include "core/schedule_catalog.h"
#include "planner/explain/confidence.h"
#include "planner/explain/normal_draws.h"

namespace mpt::planner {

const std::vector<std::pair<std::string_view, std::string_view>>& price_error_files();  // generated

namespace {

constexpr const char* kPartNames[] = {"degrees", "pipeline", "state"};

// Step times of all layouts under errors that are drawn anew each time.
class DrawnTimes {
 public:
  DrawnTimes(std::span<const DrawnLayout> layouts, const PriceErrors& errors)
      : layouts_(layouts), errors_(errors) {
    for (const DrawnLayout& l : layouts) {
      traits_.push_back(traits_of(l.layout));
      for (size_t k = 0; k < kinds_.size(); ++k) kinds_[k][traits_.back().kinds[k]] = 0.0;
    }
  }

  const std::vector<double>& next() {
    WorkSeconds work_factor{};
    for (size_t c = 0; c < kWorkClasses; ++c) work_factor[c] = std::exp(errors_.work[c] * normal_());
    std::array<double, 5> per_doubling{};
    for (size_t d = 0; d < per_doubling.size(); ++d)
      per_doubling[d] = errors_.parts[size_t(LayoutTraits::kPartOfDoublings[d])] * normal_();
    for (size_t k = 0; k < kinds_.size(); ++k) {
      for (auto& [kind, error] : kinds_[k])
        error = errors_.parts[size_t(LayoutTraits::kPartOfKinds[k])] * normal_();
    }
    times_.clear();
    for (size_t l = 0; l < layouts_.size(); ++l) {
      const WorkSeconds& work = layouts_[l].work;
      const LayoutTraits& traits = traits_[l];
      double error =
          std::inner_product(per_doubling.begin(), per_doubling.end(), traits.doublings.begin(), 0.0);
      for (size_t k = 0; k < kinds_.size(); ++k) error += kinds_[k].at(traits.kinds[k]);
      times_.push_back(std::exp(error) *
                       std::inner_product(work.begin(), work.end(), work_factor.begin(), 0.0));
    }
    return times_;
  }

 private:
  std::span<const DrawnLayout> layouts_;
  const PriceErrors& errors_;
  std::vector<LayoutTraits> traits_;
  std::array<std::map<int64_t, double>, 5> kinds_;  // error by kind
  NormalDraws normal_;
  std::vector<double> times_;
};

}  // namespace

PriceErrors published_price_errors() {
  const auto& [file, text] = price_error_files().front();
  const std::string name(file);
  PriceErrors errors;
  for (const NamedSpread& e :
       from_json<std::vector<NamedSpread>>(parse_json(std::string(text), name), name)) {
    if (const auto work = enum_value<WorkClass>(e.of)) errors.work[size_t(*work)] = e.spread;
    for (size_t p = 0; p < kLayoutParts; ++p) {
      if (e.of == kPartNames[p]) errors.parts[p] = e.spread;
    }
  }
  return errors;
}

DrawnLayout drawn_layout(const SearchProblem& problem, const Candidate& candidate) {
  return {candidate.estimate.layout, critical_work(problem, candidate)};
}

LayoutTraits traits_of(const Layout& l) {
  const auto& catalog = schedule_catalog();
  const auto schedule = std::find_if(catalog.begin(), catalog.end(),
                                     [&](const ScheduleEntry& entry) { return entry.name == l.schedule; });
  const auto doublings = [](int64_t n) { return std::log2(double(n)); };
  return {{doublings(l.tensor), doublings(l.context), doublings(l.pipeline), doublings(l.expert),
           doublings(l.micro_batch)},
          {int64_t(l.sequence_parallel) + 2 * int64_t(l.context_method), schedule - catalog.begin(),
           int64_t(l.recompute), l.zero, int64_t(l.offload_optimizer)}};
}

DrawnChoice draw_choice(std::span<const DrawnLayout> layouts, const PriceErrors& errors, int64_t draws) {
  // Less is no regret but rounding.
  constexpr double kSame = 1e-9;
  DrawnTimes times(layouts, errors);
  std::vector<double> regrets, regret_by_winner(layouts.size(), 0.0);
  DrawnChoice drawn{draws, int64_t(layouts.size()), 0.0, 0.0, 0.0, {}};
  for (int64_t d = 0; d < draws; ++d) {
    const std::vector<double>& seconds = times.next();
    const auto winner = std::min_element(seconds.begin(), seconds.end());
    const double regret = seconds.front() / *winner - 1.0;
    regrets.push_back(regret > kSame ? regret : 0.0);
    regret_by_winner[size_t(winner - seconds.begin())] += regrets.back();
  }
  const auto wins = std::count_if(regrets.begin(), regrets.end(), [](double regret) { return regret > 0.0; });
  drawn.other_wins = double(wins) / double(draws);
  drawn.regret_mean = std::accumulate(regrets.begin(), regrets.end(), 0.0) / double(draws);
  std::sort(regrets.begin(), regrets.end());
  drawn.regret_95 = regrets[size_t(0.95 * double(draws - 1))];
  const auto other = std::max_element(regret_by_winner.begin(), regret_by_winner.end());
  if (*other > 0.0) drawn.measure = {1, 1 + (other - regret_by_winner.begin())};
  return drawn;
}

std::optional<DrawnChoice> draw_choice(const SearchResult& result, const SearchProblem& problem) {
  const bool known = errors_are_known(problem.cost->origin().source, problem.execution.framework);
  if (result.best.empty() || !known) return std::nullopt;
  const double most_s = (1.0 + kNearFront) * result.best.front().evaluation.step_time_s;
  std::vector<DrawnLayout> layouts;
  for (const Candidate& c : result.best) {
    if (layouts.size() < kMostDrawn && c.evaluation.step_time_s <= most_s)
      layouts.push_back(drawn_layout(problem, c));
  }
  if (layouts.size() < 2) return std::nullopt;
  return draw_choice(layouts, published_price_errors());
}

std::string describe_order(const DrawnChoice& d, const std::vector<Layout>& ranking) {
  constexpr int kSteps = 50;
  const size_t other = d.measure.size() == 2 ? size_t(d.measure.back()) : 0;
  if (d.regret_mean < kUncertainOrder || other < 1 || other > ranking.size()) return "";
  return fmt::format(
      "Order is uncertain: expect to lose {:.0f}% against the true best. To decide, time these two for {} "
      "steps: "
      "{} and {}.",
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
