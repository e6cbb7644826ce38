// SPDX-License-Identifier: Apache-2.0
#include "planner/answer/doctor.h"

#include "base/embedded.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "core/ties.h"
#include "planner/explain/confidence.h"
#include "planner/explain/memory_parts.h"
#include "planner/explain/screen.h"
#include "planner/explain/utilisation.h"
#include "reports/utilisation.h"

namespace mpt::planner {

const EmbeddedFiles& memory_switch_files();  // generated

namespace {

// A layout with some switches, and what they come to.
struct State {
  PlanRequest request;
  std::shared_ptr<const Estimated> estimated;
  std::map<std::string, std::string> settings = {};  // of its switches' options
  Json rows = Json::array();                         // its switches, each on top of those before it
  int64_t peak_bytes = 0;
  double step_time_s = 0.0, likelihood = 0.0;  // that it fits, as all commands judge it

  void take(std::shared_ptr<const Estimated> found) {
    estimated = std::move(found);
    const Plan plan = as_observed(estimated->plan);
    const auto lacks = estimated->lacks();
    peak_bytes = reports::peak_bytes(plan);
    step_time_s = plan.prediction.step_time_s;
    likelihood = plan.prediction.confidence.fits.value_or(lacks ? 0.0 : 1.0);
    if (lacks && lacks->constraint == "host memory") likelihood = 0.0;
  }
  bool safe() const { return likelihood >= MemoryMargin::kLikely; }
};

// Of "--dp 4 --execution loss=fused": {"--dp", " 4"} and {"--execution loss", "=fused"}.
std::map<std::string, std::string> settings_of(const std::string& options) {
  std::map<std::string, std::string> settings;
  const std::vector<std::string> words = split_at(options, ' ');
  for (size_t i = 0; i + 1 < words.size(); i += 2) {
    const std::string both = words[i] + " " + words[i + 1];
    const size_t end = std::min(both.find('='), both.size());
    const size_t name = end < both.size() ? end : words[i].size();
    settings[both.substr(0, name)] = both.substr(name);
  }
  return settings;
}

// The rows for `now`. Twice as many ranks of a kind are half as many data ranks, except for experts.
Json rows_for(const State& now) {
  const SearchProblem& problem = now.estimated->resolved->problem;
  const Layout& l = now.estimated->plan.layout;
  Json rows = Json::array();
  for (Json row : memory_switches(problem)) {
    std::string option = row["option"];
    const bool doubles = row.contains("doubles"), divides = doubles && option != "--ep";
    if (divides && l.data % 2 != 0) continue;
    if (doubles) {
      const int64_t degree = 2 * to_json(l)[row["doubles"]].get<int64_t>();
      row["bounds"] = {{option.substr(2), {degree}}};
      option += fmt::format(" {}", degree);
    }
    if (divides) option += fmt::format(" --dp {}", l.data / 2), row["bounds"]["dp"] = {l.data / 2};
    if (row.value("doubles", "") == "context" && l.context == 1) {
      const auto method = problem.framework->abilities.context_methods.front();
      row["bounds"]["cp_method"] = {enum_name(method)};
      if (method != l.context_method) option += " --cp-method " + enum_name(method);
    }
    row["option"] = option;
    rows.push_back(std::move(row));
  }
  return rows;
}

// The row of a switch applied to `now`, which it changes; null if the switch saves less than 0.5 %.
Json switched(const Json& known, State& now) {
  Json row = known;
  for (const char* merged : {"request", "bounds", "adapts", "doubles", "quiet"}) row.erase(merged);
  try {
    State next{request_with(known, now.request), nullptr, now.settings, now.rows};
    next.take(std::make_shared<const Estimated>(estimate(next.request)));
    const auto& [refusal, lacks] = std::pair(next.estimated->refusal, next.estimated->lacks());
    if (now.peak_bytes - next.peak_bytes < now.peak_bytes / 200) return nullptr;  // too little to show
    row.update({{"saved_bytes", now.peak_bytes - next.peak_bytes}, {"fits", next.estimated->fits()}});
    row.update({{"added_s", next.step_time_s - now.step_time_s}, {"likelihood", next.likelihood}});
    row.update({{"peak_bytes", next.peak_bytes}, {"step_time_s", next.step_time_s}});
    if (refusal) row["refusal"] = refusal->reason;
    if (lacks && lacks->constraint == "host memory")
      row["refusal"] = describe_lack(*lacks, next.estimated->plan.cluster);
    for (const auto& [name, value] : settings_of(row["option"])) next.settings[name] = value;
    if (!row.contains("refusal")) next.rows.push_back(row), now = std::move(next);
  } catch (const UserError& error) {
    row["refusal"] = error.problems().front().found;
  }
  return row.contains("refusal") && known.contains("quiet") ? Json() : row;
}

// Likely to fit, then the fastest, of equally fast ones that with fewer switches. Else the likeliest, then
// the one that takes least.
bool is_better(const State& one, const State& other) {
  if (!one.safe() || !other.safe())
    return std::pair(one.likelihood, other.peak_bytes) > std::pair(other.likelihood, one.peak_bytes);
  const double more = std::clamp(double(one.rows.size()) - double(other.rows.size()), -1.0, 1.0);
  return one.step_time_s < (1.0 - more * kEqualTimes) * other.step_time_s;
}

// Whether a row can be added: another framework comes first, and each option is set once, unless it is
// doubled again.
bool is_open(const Json& row, const State& now) {
  const std::string option = row["option"];
  if (row.contains("doubles") || now.rows.empty()) return true;
  return !option.starts_with("--framework") && !any_of(settings_of(option), [&](const auto& setting) {
    return now.settings.contains(setting.first);
  });
}

// Adds switches with these changes of training to combinations that may not fit, one more in each round.
State best_of(const State& start, const std::vector<std::string>& changes) {
  constexpr size_t kKept = 8;
  State best = start;
  std::set<std::map<std::string, std::string>> seen;
  for (std::vector<State> round{start}; !round.empty();) {
    std::vector<State> next;
    for (const State& from : round)
      for (const Json& row : rows_for(from)) {
        State state = from;
        if (!contains(changes, row["changes"].get<std::string>()) || !is_open(row, from)) continue;
        const Json found = switched(row, state);
        if (found.is_null() || found.contains("refusal") || !seen.insert(state.settings).second) continue;
        if (is_better(state, best)) best = state;
        if (!state.safe()) next.push_back(std::move(state));
      }
    std::erase_if(next, [&](const State& s) { return best.safe() && s.step_time_s >= best.step_time_s; });
    sort_by(next, [](const State& s) { return s.step_time_s * double(s.peak_bytes); });
    next.resize(std::min(next.size(), kKept));
    round = std::move(next);
  }
  return best;
}

// Without the switches that it does not need.
State without_needless(const State& start, State best) {
  for (size_t left_out = best.rows.size(); left_out-- > 0;) {
    State fewer = start;
    for (size_t i = 0; i < best.rows.size(); ++i)
      for (const Json& row : rows_for(fewer))
        if (i != left_out && row["option"] == best.rows[i]["option"]) switched(row, fewer);
    if (fewer.rows.size() + 1 == best.rows.size() && is_better(fewer, best)) best = fewer;
  }
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
  const double odds = s["likelihood"];
  return fmt::format("saves {}, {}{}: {} ({})", format_bytes(s["saved_bytes"]), time,
                     odds > 1.0 - MemoryMargin::kLikely ? ", fits: " + describe_likelihood(odds) : "",
                     written, option);
}

}  // namespace

Json memory_switches(const SearchProblem& problem) {
  const std::map<std::string, std::string> none,
      &words = problem.framework ? problem.framework->switches : none;
  Json rows = Json::array();
  for (Json row : parse_json(std::string(memory_switch_files().front().second), "memory_switches.json")) {
    const bool adapts = problem.training.adapts();
    const std::string option = row["option"];
    const auto otherwise = words.find("with adapters: " + option);
    const auto word = adapts && otherwise != words.end() ? otherwise : words.find(option);
    if (word == words.end() || word->second.empty() || row.value("adapts", adapts) != adapts) continue;
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
  fields["bounds"].merge_patch(row.value("bounds", Json::object()));
  auto changed = from_json<PlanRequest>(fields, row.at("option"));
  changed.model = request.model;
  changed.cluster = request.cluster;
  return changed;
}

Json memory_doctor(const PlanRequest& request, const Estimated& now) {
  State start{request_of(now.plan), nullptr};
  start.take({std::shared_ptr<void>(), &now});
  std::string options;
  for (const auto& [option, member] : {std::pair(" --memory ", &PlanRequest::memory),
                                       {" --profile ", &PlanRequest::profile},
                                       {" --kernels ", &PlanRequest::kernels}}) {
    start.request.*member = request.*member;
    if (!(request.*member).empty()) options += option + shell_word(request.*member);
  }
  Json alone = Json::array();
  for (const Json& row : rows_for(start)) {
    State next = start;
    if (Json found = switched(row, next); !found.is_null()) alone.push_back(std::move(found));
  }
  sort_by(alone, [](const Json& s) { return s.contains("refusal") ? 0.0 : -double(s["saved_bytes"]); });
  State best = start;
  std::vector<std::string> allowed;
  for (const char* changes : {"nothing", "states", "weights"}) {
    allowed.emplace_back(changes);
    if (best.safe()) break;
    if (State found = best_of(start, allowed); is_better(found, best)) best = std::move(found);
  }
  best = without_needless(start, std::move(best));
  for (const auto& [name, value] : best.settings) options += fmt::format(" {}{}", name, value);
  return {{"memory", memory_parts(now.plan)},
          {"device_bytes", now.plan.cluster.device.memory_bytes},
          {"alone", alone},
          {"together", best.rows},
          {"options", options}};
}

std::string describe_doctor(const Estimated& now, const Json& doctor) {
  if (doctor.at("alone").empty()) return "";
  std::string text;
  const std::string title = now.resolved->problem.framework->title;
  for (const auto& [heading, rows] : {std::pair("\nSWITCHES of " + title + ", each alone\n", doctor["alone"]),
                                      {"\nTOGETHER, each on top of those above\n", doctor["together"]}}) {
    text += rows.empty() ? "" : heading;
    for (const Json& s : rows) text += wrapped(describe_switch(s), "  - ");
  }
  if (doctor["together"].empty()) return text;
  const Json& last = doctor["together"].back();
  const double odds = last["likelihood"];
  const auto [verdict, more] = odds >= MemoryMargin::kLikely ? std::pair("It fits", "")
                               : last["fits"] ? std::pair("It may not fit", " Nothing here is likelier.")
                                              : std::pair("The least does not fit", " It takes more GPUs.");
  return text + wrapped(fmt::format("{} ({}): {} per GPU, {} a step.{} To see it: mpt-plan estimate --plan "
                                    "PLAN{}, of the PLAN that -o wrote.",
                                    verdict, describe_likelihood(odds), format_bytes(last["peak_bytes"]),
                                    format_seconds(last["step_time_s"]), more,
                                    doctor["options"].get<std::string>()));
}

}  // namespace mpt::planner
