// SPDX-License-Identifier: Apache-2.0

// What mpt-plan validate --json prints.

#include <algorithm>

#include "base/json.h"
#include "planner/commands/checked_runs.h"
#include "planner/explain/confidence.h"
#include "planner/validate/choices.h"

namespace mpt::planner {
namespace {

Json json_of(const ErrorSummary& s) {
  return {{"runs", s.count}, {"mean", s.mean}, {"median", s.median}, {"worst", s.worst}};
}

// By the runs of other sources alone.
void add_confidence(const Checked& c, const std::vector<Evidence>& evidence, Json& run) {
  const RunPrediction& p = *c.prediction;
  int64_t peak = 0;
  for (const RankMemory& m : p.memory) peak = std::max(peak, m.peak_bytes);
  const Confidence sure = confidence({{p.layout.execution.framework, p.model.moe() != nullptr, c.run.family},
                                      p.priced_by,
                                      p.step_s,
                                      double(peak) / double(p.limit_bytes)},
                                     evidence);
  if (sure.least_s) run["expected_s"] = {*sure.least_s, *sure.most_s};
  if (sure.fits) run["likely_to_fit"] = *sure.fits;
}

Json run_json(const Checked& c, const std::vector<Evidence>& evidence) {
  Json run{{"id", c.run.id},
           {"measured_iter_time_s", nullptr},
           {"predicted_iter_time_s", nullptr},
           {"measured_peak_mem_gib", nullptr},
           {"predicted_peak_mem_gib", nullptr},
           {"unknown", Json::array()},
           {"skipped", nullptr}};
  if (c.measured_s()) run["measured_iter_time_s"] = *c.measured_s();
  if (c.measured_gib()) run["measured_peak_mem_gib"] = *c.measured_gib();
  if (!c.prediction) {
    run["skipped"] = c.skipped;
    return run;
  }
  const RunPrediction& p = *c.prediction;
  const std::string& framework = p.layout.execution.framework;
  const bool experts = p.model.moe() != nullptr;
  run["predicted_iter_time_s"] = p.step_s;
  run["predicted_peak_mem_gib"] = p.peak_gib;
  run["unknown"] = p.unknown;
  run["gpu"] = p.gpu;
  run["family"] = c.run.family;
  run["framework"] = framework;
  run["experts"] = experts;
  run["layout"] = layout_name(p.layout);
  run["fits"] = p.fits;
  if (c.is_range()) run["range_s"] = {p.least_s, p.most_s};
  run["limit_bytes"] = p.limit_bytes;
  add_confidence(c, evidence, run);
  run["safe_bytes"] = memory_margin({framework, experts, ""}, evidence).safe_bytes(p.limit_bytes);
  run["out_of_memory"] = c.run.observed.out_of_memory;
  if (!c.run.unmodelled.gib.empty()) run["unmodelled"] = c.run.unmodelled.gib;
  for (const RankMemory& m : p.memory) run["memory"].push_back(to_json(m));
  run["compute_s"] = p.breakdown.compute_s;
  run["collective_s"] = p.breakdown.collectives_s;
  run["idle_s"] = p.breakdown.idle_s;
  run["priced_by"] = p.priced_by;
  run["work_s"] = p.work;
  const LayoutTraits traits = traits_of(p.layout);
  run["doublings"] = traits.doublings;
  run["kinds"] = traits.kinds;
  return run;
}

// Sets of layouts of one source, model, batch, machine, precision and software.
Json choices_json(const std::vector<Checked>& all) {
  std::vector<MeasuredLayout> runs;
  for (const Checked& c : all) {
    if (!c.time_error()) continue;
    const Json request = to_json(c.run.request);
    const auto part = [&](const char* name) { return request.contains(name) ? request[name].dump() : ""; };
    runs.push_back({c.run.family + part("model") + part("cluster") + part("global_batch") +
                        part("framework") + part("execution") + enum_name(c.prediction->layout.precision),
                    part("layout"), c.run.family, DrawnLayout{c.prediction->layout, c.prediction->work},
                    c.prediction->step_s, *c.measured_s()});
  }
  Json sets = Json::array();
  for (const CheckedChoice& choice : check_choices(runs, published_price_errors())) {
    sets.push_back({{"source", choice.source},
                    {"layouts", choice.drawn.layouts},
                    {"regret", choice.regret},
                    {"stated_mean", choice.drawn.regret_mean},
                    {"stated_95", choice.drawn.regret_95},
                    {"other_wins", choice.drawn.other_wins}});
  }
  return sets;
}

}  // namespace

std::string report_json(const std::vector<Checked>& all) {
  const std::vector<Evidence> evidence = published_evidence();
  Json runs = Json::array();
  for (const Checked& c : all) runs.push_back(run_json(c, evidence));
  const Groups g = groups_of(all);
  Json summary{
      {"skipped", std::count_if(all.begin(), all.end(), [](const Checked& c) { return !c.prediction; })}};
  for (const auto& [title, group] :
       {std::pair{"all", &g.all}, {"family", &g.family}, {"gpu", &g.gpu}, {"precision", &g.precision}}) {
    for (const auto& [name, members] : *group)
      summary[title][name] = {{"time", json_of(time_summary(members))},
                              {"memory", json_of(memory_summary(members))}};
  }
  for (const RankCorrelation& r : rank_correlations(all)) {
    summary["rank_correlation"].push_back({{"group", r.name},
                                           {"runs", r.runs},
                                           {"kendall_tau", r.of_step_times},
                                           {"kendall_tau_per_token", r.of_device_seconds_per_token},
                                           {"kendall_tau_apart", r.apart},
                                           {"kendall_tau_reachable", nullptr}});
    if (r.reachable) summary["rank_correlation"].back()["kendall_tau_reachable"] = *r.reachable;
  }
  const Repetition repetition = repetition_of(all);
  summary["repeated"] = {{"runs", repetition.repeated}, {"difference", repetition.difference}};
  const Ranges ranges = ranges_of(all);
  summary["ranges"] = {{"runs", ranges.runs},
                       {"within", ranges.within},
                       {"faster", ranges.faster},
                       {"slower", ranges.slower},
                       {"distance", ranges.mean_distance}};
  summary["choices"] = choices_json(all);
  const Failures failures = failures_of(all);
  summary["out_of_memory"] = {{"runs", failures.runs}, {"accepted", failures.accepted}};
  return Json{{"runs", runs}, {"summary", summary}}.dump(1);
}

}  // namespace mpt::planner
