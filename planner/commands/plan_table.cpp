// SPDX-License-Identifier: Apache-2.0
#include "planner/commands/plan_table.h"

#include "base/quantity.h"
#include "base/terminal.h"
#include "planner/commands/commands.h"
#include "planner/explain/confidence.h"
#include "planner/explain/utilisation.h"
#include "reports/table.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

const Plan* first_plan(const Comparison& c) {
  const auto first = find_if(c.rows, [](const Compared& r) { return r.plan; });
  return first == c.rows.end() ? nullptr : &*first->plan;
}

// Whether all plans have the same value of a property.
template <class F>
bool share(const Comparison& c, F&& of) {
  const Plan* const first = first_plan(c);
  return all_of(c.rows, [&](const Compared& r) { return !r.plan || of(*r.plan) == of(*first); });
}

// Figures of a plan and its search, as table and CSV show them.
struct Figures {
  const Plan& plan;
  const Confidence& sure = plan.prediction.confidence;
  TrainingCost cost;
  double speed = 1.0;  // relative to the first plan's

  Figures(const Compared& c, const CostOptions& o) : plan(*c.plan) {
    if (!o.tokens.empty()) cost = training_cost(plan, parse_count(o.tokens, "--tokens"), c.price, o.goodput);
  }
  double rate() const { return plan.prediction.tokens_per_s; }
  // "13.1 (12.0 to 18.2)": a figure that grows with the step time.
  std::string ranged(double value, std::string (*words)(double)) const {
    return with_range(value, plan.prediction.step_time_s, sure, words);
  }
};

struct Shown {
  const char* title;  // {}: GPU, or rank
  std::string (*cell)(const Figures&);
};
constexpr Shown kOfStep[] = {
    {"{}s", [](const Figures& f) { return format_count(f.plan.layout.ranks()); }},
    {"step time", [](const Figures& f) { return format_seconds(f.plan.prediction.step_time_s); }},
    {"8 of 10 steps",
     [](const Figures& f) {
       const std::string range = describe_range(f.sure);
       return range.empty() ? "-" : range;
     }},
    {"speed", [](const Figures& f) { return fmt::format("{:.2f}x", f.speed); }},
    {"memory", [](const Figures& f) { return format_bytes(double(reports::peak_bytes(f.plan))); }},
    {"tokens/s", [](const Figures& f) { return format_count(int64_t(f.rate())); }},
    {"per {}",
     [](const Figures& f) { return format_count(int64_t(f.rate() / double(f.plan.layout.ranks()))); }},
    {"MFU", [](const Figures& f) { return format_percent(model_flop_utilisation(f.plan)); }},
    {"idle", [](const Figures& f) { return format_percent(f.plan.prediction.bubble_share); }}};
constexpr Shown kOfTraining[] = {
    {"days", [](const Figures& f) { return f.ranged(f.cost.days, format_days); }},
    {"{}-hours", [](const Figures& f) { return format_magnitude(f.cost.device_hours); }},
    {"cost",
     [](const Figures& f) { return f.cost.price > 0.0 ? f.ranged(f.cost.price, format_magnitude) : "-"; }}};

std::vector<Shown> shown(const CostOptions& cost) {
  std::vector<Shown> all(std::begin(kOfStep), std::end(kOfStep));
  if (!cost.tokens.empty()) all.insert(all.end(), std::begin(kOfTraining), std::end(kOfTraining));
  return all;
}

std::string table_of(const Comparison& c) {
  const Plan* const first = first_plan(c);
  const std::vector<Shown> cells = shown(c.cost);
  const std::string unit = first != nullptr ? reports::device_word(first->cluster) : "GPU";
  std::vector<reports::Column> columns;
  for (const std::string& axis : c.axes) columns.push_back({axis, reports::Align::left});
  for (const Shown& s : cells) columns.push_back({fmt::format(fmt::runtime(s.title), unit)});
  columns.push_back({"layout", reports::Align::left});
  reports::Table table(columns);
  for (const Compared& r : c.rows) {
    std::vector<std::string> row = r.at;
    std::optional<Figures> figures = r.plan ? std::optional(Figures(r, c.cost)) : std::nullopt;
    if (figures) figures->speed = figures->rate() / first->prediction.tokens_per_s;
    for (const Shown& s : cells) row.push_back(figures ? s.cell(*figures) : "-");
    row.push_back(r.plan ? layout_name(r.plan->layout) : r.why);
    table.add_row(std::move(row));
  }
  return table.stacked(c.axes.size(), terminal_columns());
}

// "llama3-8b in bf16, 32 sequences of 4096 tokens per step, for megatron-core": shared by all rows.
std::string describe_job(const Comparison& c) {
  const Plan* const first = first_plan(c);
  if (first == nullptr) return "";
  std::vector<std::string> words;
  if (share(c, [](const Plan& p) { return p.model; })) words.push_back(first->model.name);
  const std::string precision = enum_name(first->layout.precision);
  if (share(c, [](const Plan& p) { return p.layout.precision; }))
    words = {words.empty() ? precision : words.front() + " in " + precision};
  if (share(c, [](const Plan& p) { return p.workload; }))
    words.push_back(fmt::format("{} sequences of {} tokens per step", first->workload.global_batch,
                                first->workload.sequence));
  if (share(c, [](const Plan& p) { return p.layout.execution->framework; }))
    words.push_back("for " + first->layout.execution->framework);
  return words.empty() ? "" : wrapped(joined(words, ", "));
}

// Plans that train something else than the first plan, in a property that no column shows. Axes may differ.
std::string describe_other_jobs(const Comparison& c) {
  const Plan* const first = first_plan(c);
  std::string text;
  for (const Compared& r : c.rows) {
    if (!c.are_files || !r.plan ||
        (r.plan->model == first->model && r.plan->workload == first->workload &&
         r.plan->layout.precision == first->layout.precision))
      continue;
    text += wrapped(fmt::format("note: {} is of another job: {} in {}, {} sequences of {} tokens per step",
                                joined(r.at, " "), r.plan->model.name, enum_name(r.plan->layout.precision),
                                r.plan->workload.global_batch, r.plan->workload.sequence));
  }
  return text;
}

// The findings of observed runs, by row. A note of a row says if the runs do not apply to it.
std::string describe_runs(const Comparison& c) {
  std::string text;
  for (const Compared& r : c.rows) {
    if (r.plan && r.plan->corrected)
      text += wrapped(fmt::format("{}: {}", joined(r.at, " "), joined(r.plan->corrected->learned, " ")));
    else if (r.plan && !r.plan->request.observed.empty())
      text += wrapped(fmt::format("{}: as predicted, since the runs are not of it.", joined(r.at, " ")));
  }
  return text;
}

// Rows of a kind without published runs. Their ranges come from runs of other kinds.
std::string describe_unpublished(const Comparison& c) {
  return sum_of<std::string>(c.rows, [](const Compared& r) {
    const std::string kind = r.plan ? describe_new_kind(*r.plan) : "";
    return kind.empty() ? "" : wrapped(fmt::format("{}: {}", joined(r.at, " "), kind));
  });
}

std::string describe_days(const Comparison& c) {
  if (c.cost.tokens.empty() || first_plan(c) == nullptr) return "";
  return wrapped(fmt::format("Days for {} tokens: {}.", c.cost.tokens, describe_goodput(c.cost)));
}

}  // namespace

std::string describe(const Comparison& c) {
  const bool ranges =
      any_of(c.rows, [&](const Compared& r) { return r.plan && Figures(r, c.cost).sure.least_s; });
  const std::string runs = describe_runs(c);
  const char* const took = runs.empty() ? "8 of 10 published runs like these fall in their range."
                                        : "8 of 10 steps fall in their range.";
  return runs + describe_job(c) + table_of(c) + (ranges ? wrapped(took) : "") + describe_days(c) +
         describe_other_jobs(c) + describe_unpublished(c);
}

std::string csv_of(const Comparison& c) {
  std::string text = fmt::format(
      "{},layout,devices,step_time_s,least_s,most_s,tokens_per_s,model_flop_utilisation,bubble_share,"
      "peak_bytes,days,device_hours,cost\n",
      joined(c.axes, ","));
  for (const Compared& r : c.rows) {
    text += fmt::format("{},", joined(r.at, ","));
    if (!r.plan) {
      text += ",,,,,,,,,,,\n";
      continue;
    }
    const Figures f(r, c.cost);
    const Prediction& p = r.plan->prediction;
    const auto number = [](double value) { return value > 0.0 ? fmt::format("{:.9g}", value) : ""; };
    text += fmt::format("{},{},{:.9g},{},{},{:.9g},{:.9g},{:.6g},{},{},{},{}\n", layout_name(r.plan->layout),
                        r.plan->layout.ranks(), p.step_time_s, number(f.sure.least_s.value_or(0.0)),
                        number(f.sure.most_s.value_or(0.0)), p.tokens_per_s, model_flop_utilisation(*r.plan),
                        p.bubble_share, reports::peak_bytes(*r.plan), number(f.cost.days),
                        number(f.cost.device_hours), number(f.cost.price));
  }
  return text;
}

}  // namespace mpt::planner
