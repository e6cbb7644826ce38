// SPDX-License-Identifier: Apache-2.0
#include "planner/answer/diagnosed_run.h"

#include "base/json.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "core/bound_words.h"
#include "planner/answer/recommend.h"
#include "planner/diagnose/diagnose.h"
#include "planner/diagnose/judge.h"
#include "planner/diagnose/trouble.h"
#include "reports/table.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

// The best layout on the same cluster within `bounds`. It leaves the memory that published runs used, if any
// layout does, since nobody starts a run without a margin. Nothing if none fits.
std::optional<RankedLayout> best_within(const KnownPlan& known, const SearchBounds& bounds,
                                        const Watch& watch) {
  const PlanRequest request = request_again(known, bounds);
  const auto resolved = resolve(request);
  const auto best = plan_or_reason(resolved->problem, request, watch).plan;
  if (!best) return std::nullopt;
  if (const auto risk = memory_risk(*best, published_evidence())) {
    resolved->problem.memory_limit_bytes = risk->safe_bytes;
    const auto roomier = plan_or_reason(resolved->problem, request, watch).plan;
    if (roomier) return roomier->ranking.front();
  }
  return best->ranking.front();
}

Cause cause_of(const Plan& plan, double measured_s, const RankedLayout& best) {
  const std::vector<std::string> broken = broken_bounds(plan.request.bounds, best.layout);
  Cause cause;
  cause.name = "the layout";
  cause.evidence =
      fmt::format("{} is predicted at {}, {} of {} of memory; the plan at {}", layout_name(best.layout),
                  format_seconds(best.step_time_s), format_bytes(double(best.peak_bytes)),
                  format_bytes(double(plan.memory_limit_bytes)), format_seconds(plan.prediction.step_time_s));
  cause.change =
      fmt::format("plan again on this cluster{}{} and move to the new layout with the next checkpoint",
                  broken.empty() ? "" : " without ", joined(broken, " and "));
  // The share of the step that is saved is the predicted one. No more is gained than the time above that
  // prediction.
  const double as_predicted = measured_s - best.step_time_s * measured_s / plan.prediction.step_time_s;
  cause.seconds = std::min(as_predicted, measured_s - best.step_time_s);
  return cause;
}

// Doubts a step that is faster than every predicted layout and than nine in ten published runs.
std::string doubt_by_time(const Plan& plan, double measured_s, const RankedLayout& best) {
  const auto range = published_range(plan, published_evidence());
  const double least_s = plan.prediction.step_time_s * (range ? range->low : 1.0 - kWorthExplaining);
  if (measured_s >= least_s || measured_s > best.step_time_s) return "";
  return fmt::format(
      "That is faster than any layout that MPT knows for this job: the fastest, {}, is predicted at {}. "
      "Check the batch, the sequence length, the precision and the layout of the run.",
      layout_name(best.layout), format_seconds(best.step_time_s));
}

// Adds the gain of another layout as a cause, since the layout itself may be the cause. First within the
// limits of the plan's search; if that gains nothing, without them.
void add_better_layout(const KnownPlan& known, const Seek& seek, Diagnosis& diagnosis) {
  if (!seek.better_layout || lacks_prices(known)) return;
  const Plan& plan = known.plan;
  const size_t before = diagnosis.causes.size();
  const bool bounded = plan.request.bounds != SearchBounds{};
  if (const auto best = bounded ? best_within(known, plan.request.bounds, seek.watch) : std::nullopt)
    add_cause(diagnosis, cause_of(plan, diagnosis.measured_s, *best));
  if (diagnosis.causes.size() > before) return;
  if (const auto best = best_within(known, {}, seek.watch)) {
    add_cause(diagnosis, cause_of(plan, diagnosis.measured_s, *best));
    if (diagnosis.doubt.empty()) diagnosis.doubt = doubt_by_time(plan, diagnosis.measured_s, *best);
  }
}

// The plan's predicted shares, for a log that has only step times.
std::string expected_shares(const Plan& plan, bool explained) {
  std::string text =
      fmt::format("Predicted shares of the step: idle {}", format_percent(plan.prediction.bubble_share));
  for (const ExposedCommunication& e : plan.prediction.exposed)
    if (e.seconds > 0.0)
      text +=
          fmt::format(", {} {}", enum_name(e.kind), format_percent(e.seconds / plan.prediction.step_time_s));
  text += ".\n";
  if (!explained) return text;
  return text + "For causes within the step, run it with mpt-run --log, or time the kernels of one GPU.\n";
}

// Whether causes leave so much of the step unexplained that another measurement is needed.
bool leaves_open(const Diagnosis& d, const MeasuredRun& run) {
  return std::abs(d.unexplained_s) / d.measured_s > (run.instructions.empty() ? kWorthExplaining : 0.01);
}

std::string table_of(const Diagnosis& d) {
  reports::Table table({{"cause", reports::Align::left}, {"costs"}, {"of the step"}});
  std::string seen;
  for (const Cause& c : d.causes) {
    table.add_row({c.name, format_seconds(c.seconds), format_percent(c.seconds / d.measured_s)});
    seen += wrapped(fmt::format("{}: {}", c.name, c.evidence), "  ");
  }
  if (sum_of<double>(d.causes, &Cause::seconds) > d.measured_s)
    seen += wrapped("Causes overlap: without one, another costs less.", "  ");
  const Cause& most = d.causes.front();
  return table.text() + "\n" + seen +
         wrapped(fmt::format("Most to gain: {} ({}): {}.", most.name,
                             format_percent(most.seconds / d.measured_s), most.change));
}

// The time that no cause explains, and the next measurement. The layout is not among these causes, since the
// prediction is of that layout.
std::string unexplained(const Plan& plan, const Diagnosis& d, const MeasuredRun& run) {
  if (!leaves_open(d, run)) return "";
  std::string text = fmt::format("Not explained: {} {} than predicted, of {} measured.\n",
                                 format_seconds(std::abs(d.unexplained_s)),
                                 d.unexplained_s > 0.0 ? "more" : "less", format_seconds(d.measured_s));
  if (!d.doubt.empty()) return text + "First check that the run used this plan.\n";
  const std::vector<std::string> next = next_measurements(plan, run);
  if (next.empty()) return text;
  text += "These measurements would tell:\n";
  for (const std::string& line : next) text += wrapped(line, "  - ");
  return text;
}

std::string describe_troubles(const std::vector<Trouble>& troubles) {
  const auto text = sum_of<std::string>(troubles, [](const Trouble& t) {
    return wrapped(t.finding, "  ") + wrapped("Try: " + t.change + ".", "    ");
  });
  return text.empty() ? "" : "What the log reports\n" + text + "\n";
}

std::string heading(const Plan& plan, const MeasuredRun& run) {
  return fmt::format("{}\n{} on {} {}s of {}, {}, {}\n\n", layout_name(plan.layout), plan.model.name,
                     format_count(plan.layout.ranks()), reports::device_word(plan.cluster), plan.cluster.name,
                     enum_name(plan.layout.precision), run.source);
}

// Compares other figures of the log with the plan: work and memory. Returns why the run is not the plan, if
// the memory shows it.
std::string add_logged(const Plan& plan, const MeasuredRun& run, std::vector<std::string>& judgement) {
  const std::string other_work = describe_other_work(plan, run.flop_per_s, run.step_time_s);
  if (!other_work.empty()) judgement.push_back(other_work);
  if (run.peak_bytes <= 0) return "";
  std::string doubt = doubt_by_memory(plan, double(run.peak_bytes), false);
  judgement.push_back(fmt::format(
      "Memory at its peak: {} by the log, {} predicted.{}{}", format_bytes(double(run.peak_bytes)),
      format_bytes(double(reports::peak_bytes(plan))), doubt.empty() ? "" : " ", doubt));
  return doubt;
}

DiagnosedRun diagnosed(const KnownPlan& known, const MeasuredRun& run, const Measurement& measured,
                       const Seek& seek) {
  DiagnosedRun all{run, {}, judge(known.plan, measured, published_evidence())};
  const std::string doubt = add_logged(known.plan, all.run, all.judgement);
  all.diagnosis = diagnose(known.plan, all.run);
  all.diagnosis.doubt = doubt;
  add_better_layout(known, seek, all.diagnosis);
  if (doubt.empty() && !all.diagnosis.doubt.empty()) all.judgement.push_back(all.diagnosis.doubt);
  return all;
}

}  // namespace

DiagnosedRun diagnose_log(const KnownPlan& known, const std::string& text, const std::string& name,
                          const Seek& seek) {
  MeasuredRun run = read_run_log(text, name, known.plan);
  if (run.step_time_s == 0.0) return {std::move(run), {}, {}};
  Measurement measured;
  measured.said = format_seconds(run.step_time_s) + " per step";
  if (const auto drift = find_drift(run.steps))
    measured.said += fmt::format(" (the median: it grows from {} to {})", format_seconds(drift->before_s),
                                 format_seconds(drift->last_s));
  measured.step_time_s = run.step_time_s;
  check_possible(measured, name, known.plan);
  return diagnosed(known, run, measured, seek);
}

DiagnosedRun diagnose_figure(const KnownPlan& known, const std::string& figure, const std::string& name,
                             const Seek& seek) {
  const Measurement measured = parse_measurement(figure, name, known.plan);
  MeasuredRun run;
  run.step_time_s = measured.step_time_s;
  run.source = "one figure of a run";
  return diagnosed(known, run, measured, seek);
}

std::string diagnosis_json_text(const Plan& plan, const DiagnosedRun& diagnosed) {
  const auto& [run, d, judgement] = diagnosed;
  if (!diagnosed.has_steps()) return Json{{"troubles", to_json(run.troubles)}}.dump(1);
  Json causes = to_json(d.causes);
  for (Json& cause : causes) cause["share"] = cause["seconds"].get<double>() / d.measured_s;
  const Json all{{"predicted_step_time_s", d.predicted_s},
                 {"measured_step_time_s", d.measured_s},
                 {"judgement", judgement},
                 {"causes", causes},
                 {"troubles", to_json(run.troubles)},
                 {"drift", d.drift ? to_json(*d.drift) : Json()},
                 {"unexplained_s", d.unexplained_s},
                 {"doubt", d.doubt},
                 {"next_measurements", leaves_open(d, run) && d.doubt.empty() ? next_measurements(plan, run)
                                                                              : std::vector<std::string>{}}};
  return all.dump(1);
}

std::string describe_diagnosis(const Plan& plan, const DiagnosedRun& diagnosed) {
  const auto& [run, d, judgement] = diagnosed;
  std::string text = heading(plan, run) + describe_troubles(run.troubles);
  if (!diagnosed.has_steps()) return text;
  for (const std::string& line : judgement) text += wrapped(line, "  ");
  text += "\n";
  const std::string open = unexplained(plan, d, run);
  if (!d.causes.empty())
    text += table_of(d);
  else if (open.empty())
    text += "The step is as predicted, and nothing found costs 1 % of it or more.\n";
  text += open;
  if (run.instructions.empty()) text += "\n" + expected_shares(plan, open.empty());
  return text;
}

}  // namespace mpt::planner
