// SPDX-License-Identifier: Apache-2.0

// For benchmarks/observed.py: fits the prior of corrections, and replays choices by the planner's own code.
// Reads JSON from stdin and prints JSON.
//
//     observed_runs names    {}  ->  names of the features, in order
//     observed_runs fit      {"runs": [...], "start": spreads or null, "rounds": N}  ->  spreads
//     observed_runs replay   {"prior": spreads, "scales": [...], "sets": [[...], ...]}  ->  losses, scales
//     observed_runs transfer {"prior": spreads, "runs": [...]}  ->  errors of the others

#include <fmt/format.h>

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <iterator>
#include <map>

#include "base/json.h"
#include "planner/explain/drawn_choice.h"
#include "planner/observe/observed_plan.h"

namespace mpt::planner {
namespace {

CorrectionPrior prior_of(const Json& spreads) {
  return {spreads.at("weights").get<std::vector<double>>(), spreads.at("layout"), spreads.at("measurement")};
}
Json json_of(const CorrectionPrior& prior) {
  return {{"weights", prior.weights}, {"layout", prior.layout}, {"measurement", prior.measurement}};
}
CorrectedPoint point_of(const Json& run) {
  return {run.at("features").get<std::vector<double>>(), run.at("layout").get<std::string>()};
}

// Runs of one source on one machine with one software.
struct Group {
  std::vector<CorrectedPoint> points;
  Eigen::VectorXd values;
  double weight = 1.0;
};

// Runs with larger differences differ in more than prices, so their differences are clamped to this.
constexpr double kLargest = 0.3, kMost = 0.6;
// More runs of one source tell no more about other sources' runs.
constexpr double kFullWeight = 8.0;
constexpr size_t kMostRuns = 60;

Group group_of(const std::vector<Json>& runs) {
  Group group;
  const size_t step = (runs.size() + kMostRuns - 1) / kMostRuns;
  std::vector<double> values;
  for (size_t i = 0; i < runs.size(); i += step) {
    group.points.push_back(point_of(runs[i]));
    values.push_back(runs[i].at("log_ratio"));
  }
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const double median = 0.5 * (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]);
  group.values.resize(Eigen::Index(values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    const double near = median + std::clamp(values[i] - median, -kLargest, kLargest);
    group.values(Eigen::Index(i)) = std::clamp(near, -kMost, kMost);
  }
  group.weight = 1.0 / std::sqrt(std::max(1.0, double(values.size()) / kFullWeight));
  return group;
}

// The gradient of the likelihood with respect to the variance of each component: half of a^T G a, and half of
// the trace of K^-1 G, with G the component's part of the covariance K, and a = K^-1 values.
struct Pull {
  std::vector<double> up, down;
};

void add_pull(const Group& group, const CorrectionPrior& prior, Pull& pull) {
  const Eigen::Index n = group.values.size();
  const size_t features = prior.weights.size();
  const Posterior before(group.points, prior);
  const Eigen::MatrixXd k = before.covariance() + before.noise_variance() * Eigen::MatrixXd::Identity(n, n);
  const Eigen::MatrixXd inverse = k.llt().solve(Eigen::MatrixXd::Identity(n, n));
  const Eigen::VectorXd a = inverse * group.values;
  for (size_t f = 0; f < features; ++f) {
    Eigen::VectorXd x(n);
    for (Eigen::Index i = 0; i < n; ++i) x(i) = group.points[size_t(i)].features[f];
    const double along = a.dot(x);
    pull.up[f] += 0.5 * group.weight * along * along;
    pull.down[f] += 0.5 * group.weight * x.dot(inverse * x);
  }
  for (Eigen::Index i = 0; i < n; ++i)
    for (Eigen::Index j = 0; j < n; ++j) {
      if (group.points[size_t(i)].layout != group.points[size_t(j)].layout) continue;
      pull.up[features] += 0.5 * group.weight * a(i) * a(j);
      pull.down[features] += 0.5 * group.weight * inverse(i, j);
    }
}

// Largest posterior of the variances, by rounds of the MM algorithm for variance components (Zhou, Hu, Qiao,
// Cho and Zhou 2019): each round lowers a bound of the objective that touches it. Variances have an inverse
// gamma prior around kUsual, so a variance that few runs determine stays near it.
CorrectionPrior fitted(const std::vector<Group>& groups, CorrectionPrior prior, int rounds) {
  constexpr double kUsual = 0.04, kShape = 0.05, kLeast = 0.002, kMostSpread = 0.5;
  const size_t components = prior.weights.size() + 1;
  for (int round = 0; round < rounds; ++round) {
    Pull pull{std::vector<double>(components), std::vector<double>(components)};
    for (const Group& group : groups) add_pull(group, prior, pull);
    for (size_t c = 0; c < components; ++c) {
      double& spread = c + 1 < components ? prior.weights[c] : prior.layout;
      const double variance = spread * spread;
      const double next = std::sqrt((pull.up[c] * variance * variance + kShape * kUsual * kUsual) /
                                    (pull.down[c] + kShape / variance));
      spread = std::clamp(std::sqrt(next), kLeast, kMostSpread);
    }
  }
  return prior;
}

Json names(const Json&) {
  Json out;
  for (const Feature& f : time_features()) out["time"].push_back(f.name);
  for (const Feature& f : memory_features()) out["memory"].push_back(f.name);
  return out;
}

Json fit(const Json& input) {
  std::map<std::string, std::vector<Json>> by_group;
  for (const Json& run : input.at("runs")) by_group[run.at("group")].push_back(run);
  std::vector<Group> groups;
  for (const auto& [name, runs] : by_group) groups.push_back(group_of(runs));
  return json_of(fitted(groups, prior_of(input.at("start")), input.at("rounds")));
}

// Layouts of one set, in predicted order.
struct MeasuredSet {
  std::vector<Choosable> layouts;
  std::vector<double> measured_s;

  double loss(size_t choice) const {
    return measured_s[choice] / *std::min_element(measured_s.begin(), measured_s.end()) - 1.0;
  }
};

MeasuredSet set_of(const Json& layouts) {
  MeasuredSet set;
  for (const Json& l : layouts) {
    set.layouts.push_back({point_of(l), l.at("predicted_s"), 1.0, false});
    set.measured_s.push_back(l.at("measured_s"));
  }
  return set;
}

// Losses of the choice after no run, one, two, ...
std::vector<double> corrected_losses(MeasuredSet set, const CorrectionPrior& prior, size_t most) {
  std::vector<CorrectedPoint> points;
  for (const Choosable& c : set.layouts) points.push_back(c.time);
  Posterior posterior(points, prior);
  std::vector<double> losses;
  for (size_t runs = 0;; ++runs) {
    const size_t choice = recommended(set.layouts, posterior);
    losses.push_back(set.loss(choice));
    if (runs == most) return losses;
    const auto next = next_run(set.layouts, posterior, choice).layout;
    if (!next) continue;
    posterior.observe(*next, std::log(set.measured_s[*next] / set.layouts[*next].predicted_s));
    set.layouts[*next].ran = true;
  }
}

// The same for a user who measures in the predicted order, and takes the fastest layout that ran.
std::vector<double> predicted_losses(const MeasuredSet& set, size_t most) {
  std::vector<double> losses{set.loss(0)};
  for (size_t runs = 1; runs <= most; ++runs) {
    const size_t ran = std::min(runs, set.measured_s.size());
    const auto fastest = std::min_element(set.measured_s.begin(), set.measured_s.begin() + ptrdiff_t(ran));
    losses.push_back(set.loss(size_t(fastest - set.measured_s.begin())));
  }
  return losses;
}

// The errors of a set divided by the prior's own. Each error is computed after the layouts before it were
// observed.
double scale_of(const MeasuredSet& set, const CorrectionPrior& prior) {
  std::vector<CorrectedPoint> points;
  for (const Choosable& c : set.layouts) points.push_back(c.time);
  Posterior posterior(points, prior);
  double sum = 0.0;
  for (size_t i = 0; i < points.size(); ++i) {
    const double value = std::log(set.measured_s[i] / set.layouts[i].predicted_s);
    if (i > 0) sum += std::pow(value - posterior.mean(i), 2) / posterior.run_variance(i);
    posterior.observe(i, value);
  }
  return std::sqrt(sum / double(points.size() - 1));
}

// The losses that the model expects of the choice before any run.
DrawnChoice drawn_losses(const MeasuredSet& set, const CorrectionPrior& prior,
                         const std::vector<double>& scales) {
  LogTimes log_times(Eigen::Index(set.layouts.size()));
  std::vector<CorrectedPoint> points;
  for (const Choosable& c : set.layouts) {
    log_times(Eigen::Index(points.size())) = std::log(c.predicted_s);
    points.push_back(c.time);
  }
  return draw_choice(log_times, Posterior(points, prior), scales);
}

Json replay(const Json& input) {
  constexpr size_t kRuns = 3;
  const CorrectionPrior prior = prior_of(input.at("prior"));
  Json out = Json::array();
  for (const Json& layouts : input.at("sets")) {
    const MeasuredSet set = set_of(layouts);
    out.push_back(
        {{"corrected", corrected_losses(set, prior, kRuns)}, {"predicted", predicted_losses(set, kRuns)}});
    out.back()["drawn"] = to_json(drawn_losses(set, prior, input.at("scales")));
    out.back()["scale"] = scale_of(set, prior);
  }
  return out;
}

// For each run in turn: the errors of the other runs' predictions before and after this run is known.
Json transfer(const Json& input) {
  const CorrectionPrior prior = prior_of(input.at("prior"));
  std::vector<CorrectedPoint> points;
  std::vector<double> ratios;
  for (const Json& run : input.at("runs")) {
    points.push_back(point_of(run));
    ratios.push_back(run.at("log_ratio"));
  }
  Json out = Json::array();
  for (size_t told = 0; told < points.size(); ++told) {
    Posterior posterior(points, prior);
    posterior.observe(told, ratios[told]);
    std::vector<double> before, after;
    for (size_t i = 0; i < points.size(); ++i) {
      if (i == told) continue;
      before.push_back(std::expm1(-ratios[i]));
      after.push_back(std::expm1(posterior.mean(i) - ratios[i]));
    }
    out.push_back({{"before", before}, {"after", after}});
  }
  return out;
}

int run(const std::string& what) {
  const std::map<std::string, Json (*)(const Json&)> modes{
      {"names", names}, {"fit", fit}, {"replay", replay}, {"transfer", transfer}};
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  fmt::print("{}\n", modes.at(what)(Json::parse(text)).dump());
  return 0;
}

}  // namespace
}  // namespace mpt::planner

int main(int argc, char** argv) {
  try {
    return mpt::planner::run(argc > 1 ? argv[1] : "");
  } catch (const std::exception& error) {
    fmt::print(stderr, "observed_runs: {}\n", error.what());
    return 2;
  }
}
