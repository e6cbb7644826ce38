// SPDX-License-Identifier: Apache-2.0

// mpt-plan validate: the models against runs that others measured.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <thread>

#include "base/command_line.h"
#include "base/error.h"
#include "base/interruption.h"
#include "base/json.h"
#include "base/quantity.h"
#include "planner/commands/checked_runs.h"
#include "planner/commands/commands.h"
#include "planner/commands/constants.h"
#include "planner/commands/stoppable.h"
#include "reports/html.h"
#include "reports/scatter_plot.h"
#include "reports/table.h"

namespace mpt::planner {
namespace {

struct ValidateOptions {
  std::string file, html, family, set, calibration;
  bool json = false, quiet = false, streams = false, constants = false;
};

std::string percent(double x) { return fmt::format("{:.1f} %", 100.0 * x); }
std::string signed_percent(const std::optional<double>& x) {
  return x ? fmt::format("{:+.1f} %", 100.0 * *x) : "-";
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
                        {"unknown", reports::Align::left}});
  for (const Checked& c : all) {
    if (!c.prediction) {
      table.add_row(
          {c.run.id, "-", "-", "-", "-", "-", "-", "-", "-", "-", "skipped: " + c.skipped.substr(0, 120)});
      continue;
    }
    const RunPrediction& p = *c.prediction;
    table.add_row({c.run.id, c.measured_s() ? format_seconds(*c.measured_s()) : "-", predicted_seconds(c),
                   signed_percent(c.time_error()),
                   c.measured_gib() ? fmt::format("{:.1f}", *c.measured_gib())
                   : c.is_failure() ? "too much"
                                    : "-",
                   fmt::format("{:.1f}", p.peak_gib),
                   c.is_failure() ? (p.fits ? "ACCEPTED" : "refused") : signed_percent(c.memory_error()),
                   percent(p.breakdown.compute_s / p.step_s), percent(p.breakdown.collectives_s / p.step_s),
                   percent(p.breakdown.idle_s / p.step_s), fmt::format("{}", fmt::join(p.unknown, ", "))});
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

std::string failures_text(const Failures& f) {
  if (f.runs == 0) return "";
  constexpr size_t kMostNamed = 5;
  const size_t named = std::min(f.accepted.size(), kMostNamed), others = f.accepted.size() - named;
  return fmt::format("{} runs failed for lack of memory: {} of their layouts are refused{}{}{}\n", f.runs,
                     f.runs - int64_t(f.accepted.size()), named > 0 ? "; accepted: " : "",
                     fmt::join(f.accepted.begin(), f.accepted.begin() + ptrdiff_t(named), ", "),
                     others > 0 ? fmt::format(" and {} more (--json names all)", others) : "");
}

std::string ranges_text(const Ranges& r) {
  if (r.runs == 0) return "";
  return fmt::format(
      "{} of {} layout open: {} took a time within the predicted range, {} less, {} more; "
      "on average {} from it\n",
      r.runs == 1 ? "1 run leaves fields" : fmt::format("{} runs leave fields", r.runs),
      r.runs == 1 ? "its" : "their", r.within, r.faster, r.slower, percent(r.mean_distance));
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
          {*c.measured_s(), c.prediction->step_s, c.run.family,
           fmt::format("{}: {} measured, {} predicted, {}", c.run.id, format_seconds(*c.measured_s()),
                       format_seconds(c.prediction->step_s), signed_percent(c.time_error()))});
    if (c.memory_error())
      memory.points.push_back(
          {*c.measured_gib(), c.prediction->peak_gib, c.run.family,
           fmt::format("{}: {:.1f} GiB measured, {:.1f} predicted, {}", c.run.id, *c.measured_gib(),
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

bool wanted(const PublishedRun& run, const ValidateOptions& o) {
  return (o.family.empty() || run.family == o.family) && (o.set.empty() || run.set == o.set);
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

// Runs do not depend on each other: each thread takes the next one.
std::vector<Checked> check_all(const std::vector<PublishedRun>& runs, const ValidateOptions& o,
                               const Calibration& calibration) {
  const Stoppable stoppable;
  std::vector<std::optional<Checked>> found(runs.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < found.size() && !stop_requested(); i = next++) {
      if (wanted(runs[i], o)) found[i] = check_run(runs[i], calibration, o.streams);
    }
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

int run(const ValidateOptions& o) {
  const Calibration calibration =
      o.calibration.empty() ? shipped_calibration() : load_calibration(o.calibration);
  if (o.constants) return print_constants(calibration, o.json);
  if (o.file.empty())
    throw UserError(
        Problem{"RUNS", "missing", "a file of runs, or a folder of such", "see docs/validation.md"});
  const std::vector<Checked> all = check_all(published_runs(o.file), o, calibration);
  const auto skipped = std::count_if(all.begin(), all.end(), [](const Checked& c) { return !c.prediction; });
  if (o.json) {
    fmt::print("{}\n", report_json(all));
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
  command->add_option("runs", o->file,
                      "File with a run in each line, or a folder of such files (docs/validation.md)");
  command->add_option("--family", o->family, "Only runs of this family");
  command->add_option("--set", o->set,
                      "Only runs of this set: published, other, failed, blind, wide or community");
  add_output(*command, "--html", o->html, "Write a page with measured against predicted to this file");
  command
      ->add_option("--calibration", o->calibration, "File with other values for constants of the cost model")
      ->type_name("FILE");
  command->add_flag("--constants", o->constants,
                    "Print the constants of the cost model and the ranges in which they are plausible");
  command->add_flag("--summary", o->quiet, "Leave the table of runs out");
  command->add_flag("--streams", o->streams, "Simulate each step operator by operator, which takes longer");
  command->add_flag("--json", o->json, "Print JSON instead of tables");
  command->footer("Examples:\n  mpt-plan validate reports/validation/records --set published --summary");
  return [o] { return run(*o); };
}

}  // namespace mpt::planner
