// SPDX-License-Identifier: Apache-2.0
#include "planner/observe/observed_run.h"

#include "base/files.h"
#include "base/json.h"
#include "base/quantity.h"
#include "core/short_form.h"
#include "planner/diagnose/judge.h"
#include "planner/diagnose/run_log.h"

namespace mpt::planner {
namespace {

constexpr const char* kOutOfMemory = "oom";
constexpr const char* kForm = "LAYOUT=FIGURES, such as 'tp2 pp8 mbs1=28.1s,61GiB' or 'tp2 pp4 mbs2=oom'";

// Of the journal that mpt-plan tune writes, or the begin of such a line.
bool is_row(const std::string& line) {
  constexpr std::string_view kBegin = "{\"layout\":";
  return !line.empty() && kBegin.starts_with(line.substr(0, kBegin.size()));
}

// A short form contains equals signs; the last one separates it from the figures.
ObservedRun run_of_line(const std::string& line, const std::string& where) {
  if (is_row(line)) {
    const std::optional<Json> json = json_of(line);
    if (json) return from_json<ObservedRun>(*json, where);
    refuse_input(where, "'" + line.substr(0, 60) + "', which is no whole JSON",
                 "a run as mpt-plan tune writes it", "delete the line: the other runs stay");
  }
  const size_t equals = line.rfind('=');
  ObservedRun run;
  if (equals != std::string::npos) {
    run.layout = std::string(without_blanks(line.substr(0, equals)));
    run.measured = std::string(without_blanks(line.substr(equals + 1)));
  }
  if (run.layout.empty() || run.measured.empty())
    refuse_input(where, "'" + line.substr(0, 60) + "'", kForm, "put both parts in one word, in quotes");
  return run;
}

// Whether the first line that is neither empty nor a comment is a run.
bool has_runs(const std::vector<std::string>& lines) {
  const auto said = find_if(lines, [](const std::string& line) {
    const std::string text = std::string(without_blanks(line));
    return !text.empty() && text.front() != '#';
  });
  return said != lines.end() &&
         (is_row(*said) || (is_short_form(*said) && said->find('=') != std::string::npos));
}

bool is_unit(const std::string& text, std::initializer_list<const char*> units) {
  return any_of(units, [&](const char* unit) { return text.ends_with(unit); });
}

MeasuredFigures figures_of_log(const std::string& file, const Plan& plan) {
  const MeasuredRun log = read_run_log(read_file(file), file, plan);
  MeasuredFigures figures;
  if (log.step_time_s > 0.0) figures.seconds = log.step_time_s;
  if (log.peak_bytes > 0) figures.bytes = log.peak_bytes;
  figures.out_of_memory =
      !figures.seconds && any_of(log.troubles, [](const Trouble& t) { return t.out_of_memory; });
  if (figures.seconds || figures.out_of_memory) return figures;
  refuse_input(file, "no step times", "a log with steps, or of memory that ran out",
               "give the step time itself, such as =28.1s");
}

std::optional<Layout> known_layout(const std::string& form, const std::vector<Candidate>& known) {
  const std::string parts = sorted_parts(form);
  for (const Candidate& c : known)
    if (sorted_parts(layout_name(c.estimate.layout)) == parts) return c.estimate.layout;
  return std::nullopt;
}

// The request of the run: the current one with the run's settings.
PlanRequest request_of_run(const ObservedRun& run, const PlanRequest& asked) {
  PlanRequest request = asked;
  request.observed.clear();
  request.bounds = {};
  request.layout.reset();
  if (!run.model.name.empty()) request.model = run.model;
  if (!run.cluster.name.empty()) request.cluster = run.cluster;
  if (!run.framework.empty()) request.framework = run.framework;
  if (run.precision) request.precision = run.precision;
  if (run.gpus > 0 || !run.cluster.name.empty()) request.gpus = run.gpus;
  if (run.global_batch > 0) request.global_batch = run.global_batch;
  if (run.sequence > 0) request.sequence = run.sequence;
  request.memory.clear();
  request.memory_margin = "0";
  return request;
}

Layout layout_of_run(const ObservedRun& run, PlanRequest request, const std::vector<Candidate>& known) {
  if (run.exact) return *run.exact;
  if (const auto layout = known_layout(run.layout, known)) return *layout;
  const ShortForm form = parse_short_form(run.layout, "--observed");
  request.bounds = form.bounds;
  if (!form.recompute_modules.empty()) request.recompute_modules = form.recompute_modules;
  return form.complete(layout_to_estimate(*resolve(request)));
}

// Runs on other devices or links, or of other software, are no evidence here.
std::optional<Problem> unlike(const SearchProblem& run, const SearchProblem& problem) {
  const auto other = [](const char* what, const std::string& ran, const std::string& asked,
                        const char* remedy) {
    return Problem{"--observed", fmt::format("a run {} {}", what, ran), asked, remedy};
  };
  const ClusterSpec &ran = run.cluster, &asked = problem.cluster;
  const auto link = [](const ClusterSpec& c) { return c.levels.empty() ? LinkLevel{} : c.levels.front(); };
  if (ran.device != asked.device || ran.devices_per_node != asked.devices_per_node ||
      link(ran).bandwidth_bytes_per_s != link(asked).bandwidth_bytes_per_s)
    return other("on", ran.name, "nodes like those of " + asked.name,
                 "plan without --request, or take the run out of its \"observed\"");
  const std::string &software = run.execution.framework, &wanted = problem.execution.framework;
  if (software == wanted) return std::nullopt;
  return other("of", software, wanted, "name the framework that ran, or take the run out of \"observed\"");
}

ObservedRun complete(ObservedRun run, const Estimated& predicted, const PlanRequest& request) {
  const SearchProblem& problem = predicted.resolved->problem;
  const PlanRequest there = portable(request, problem);
  run.exact = predicted.plan.layout;
  run.model = there.model;
  run.cluster = there.cluster;
  run.framework = request.framework;
  run.precision = problem.precision;
  run.gpus = request.gpus;
  run.global_batch = problem.workload.global_batch;
  run.sequence = problem.workload.sequence;
  return run;
}

}  // namespace

MeasuredFigures parse_figures(const std::string& text, const std::string& where, const Plan& plan) {
  if (is_there(text)) return figures_of_log(text, plan);
  MeasuredFigures figures;
  for (const std::string& part : split_at(text, ',')) {
    const std::string word = std::string(without_blanks(part));
    if (word == kOutOfMemory || word == "OOM")
      figures.out_of_memory = true;
    else if (is_unit(word, {"iB", "MB", "GB", "TB"}) || (is_unit(word, {"B"}) && !is_unit(word, {"/B"})))
      figures.bytes = parse_bytes(word, where);
    else
      figures.seconds = parse_measurement(word, where, plan).step_time_s;
  }
  if (const bool ran = figures.seconds || figures.bytes; ran == figures.out_of_memory)
    refuse_input(where, "'" + text + "'", "a step time, memory, or both; or oom alone",
                 "a run that ran out of memory has no step: leave its figures out");
  return figures;
}

std::string figures_text(const MeasuredFigures& figures) {
  if (figures.out_of_memory) return kOutOfMemory;
  std::string text = figures.seconds ? fmt::format("{}s", *figures.seconds) : "";
  if (figures.bytes) text += fmt::format("{}{}B", text.empty() ? "" : ",", *figures.bytes);
  return text;
}

std::vector<ObservedRun> read_observed(const std::string& word, const std::string& option,
                                       const std::string& request_file) {
  if (!is_there(word)) return {run_of_line(word, option)};
  const std::vector<std::string> lines = split_at(read_file(word), '\n');
  std::vector<ObservedRun> runs;
  if (!has_runs(lines)) {
    if (request_file.empty())
      refuse_input(option, word + " does not say which layout ran", "LAYOUT=" + word,
                   "or give the plan that ran: --request plan.json");
    ObservedRun& run = runs.emplace_back();
    run.exact = load_plan(request_file).layout;
    run.layout = layout_name(*run.exact);
    run.measured = word;
    return runs;
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string line = std::string(without_blanks(lines[i]));
    if (line.empty() || line.front() == '#') continue;
    const std::string where = fmt::format("{} at line {}", word, i + 1);
    if (i + 1 == lines.size() && is_row(line) && !json_of(line))
      warn(fmt::format("mpt-plan: note: {} is cut off, and left out: whoever wrote it was stopped", where));
    else
      runs.push_back(run_of_line(line, where));
  }
  return runs;
}

std::string drop_unlike_runs(Resolved& resolved) {
  const size_t dropped = std::erase_if(resolved.request.observed, [&](const ObservedRun& run) {
    return unlike(resolve(request_of_run(run, resolved.request))->problem, resolved.problem).has_value();
  });
  if (dropped == 0) return "";
  return fmt::format("{} observed run{} of other nodes or software: nothing here follows from {}.", dropped,
                     dropped == 1 ? " is" : "s are", dropped == 1 ? "it" : "them");
}

Observation observation_of(const ObservedRun& run, const Resolved& resolved,
                           const std::vector<Candidate>& known) {
  PlanRequest request = request_of_run(run, resolved.request);
  request.layout = layout_of_run(run, request, known);
  Observation o{run, {}, estimate(request)};
  if (auto problem = unlike(o.predicted.resolved->problem, resolved.problem))
    throw UserError(std::move(*problem));
  o.measured = parse_figures(run.measured, "--observed '" + run.layout + "'", o.predicted.plan);
  o.run = complete(run, o.predicted, request);
  o.run.layout = layout_name(o.predicted.plan.layout);
  o.run.measured = figures_text(o.measured);
  return o;
}

}  // namespace mpt::planner
