// SPDX-License-Identifier: Apache-2.0

// mpt-plan validate: the models against runs that others measured.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/interruption.h"
#include "base/json.h"
#include "base/quantity.h"
#include "planner/commands/commands.h"
#include "planner/explain/evidence.h"
#include "planner/stoppable.h"
#include "planner/validate/predict_run.h"
#include "planner/validate/published_run.h"
#include "planner/validate/resolved_run.h"
#include "planner/validate/statistics.h"
#include "reports/html.h"
#include "reports/scatter_plot.h"
#include "reports/table.h"

namespace mpt::planner {
namespace {

struct ValidateOptions {
  std::string file, html, family, calibration;
  bool json = false, quiet = false, streams = false, constants = false, resolve = false, records = false;
};

struct Checked {  // NOLINT(bugprone-exception-escape): moving JSON throws nothing
  RunRecord run;
  std::string conditions;  // all of the record but its name, its source and what was measured
  std::optional<RunPrediction> prediction;
  std::string skipped;  // why there is none
  Json resolved;        // what was read, where that was asked for

  std::optional<double> time_error() const {
    if (!prediction || !run.measured_s || is_range()) return std::nullopt;
    return prediction->step_s / *run.measured_s - 1.0;
  }
  std::optional<double> memory_error() const {
    if (!prediction || !run.measured_gib || is_range()) return std::nullopt;
    return prediction->peak_gib / *run.measured_gib - 1.0;
  }
  bool is_failure() const { return prediction && run.out_of_memory; }
  /// The source leaves fields of the layout open, and they matter.
  bool is_range() const { return prediction && prediction->least_s < prediction->most_s; }
};

std::string first_line(std::string text) {
  text.resize(std::min(text.find('\n'), text.size()));
  return text;
}

Checked check(const Json& json, size_t index, const Calibration& calibration, const ValidateOptions& o) {
  Checked checked;
  const std::string where = fmt::format("/{}", index);
  if (json.is_object() && json.contains("id") && json["id"].is_string())
    checked.run.id = json["id"].get<std::string>().substr(0, 400);
  else
    checked.run.id = where;
  try {
    const WordTrace trace;
    checked.run = read_run_record(json, where);
    Json conditions = json;
    for (const char* other : {"id", "source", "measured", "notes"}) conditions.erase(other);
    checked.conditions = conditions.dump();
    checked.prediction = predict_run(checked.run, calibration, o.streams);
    if (o.resolve) checked.resolved = resolved_run(checked.run, *checked.prediction, trace);
  } catch (const std::exception& error) {
    // One record that this program cannot handle must not cost the others.
    checked.skipped = first_line(error.what());
  }
  return checked;
}

Checked check(const PublishedRun& published) {
  Checked checked;
  RunRecord& run = checked.run;
  run.id = published.id;
  run.family = published.family;
  run.global_batch = published.request.global_batch;
  run.sequence = published.request.sequence;
  Json conditions = to_json(published.request);
  checked.conditions = conditions.dump();
  try {
    checked.prediction = predict(published);
    const RunPrediction& p = *checked.prediction;
    run.model = p.model;
    run.gpu = p.cluster.device.name;
    run.gpus = p.layout.ranks();
    run.precision = enum_name(p.layout.precision);
    if (published.unmodelled.seconds.empty()) run.measured_s = published.observed.seconds;
    if (!published.unmodelled.gib.empty()) return checked;
    run.measured_gib = published.observed.gib;
    run.out_of_memory = published.observed.out_of_memory;
  } catch (const std::exception& error) {
    checked.skipped = first_line(error.what());
  }
  return checked;
}

using Group = std::map<std::string, std::vector<const Checked*>>;

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

std::string percent(double x) { return fmt::format("{:.1f} %", 100.0 * x); }
std::string signed_percent(const std::optional<double>& x) {
  return x ? fmt::format("{:+.1f} %", 100.0 * *x) : "-";
}

// Step times closer than this are alike: about what equal runs differ by.
constexpr double kAlike = 0.02;

Repetition repetition_of(const std::vector<Checked>& all) {
  std::map<std::string, std::vector<double>> measured;
  for (const Checked& c : all) {
    if (c.run.measured_s) measured[c.conditions].push_back(*c.run.measured_s);
  }
  std::vector<std::vector<double>> values;
  for (auto& [conditions, seconds] : measured) values.push_back(std::move(seconds));
  return planner::repetition_of(values);
}

// Runs of one model on one GPU, ten and more: whether the planner would put them in the measured order.
struct RankCorrelation {
  std::string name;
  int runs = 0;
  double of_step_times = 0.0, of_device_seconds_per_token = 0.0;
  double apart = 0.0;               // of step times that are not alike
  std::optional<double> reachable;  // of step times, by predictions without error; where runs were repeated
};
std::vector<RankCorrelation> rank_correlations(const std::vector<Checked>& all) {
  struct Pairs {
    std::vector<std::pair<double, double>> steps, per_token;
  };
  std::map<std::string, Pairs> groups;
  for (const Checked& c : all) {
    if (!c.time_error()) continue;
    // Seconds of a device per token: runs of different batches and sizes compare.
    const double work = double(c.run.global_batch) * double(c.run.sequence) / double(c.run.gpus);
    Pairs& pairs = groups[fmt::format("{} ({} layers x {}) on {}", c.run.model.name, c.run.model.layers,
                                      c.run.model.hidden, c.run.gpu)];
    pairs.steps.emplace_back(*c.run.measured_s, c.prediction->step_s);
    pairs.per_token.emplace_back(*c.run.measured_s / work, c.prediction->step_s / work);
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

std::string predicted_seconds(const Checked& c) {
  const RunPrediction& p = *c.prediction;
  return c.is_range() ? fmt::format("{} to {}", format_seconds(p.least_s), format_seconds(p.most_s))
                      : format_seconds(p.step_s);
}

reports::Table run_table(const std::vector<Checked>& all) {
  reports::Table table({{"run", reports::Align::left},
                        {"measured"},
                        {"predicted"},
                        {"error"},
                        {"GiB"},
                        {"predicted"},
                        {"error"},
                        {"compute"},
                        {"collectives"},
                        {"idle"},
                        {"filled in", reports::Align::left}});
  for (const Checked& c : all) {
    if (!c.prediction) {
      table.add_row(
          {c.run.id, "-", "-", "-", "-", "-", "-", "-", "-", "-", "skipped: " + c.skipped.substr(0, 120)});
      continue;
    }
    const RunPrediction& p = *c.prediction;
    std::string filled;
    for (const std::string& f : p.filled) filled += (filled.empty() ? "" : ", ") + f;
    table.add_row({c.run.id, c.run.measured_s ? format_seconds(*c.run.measured_s) : "-", predicted_seconds(c),
                   signed_percent(c.time_error()),
                   c.run.measured_gib    ? fmt::format("{:.1f}", *c.run.measured_gib)
                   : c.run.out_of_memory ? "too much"
                                         : "-",
                   fmt::format("{:.1f}", p.peak_gib),
                   c.is_failure() ? (p.fits ? "ACCEPTED" : "refused") : signed_percent(c.memory_error()),
                   percent(p.breakdown.compute_s / p.step_s), percent(p.breakdown.collectives_s / p.step_s),
                   percent(p.breakdown.idle_s / p.step_s), filled});
  }
  return table;
}

reports::Table summary_table(const char* title, const Group& groups) {
  reports::Table table({{title, reports::Align::left},
                        {"runs"},
                        {"mean"},
                        {"median"},
                        {"worst"},
                        {"with memory"},
                        {"mean"},
                        {"worst"}});
  for (const auto& [name, runs] : groups) {
    const ErrorSummary t = time_summary(runs), m = memory_summary(runs);
    table.add_row({name, std::to_string(t.count), percent(t.mean), percent(t.median), percent(t.worst),
                   m.count > 0 ? std::to_string(m.count) : "-", m.count > 0 ? percent(m.mean) : "-",
                   m.count > 0 ? percent(m.worst) : "-"});
  }
  return table;
}

struct Groups {
  Group all, family, gpu, precision;
};
Groups groups_of(const std::vector<Checked>& all) {
  Groups g;
  for (const Checked& c : all) {
    if (!c.prediction || c.is_failure()) continue;
    g.all["all"].push_back(&c);
    g.family[c.run.family].push_back(&c);
    g.gpu[c.run.gpu].push_back(&c);
    g.precision[c.run.precision].push_back(&c);
  }
  return g;
}

// Runs that failed for lack of memory: whether the planner would have refused their layouts.
struct Failures {
  int64_t runs = 0;
  std::vector<std::string> accepted;
};
Failures failures_of(const std::vector<Checked>& all) {
  Failures found;
  for (const Checked& c : all) {
    if (!c.is_failure()) continue;
    ++found.runs;
    if (c.prediction->fits) found.accepted.push_back(c.run.id);
  }
  return found;
}

std::string failures_text(const Failures& f) {
  if (f.runs == 0) return "";
  constexpr size_t kMostNamed = 5;
  const size_t named = std::min(f.accepted.size(), kMostNamed), others = f.accepted.size() - named;
  return fmt::format("{} runs failed for lack of memory: {} of their layouts are refused{}{}{}\n", f.runs,
                     f.runs - int64_t(f.accepted.size()), named > 0 ? "; accepted: " : "",
                     fmt::join(f.accepted.begin(), f.accepted.begin() + ptrdiff_t(named), ", "),
                     others > 0 ? fmt::format(" and {} more (--json names all)", others) : "");
}

// Runs of which the source leaves fields open: whether the measured time lies within what they may take.
struct Ranges {
  int64_t runs = 0, within = 0, faster = 0, slower = 0;
};
Ranges ranges_of(const std::vector<Checked>& all) {
  Ranges found;
  for (const Checked& c : all) {
    if (!c.is_range() || !c.run.measured_s) continue;
    const bool faster =
        *c.run.measured_s<c.prediction->least_s, slower = *c.run.measured_s> c.prediction->most_s;
    ++found.runs;
    ++(faster ? found.faster : slower ? found.slower : found.within);
  }
  return found;
}

std::string ranges_text(const Ranges& r) {
  if (r.runs == 0) return "";
  return fmt::format(
      "{} runs leave fields of their layout open: {} took a time within the predicted range, {} less, {} "
      "more\n",
      r.runs, r.within, r.faster, r.slower);
}

reports::Table order_table(const std::vector<Checked>& all) {
  reports::Table order({{"runs of one model on one GPU", reports::Align::left},
                        {"runs"},
                        {"Kendall tau"},
                        {"per token"},
                        {"apart"},
                        {"reachable"}});
  for (const RankCorrelation& r : rank_correlations(all)) {
    order.add_row({r.name, std::to_string(r.runs), fmt::format("{:.2f}", r.of_step_times),
                   fmt::format("{:.2f}", r.of_device_seconds_per_token), fmt::format("{:.2f}", r.apart),
                   r.reachable ? fmt::format("{:.2f}", *r.reachable) : "-"});
  }
  return order;
}

std::string html_page(const std::vector<Checked>& all) {
  reports::ScatterPlot time{"Step time, seconds", "measured", "predicted", {}},
      memory{"Peak memory, GiB", "measured", "predicted", {}};
  for (const Checked& c : all) {
    if (c.time_error())
      time.points.push_back(
          {*c.run.measured_s, c.prediction->step_s, c.run.family,
           fmt::format("{}: {} measured, {} predicted, {}", c.run.id, format_seconds(*c.run.measured_s),
                       format_seconds(c.prediction->step_s), signed_percent(c.time_error()))});
    if (c.memory_error())
      memory.points.push_back(
          {*c.run.measured_gib, c.prediction->peak_gib, c.run.family,
           fmt::format("{}: {:.1f} GiB measured, {:.1f} predicted, {}", c.run.id, *c.run.measured_gib,
                       c.prediction->peak_gib, signed_percent(c.memory_error()))});
  }
  const Groups g = groups_of(all);
  std::vector<std::pair<std::string, std::string>> sections;
  if (!time.points.empty()) sections.emplace_back("Step time", reports::to_svg(time));
  if (!memory.points.empty()) sections.emplace_back("Peak memory", reports::to_svg(memory));
  if (!g.all.empty()) {
    sections.emplace_back(
        "Errors", summary_table("family", g.family).html() + summary_table("GPU", g.gpu).html() +
                      summary_table("precision", g.precision).html() + summary_table("", g.all).html());
    sections.emplace_back("Order", order_table(all).html());
  }
  sections.emplace_back("Runs", run_table(all).html());
  return reports::static_page(
      "Predicted against measured",
      fmt::format("{} published runs. Dashed: a tenth above and below the measurement. {}", all.size(),
                  failures_text(failures_of(all))),
      sections);
}

Json json_of(const ErrorSummary& s) {
  return {{"runs", s.count}, {"mean", s.mean}, {"median", s.median}, {"worst", s.worst}};
}

Json run_json(const Checked& c, const std::vector<Evidence>& evidence) {
  Json run{{"id", c.run.id},
           {"measured_iter_time_s", nullptr},
           {"predicted_iter_time_s", nullptr},
           {"measured_peak_mem_gib", nullptr},
           {"predicted_peak_mem_gib", nullptr},
           {"filled", Json::array()},
           {"skipped", nullptr}};
  if (c.run.measured_s) run["measured_iter_time_s"] = *c.run.measured_s;
  if (c.run.measured_gib) run["measured_peak_mem_gib"] = *c.run.measured_gib;
  if (!c.prediction) {
    run["skipped"] = c.skipped;
    return run;
  }
  const RunPrediction& p = *c.prediction;
  const std::string& framework = p.layout.execution.framework;
  const bool experts = c.run.model.moe.has_value();
  run["predicted_iter_time_s"] = p.step_s;
  run["predicted_peak_mem_gib"] = p.peak_gib;
  run["filled"] = p.filled;
  run["family"] = c.run.family;
  run["framework"] = framework;
  run["experts"] = experts;
  run["layout"] = layout_name(p.layout);
  run["fits"] = p.fits;
  if (c.is_range()) run["range_s"] = {p.least_s, p.most_s};
  run["limit_bytes"] = p.limit_bytes;
  run["safe_bytes"] = memory_margin(framework, experts, evidence).safe_bytes(p.limit_bytes);
  run["out_of_memory"] = c.run.out_of_memory;
  for (const RankMemory& m : p.memory) run["memory"].push_back(to_json(m));
  run["compute_s"] = p.breakdown.compute_s;
  run["collective_s"] = p.breakdown.collectives_s;
  run["idle_s"] = p.breakdown.idle_s;
  return run;
}

Json report_json(const std::vector<Checked>& all) {
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
  summary["ranges"] = {
      {"runs", ranges.runs}, {"within", ranges.within}, {"faster", ranges.faster}, {"slower", ranges.slower}};
  const Failures failures = failures_of(all);
  summary["out_of_memory"] = {{"runs", failures.runs}, {"accepted", failures.accepted}};
  return {{"runs", runs}, {"summary", summary}};
}

bool wanted(const Json& run, const std::string& family) {
  return family.empty() || (run.is_object() && run.contains("family") && run["family"] == family);
}

// Runs do not depend on each other: each thread takes the next one. `check_one` gives nothing for a run that
// was not asked for.
std::vector<Checked> check_all(size_t runs, const std::function<std::optional<Checked>(size_t)>& check_one) {
  const Stoppable stoppable;
  std::vector<std::optional<Checked>> found(runs);
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < found.size() && !stop_requested(); i = next++) found[i] = check_one(i);
  };
  std::vector<std::jthread> threads;
  for (int t = 1; t < default_threads(); ++t) threads.emplace_back(work);
  work();
  threads.clear();
  std::vector<Checked> all;
  for (auto& checked : found) {
    if (checked) all.push_back(std::move(*checked));
  }
  return all;
}

std::vector<Checked> check_records(const ValidateOptions& o, const Calibration& calibration) {
  const Json file = load_json(o.file);
  if (!file.is_array())
    throw UserError(Problem{o.file, detail::describe_json(file), "a list of runs", "see docs/validation.md"});
  return check_all(file.size(), [&](size_t i) {
    return wanted(file[i], o.family) ? std::optional(check(file[i], i, calibration, o)) : std::nullopt;
  });
}

// A file of JSON Lines, or all such files of a folder.
std::vector<PublishedRun> published_runs(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return load_published_runs(path);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  std::vector<PublishedRun> runs;
  for (const std::string& file : files) {
    for (PublishedRun& run : load_published_runs(file)) runs.push_back(std::move(run));
  }
  return runs;
}

// Estimates of requests, as everybody gets them.
std::vector<Checked> check_requests(const ValidateOptions& o) {
  for (const auto& [option, given] : {std::pair{"--calibration", !o.calibration.empty()},
                                      {"--streams", o.streams},
                                      {"--resolve", o.resolve}}) {
    if (given)
      throw UserError(Problem{option, "with --records", "one or the other",
                              "records of requests are estimated as mpt-plan estimate does"});
  }
  const std::vector<PublishedRun> runs = published_runs(o.file);
  return check_all(runs.size(), [&](size_t i) {
    return o.family.empty() || runs[i].family == o.family ? std::optional(check(runs[i])) : std::nullopt;
  });
}

// The constants of the cost model, as Calibration describes them.
class ConstantLister {
 public:
  explicit ConstantLister(const Calibration& values) : values_(values) {}
  void field(const char* name, double Calibration::*member, const char* meaning, const FieldRule& rule) {
    list_[name] = {
        {"value", values_.*member}, {"least", rule.minimum}, {"most", rule.maximum}, {"meaning", meaning}};
  }
  const Json& list() const { return list_; }

 private:
  const Calibration& values_;
  Json list_ = Json::object();
};

int print_constants(const Calibration& calibration, bool json) {
  ConstantLister lister(calibration);
  Calibration::describe(lister);
  if (json) {
    fmt::print("{}\n", lister.list().dump(1));
    return kExitOk;
  }
  reports::Table table({{"constant", reports::Align::left},
                        {"value"},
                        {"plausible", reports::Align::left},
                        {"meaning", reports::Align::left}});
  for (const auto& [name, c] : lister.list().items()) {
    const auto number = [&c = c](const char* key) { return fmt::format("{:.4g}", c[key].get<double>()); };
    table.add_row(
        {name, number("value"), number("least") + " to " + number("most"), c["meaning"].get<std::string>()});
  }
  fmt::print("{}", table.text());
  return kExitOk;
}

// One line for each run.
void print_resolved(const std::vector<Checked>& all, const std::string& file) {
  for (const Checked& c : all) {
    Json line{{"id", c.run.id}, {"file", file}};
    if (c.prediction)
      line.update(c.resolved);
    else
      line["skipped"] = c.skipped;
    fmt::print("{}\n", json_text(line));
  }
}

int run(const ValidateOptions& o) {
  check_distinct_files({{"RUNS", o.file}, {"--calibration", o.calibration}}, {{"--html", o.html}});
  if (!o.html.empty()) check_writable(o.html, "--html");
  const Calibration calibration =
      o.calibration.empty() ? kCalibration : from_json<Calibration>(load_json(o.calibration), o.calibration);
  if (o.constants) return print_constants(calibration, o.json);
  if (o.file.empty())
    throw UserError(Problem{"RUNS", "missing", "a file with a list of runs", "see docs/validation.md"});
  const std::vector<Checked> all = o.records ? check_requests(o) : check_records(o, calibration);
  const auto skipped = std::count_if(all.begin(), all.end(), [](const Checked& c) { return !c.prediction; });
  if (o.resolve) {
    print_resolved(all, std::filesystem::path(o.file).filename().string());
  } else if (o.json) {
    fmt::print("{}\n", report_json(all).dump(1));
  } else {
    if (!o.quiet) fmt::print("{}\n", run_table(all).text());
    const Groups g = groups_of(all);
    for (const reports::Table& table :
         {summary_table("family", g.family), summary_table("GPU", g.gpu),
          summary_table("precision", g.precision), summary_table("", g.all), order_table(all)}) {
      if (!table.empty()) fmt::print("{}\n", table.text());
    }
    fmt::print("{}{}{} {}, {} skipped\n", ranges_text(ranges_of(all)), failures_text(failures_of(all)),
               all.size(), all.size() == 1 ? "run" : "runs", skipped);
  }
  if (!o.html.empty()) {
    write_file_atomically(o.html, html_page(all));
    if (!o.json) fmt::print("wrote {}\n", o.html);
  }
  return skipped > 0 ? kExitUserError : kExitOk;
}

}  // namespace

std::function<int()> add_validate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("validate", "Predict runs that others measured, and compare");
  auto o = std::make_shared<ValidateOptions>();
  command->add_option("runs", o->file, "File with a list of runs (docs/validation.md)");
  command->add_option("--family", o->family, "Only runs of this family");
  command->add_option("--html", o->html, "Write a page with measured against predicted to this file");
  command->add_option("--calibration", o->calibration,
                      "File with other values for constants of the cost model");
  command->add_flag("--constants", o->constants,
                    "Print the constants of the cost model and the ranges in which they are plausible");
  command->add_flag("--summary", o->quiet, "Leave the table of runs out");
  command->add_flag("--streams", o->streams, "Simulate each step operator by operator, which takes longer");
  command->add_flag("--records", o->records,
                    "The runs are requests in JSON Lines, one file or a folder of them (docs/validation.md)");
  command->add_flag("--resolve", o->resolve, "Print what is read from each run, as JSON lines");
  command->add_flag("--json", o->json, "Print JSON instead of tables");
  command->footer("Examples:\n  mpt-plan validate reports/validation/published_runs.json --summary");
  return [o] { return run(*o); };
}

}  // namespace mpt::planner
