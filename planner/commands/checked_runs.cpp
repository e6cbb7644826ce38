// SPDX-License-Identifier: Apache-2.0
#include "planner/commands/checked_runs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"

namespace mpt::planner {
namespace {

// Step times closer than this are alike: about what equal runs differ by.
constexpr double kAlike = 0.02;

std::string first_line(std::string text) {
  text.resize(std::min(text.find('\n'), text.size()));
  return text;
}

}  // namespace

Checked check_run(const PublishedRun& run, const Calibration& calibration, bool streams) {
  Checked checked{run, {}, {}};
  try {
    checked.prediction = predict(run, calibration, streams);
  } catch (const std::exception& error) {
    // One run that this program cannot price must not cost the others.
    checked.skipped = first_line(error.what());
  }
  return checked;
}

ErrorSummary time_summary(const std::vector<const Checked*>& runs) {
  std::vector<double> errors;
  for (const Checked* c : runs) {
    if (const auto e = c->time_error()) errors.push_back(*e);
  }
  return summarise_errors(std::move(errors));
}
ErrorSummary memory_summary(const std::vector<const Checked*>& runs) {
  std::vector<double> errors;
  for (const Checked* c : runs) {
    if (const auto e = c->memory_error()) errors.push_back(*e);
  }
  return summarise_errors(std::move(errors));
}

Repetition repetition_of(const std::vector<Checked>& all) {
  std::map<std::string, std::vector<double>> measured;
  for (const Checked& c : all) {
    if (c.measured_s())
      measured[c.run.family + c.run.software + to_json(c.run.request).dump()].push_back(*c.measured_s());
  }
  std::vector<std::vector<double>> values;
  for (auto& [conditions, seconds] : measured) values.push_back(std::move(seconds));
  return planner::repetition_of(values);
}

std::vector<RankCorrelation> rank_correlations(const std::vector<Checked>& all) {
  struct Pairs {
    std::vector<std::pair<double, double>> steps, per_token;
  };
  std::map<std::string, Pairs> groups;
  for (const Checked& c : all) {
    if (!c.time_error()) continue;
    // Seconds of a device per token: runs of different batches and sizes compare.
    const RunPrediction& p = *c.prediction;
    const double work = double(p.workload.tokens_per_step()) / double(p.layout.ranks());
    Pairs& pairs = groups[fmt::format("{} ({} layers x {}) on {}", p.model.name, p.model.layers.count(),
                                      p.model.hidden, p.gpu)];
    pairs.steps.emplace_back(*c.measured_s(), c.prediction->step_s);
    pairs.per_token.emplace_back(*c.measured_s() / work, c.prediction->step_s / work);
  }
  const Repetition repetition = repetition_of(all);
  std::vector<RankCorrelation> out;
  for (const auto& [name, pairs] : groups) {
    if (pairs.steps.size() < 10) continue;
    std::vector<double> predicted;
    for (const auto& [measured_s, predicted_s] : pairs.steps) predicted.push_back(predicted_s);
    out.push_back({name, int(pairs.steps.size()), kendall_tau(pairs.steps), kendall_tau(pairs.per_token),
                   kendall_tau(pairs.steps, kAlike), std::nullopt});
    if (repetition.repeated > 0) out.back().reachable = reachable_tau(predicted, repetition.scatter());
  }
  return out;
}

Groups groups_of(const std::vector<Checked>& all) {
  Groups g;
  for (const Checked& c : all) {
    if (!c.prediction || c.is_failure()) continue;
    g.all["all"].push_back(&c);
    g.family[c.run.family].push_back(&c);
    g.gpu[c.prediction->gpu].push_back(&c);
    g.precision[enum_name(c.prediction->layout.precision)].push_back(&c);
  }
  return g;
}

Failures failures_of(const std::vector<Checked>& all) {
  Failures found;
  for (const Checked& c : all) {
    if (!c.is_failure()) continue;
    ++found.runs;
    if (c.prediction->fits) found.accepted.push_back(c.run.id);
  }
  return found;
}

Ranges ranges_of(const std::vector<Checked>& all) {
  Ranges found;
  for (const Checked& c : all) {
    if (!c.is_range() || !c.measured_s()) continue;
    const RunPrediction& p = *c.prediction;
    const double measured_s = *c.measured_s();
    const bool faster = measured_s<p.least_s, slower = measured_s> p.most_s;
    ++found.runs;
    ++(faster ? found.faster : slower ? found.slower : found.within);
    found.mean_distance += std::max({0.0, p.least_s / measured_s - 1.0, 1.0 - p.most_s / measured_s});
  }
  if (found.runs > 0) found.mean_distance /= double(found.runs);
  return found;
}

}  // namespace mpt::planner
