// SPDX-License-Identifier: Apache-2.0
#include "planner/answer/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/embedded.h"
#include "base/error.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "reports/utilisation.h"

namespace mpt::planner {

const EmbeddedFiles& memory_switch_files();  // generated

namespace {

struct State {
  PlanRequest request;
  Layout layout;
  int64_t peak_bytes = 0;
  double step_time_s = 0.0;
};

// The request of `now` with its layout and a row of memory_switches.json. "--cp" doubles context ranks and
// reduces data ranks accordingly.
PlanRequest with_switch(const Json& row, const State& now) {
  PlanRequest request = request_with(row, now.request);
  if (request.framework.empty()) request.framework = now.layout.execution.framework;  // of a layout alone
  const Training& t = now.layout.training;  // an imported request has adapters in its layout alone
  if (t.adapts() && request.lora == 0)
    request.lora = t.adapter_rank, request.lora_targets = t.adapter_targets;
  request.layout.reset();
  const auto resolved = resolve(request);
  Json changed = to_json(now.layout);
  changed.merge_patch(row.value("layout", Json::object()));
  auto layout = from_json<Layout>(changed, row.at("option"));
  if (row["option"] == "--cp" && layout.data % 2 == 0) layout.data /= 2, layout.context *= 2;
  if (row["option"] == "--cp" && now.layout.context == 1)
    layout.context_method = resolved->problem.framework->abilities.context_methods.front();
  if (layout.zero > now.layout.zero) layout.shard = layout.replicas();
  layout.execution = resolved->problem.execution;
  layout.training = resolved->problem.training;
  request.layout = layout;
  return request;
}

// The row of a switch applied to `now`, which it changes; null if the switch saves less than 0.5 %.
Json switched(Json row, State& now) {
  try {
    PlanRequest request = with_switch(row, now);
    const Estimated e = estimate(request);
    const int64_t peak = reports::peak_bytes(e.plan);
    const double step_s = e.plan.prediction.step_time_s;
    if (now.peak_bytes - peak < now.peak_bytes / 200) return nullptr;  // too little to show
    const Layout& l = e.plan.layout;
    if (row["option"] == "--cp") row["option"] = fmt::format("--cp {} --dp {}", l.context, l.data);
    row.update({{"saved_bytes", now.peak_bytes - peak}, {"added_s", step_s - now.step_time_s}});
    row.update({{"peak_bytes", peak}, {"step_time_s", step_s}, {"fits", e.fits()}});
    if (e.refusal) row["refusal"] = e.refusal->reason;
    now = {std::move(request), l, peak, step_s};
  } catch (const UserError& error) {
    row["refusal"] = error.problems().front().found;
  }
  for (const char* merged : {"request", "layout", "adapts"}) row.erase(merged);
  return row;
}

// The fastest of the switches that make the layout fit; else the one that saves most per added time.
Json next_switch(const Json& known, const char* changes, State& now) {
  Json best;
  State best_state = now;
  const auto order = [](const Json& s) {
    const double added_s = s.at("added_s"), saved = s.at("saved_bytes");
    return s.at("fits") ? std::pair(0, s.at("step_time_s").get<double>())
                        : std::pair(1, std::max(added_s, 0.0) / saved);
  };
  for (const Json& one : known) {
    State next = now;
    if (one.at("changes") != changes) continue;
    Json row = switched(one, next);
    if (row.is_null() || row.contains("refusal") || (!best.is_null() && order(best) <= order(row))) continue;
    best = std::move(row);
    best_state = std::move(next);
  }
  now = std::move(best_state);
  return best;
}

std::string describe_switch(const Json& s) {
  const std::string written = s.at("written"), option = s.at("option");
  if (s.contains("refusal"))
    return fmt::format("{}, {}, does not go: {}", written, option, s["refusal"].get<std::string>());
  const double added_s = s["added_s"], share = added_s / (s["step_time_s"].get<double>() - added_s);
  const std::string time = std::abs(share) < 5e-4
                               ? "as fast"
                               : format_difference(std::abs(share)) + (share > 0.0 ? " slower" : " faster");
  return fmt::format("saves {}, {}{}: {} ({})", format_bytes(s["saved_bytes"]), time,
                     s["fits"] ? ", fits" : "", written, option);
}

}  // namespace

Json memory_switches(const SearchProblem& problem) {
  const std::map<std::string, std::string> none,
      &words = problem.framework ? problem.framework->switches : none;
  Json rows = Json::array();
  for (Json row : parse_json(std::string(memory_switch_files().front().second), "memory_switches.json")) {
    const auto word = words.find(row["option"]);
    if (word == words.end() || row.value("adapts", problem.training.adapts()) != problem.training.adapts())
      continue;
    row["written"] = word->second;
    rows.push_back(std::move(row));
  }
  return rows;
}

PlanRequest request_with(const Json& row, const PlanRequest& request) {
  Json fields = to_json(request);
  const Json asked = row.value("request", Json::object());
  for (const auto& [name, value] : asked.items()) {
    if (value.is_array() && fields.contains(name))
      fields[name].insert(fields[name].end(), value.begin(), value.end());
    else
      fields[name] = value;
  }
  auto changed = from_json<PlanRequest>(fields, row.at("option"));
  changed.model = request.model;
  changed.cluster = request.cluster;
  return changed;
}

Json memory_doctor(const PlanRequest& request, const Estimated& now) {
  const Json known = memory_switches(now.resolved->problem);
  Json alone = Json::array(), together = Json::array();
  State state{request, now.plan.layout, reports::peak_bytes(now.plan), now.plan.prediction.step_time_s};
  for (const Json& row : known) {
    State next = state;
    if (Json found = switched(row, next); !found.is_null()) alone.push_back(std::move(found));
  }
  const auto saved = [](const Json& s) {
    return s.contains("refusal") ? 0.0 : s.at("saved_bytes").get<double>();
  };
  sort_by(alone, [&](const Json& s) { return -saved(s); });
  bool fits = now.fits();
  for (const char* changes : {"nothing", "states", "weights"})
    for (Json next; !fits && !(next = next_switch(known, changes, state)).is_null();) {
      fits = next.at("fits");
      together.push_back(next);
    }
  return {{"alone", alone}, {"together", together}};
}

std::string describe_doctor(const Estimated& now, const Json& doctor) {
  if (doctor.at("alone").empty()) return "";
  std::string text = fmt::format("\nSWITCHES of {}, each alone\n", now.resolved->problem.framework->title);
  for (const Json& s : doctor.at("alone")) text += wrapped(describe_switch(s), "  - ");
  if (doctor.at("together").empty()) return text;
  const Json& last = doctor.at("together").back();
  text += "\nTOGETHER, each on top of those above\n";
  std::string options;  // that a search does not choose
  for (const Json& s : doctor.at("together")) {
    text += wrapped(describe_switch(s), "  - ");
    if (s["changes"] != "nothing") options += " " + s["option"].get<std::string>();
  }
  if (!options.empty())
    options = " Planned so: mpt-plan --request PLAN" + options + ", of the PLAN that -o wrote.";
  return text +
         wrapped(fmt::format("{} {} per GPU, {} a step.{}", last["fits"] ? "It fits with" : "The least is",
                             format_bytes(last["peak_bytes"]), format_seconds(last["step_time_s"]),
                             last["fits"] ? options : " It takes more GPUs."));
}

}  // namespace mpt::planner
