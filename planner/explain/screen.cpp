// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/screen.h"
#include "planner/explain/plan_notes.h"

#include <cmath>
#include <set>

#include "base/quantity.h"
#include "core/plan_words.h"
#include "core/ties.h"
#include "models/parameter_count.h"
#include "planner/explain/confidence.h"
#include "planner/explain/details.h"
#include "planner/explain/drawn_choice.h"
#include "planner/explain/memory_parts.h"
#include "planner/explain/utilisation.h"
#include "planner/memory/memory_model.h"
#include "planner/search/arrangement.h"
#include "reports/table.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

constexpr size_t kLabel = 15;  // columns of "  throughput   "

std::string labelled(const char* label, const std::string& text) {
  return wrapped(text, fmt::format("  {:<{}}", label, kLabel - 2));
}

// Colours the heading in lines that were wrapped without colours.
std::string with_heading(const std::string& lines, const std::string& heading, const std::string& coloured) {
  return coloured + lines.substr(heading.size());
}

size_t newlines_in(const std::string& text) { return size_t(std::count(text.begin(), text.end(), '\n')); }

std::string describe_model(const ModelSpec& model) {
  const models::ParameterCount count = models::count_parameters(model);
  return fmt::format(
      "{} ({} parameters{})", model.name, format_magnitude(double(count.total)),
      model.moe() != nullptr ? fmt::format(", {} active", format_magnitude(double(count.active))) : "");
}

std::string counted(int64_t count, const char* one) {
  return fmt::format("{} {}{}", format_count(count), one, count == 1 ? "" : "s");
}

std::string describe_devices(const Plan& plan) {
  const ClusterSpec& c = plan.cluster;
  if (c.device.kind == DeviceKind::cpu) return counted(c.devices, "CPU rank");
  return (c.mixed() ? "" : counted(c.nodes_of(c.devices), "node") + ", ") + reports::devices_text(plan);
}

std::string describe_limit(const Plan& plan) {
  const ClusterSpec& c = plan.cluster;
  const auto limit = double(plan.memory_limit_bytes);
  const auto usable = double(most_tensor_bytes(c, plan.layout.execution));
  if (limit >= usable && c.mixed()) return fmt::format("at most {} usable", format_bytes(limit));
  if (limit >= usable) return fmt::format("{} usable", part_of(limit, double(c.device.memory_bytes)));
  const MemoryMargin margin = memory_margin(predicted_by(plan).like, published_evidence());
  const bool by_default = plan.memory_limit_bytes == margin.safe_bytes(int64_t(usable));
  return fmt::format("limited to {}{} usable{}", c.mixed() ? "at most " : "", part_of(limit, usable),
                     by_default ? "; 9 in 10 such plans fit" : "");
}

std::string describe_throughput(const Plan& plan) {
  const double rate = plan.prediction.tokens_per_s;
  std::string text = fmt::format("{} tokens/s; ", format_count(int64_t(rate)));
  if (plan.layout.ranks() > 1)
    text += fmt::format("per {}: {}, ", reports::device_word(plan.cluster),
                        format_count(int64_t(rate / double(plan.layout.ranks()))));
  return text + reports::describe_utilisation(plan);
}

std::string describe_memory_use(const Plan& plan) {
  const auto peak = double(reports::peak_bytes(plan));
  const char* const one = reports::device_word(plan.cluster);
  const bool more = plan.corrected && peak > double(plan.memory_limit_bytes);  // measured, so it was there
  auto text = plan.cluster.mixed() || more
                  ? fmt::format("{} on the fullest {}", format_bytes(peak), one)
                  : fmt::format("{} ({}) on the fullest {}", part_of(peak, double(plan.memory_limit_bytes)),
                                format_percent(peak / double(plan.memory_limit_bytes)), one);
  const auto communicators =
      communicator_bytes(plan.model, plan.cluster, plan.layout, plan.workload.sequence);
  const int64_t nccl = *std::max_element(communicators.begin(), communicators.end());
  const bool dispatches = plan.layout.execution->traffic.deduplicates_dispatch;
  if (nccl > 0)
    text += fmt::format("; {} takes {} beside", dispatches ? "the experts' exchange" : "NCCL",
                        format_bytes(double(nccl)));
  const std::string host = describe_host_memory(plan);
  return host.empty() ? text : text + "; " + host;
}

// The fastest layout of the ranking that is safe; null if none is known.
const RankedLayout* safe_layout(const Plan& plan, const MemoryRisk& risk) {
  return first_if(plan.ranking, [&](const RankedLayout& r) { return r.peak_bytes <= risk.safe_bytes; });
}

// One risk, in one line if its figures allow. The option is named if a search with it found a plan.
std::string describe_risk(const Plan& plan, const Palette& palette) {
  const auto risk = memory_risk(plan, published_evidence());
  if (!risk || reports::peak_bytes(plan) > plan.memory_limit_bytes) return "";
  const std::string remedy = safe_layout(plan, *risk) != nullptr
                                 ? "safer: " + risk->option()
                                 : format_bytes(double(risk->safe_bytes)) + " would be safe";
  return with_heading(wrapped(risk->why + "; " + remedy, "RISK  "), "RISK", palette.caution("RISK"));
}

// Whether it is tied with the recommended layout and, if that is not the
// fastest, with the fastest that fits.
bool is_tie(const RankedLayout& r, const Plan& plan) {
  const RankedLayout& first = plan.ranking.front();
  double fastest_s = first.step_time_s;
  for (const RankedLayout& other : plan.ranking)
    if (other.peak_bytes <= std::max(first.peak_bytes, plan.memory_limit_bytes))
      fastest_s = std::min(fastest_s, other.step_time_s);
  return std::abs(r.step_time_s / first.step_time_s - 1.0) < kEqualTimes &&
         r.step_time_s <= (1.0 + kEqualTimes) * fastest_s;
}

std::string describe_trade(const RankedLayout& r, const Plan& plan) {
  const RankedLayout& first = plan.ranking.front();
  const double slower = r.step_time_s / first.step_time_s - 1.0;
  std::string text = is_tie(r, plan) ? "tie"
                     : slower > 0.0  ? format_difference(slower) + " slower"
                                     : format_percent(-slower) + " faster";
  text += ", " + describe_memory_change(r.peak_bytes, first.peak_bytes);
  const bool recomputes = r.layout.recompute != Recompute::none;
  if (recomputes != (first.layout.recompute != Recompute::none))
    text += recomputes ? ", recomputes" : ", no recompute";
  if (r.layout.offload_optimizer != first.layout.offload_optimizer)
    text += std::string(", ") + (r.layout.offload_optimizer ? describe_offload(r.layout) : "no offload");
  if (r.role == Role::simplest) text += "; simplest";
  return text;
}

std::string alternatives_table(const std::vector<Alternative>& rows) {
  reports::Table table({{"", reports::Align::left}, {""}, {""}, {""}, {"", reports::Align::left}});
  for (const auto& [r, trade] : rows) {
    const auto& fits = r->confidence.fits;
    table.add_row({layout_name(r->layout), format_seconds(r->step_time_s),
                   format_bytes(double(r->peak_bytes)), fits ? "fits: " + describe_likelihood(*fits) : "",
                   trade});
  }
  return table.text(screen_columns());
}

// The rows that fit into `lines`. The last row, which may be the safe layout, and the simplest one stay.
std::string describe_alternatives(std::vector<Alternative> rows, size_t lines, const Palette& palette) {
  constexpr size_t kOthers = 3;  // blank, heading, meaning of a tie
  const auto ties = [](const Alternative& a) { return a.trade.starts_with("tie"); };
  std::string table = alternatives_table(rows);
  while (rows.size() > 1 && newlines_in(table) + kOthers > lines) {
    const auto stays = [](const Alternative& a) { return a.layout->role == Role::simplest; };
    rows.erase(rows.end() - (!stays(rows.end()[-2]) ? 2 : rows.size() > 2 ? 3 : 1));
    table = alternatives_table(rows);
  }
  if (rows.empty() || (rows.size() == 1 && newlines_in(table) + kOthers > lines)) return "";
  std::string text = "\n" + palette.heading("ALTERNATIVES") + "\n" + table;
  if (any_of(rows, ties))
    text += fmt::format("  tie: within {:.0f}%, which the model cannot tell apart\n", 100.0 * kEqualTimes);
  return text;
}

std::string choice_lines(const std::string& heading, const Layout& layout, const Workload& workload,
                         const Palette& palette, const std::string& more) {
  const std::string first = fmt::format("{:<{}}", heading + "  ", kLabel);
  const std::string words = describe_layout_in_words(layout, &workload);
  return with_heading(wrapped(words, first), heading, palette.heading(heading)) +
         wrapped(fmt::format("short form: {} (docs/notation.md){}", layout_name(layout),
                             more.empty() ? "" : "; " + more),
                 std::string(first.size(), ' '));
}

// The row of the ranking that a weighed risk names; null if there is none.
const RankedLayout* risk_row(const Plan& plan, int64_t WeighedRisk::*place) {
  if (!plan.risk || size_t((*plan.risk).*place) > plan.ranking.size()) return nullptr;
  return &plan.ranking[size_t((*plan.risk).*place) - 1];
}

// Another layout than the plan's, as lines of a choice.
std::string other_choice(const std::string& heading, const RankedLayout& r, const Plan& plan,
                         const Palette& palette) {
  return choice_lines(heading, r.layout, plan.workload, palette, "") +
         labelled("step", describe_step(r.step_time_s, r.confidence) + "; memory " +
                              format_bytes(double(r.peak_bytes)));
}

std::string describe_expected(const WeighedRisk& risk, const RankedLayout& safe) {
  return labelled("on average", fmt::format("{} a step, where a failed trial falls back: {} less than {}",
                                            format_seconds(risk.expected_s), format_percent(risk.gain),
                                            format_seconds(safe.step_time_s)));
}

// The plan's layout and its figures. If another layout may not fit but is worth a trial: both.
std::string describe_choices(const Plan& plan, const ScreenOptions& o) {
  const RankedLayout* const first = risk_row(plan, &WeighedRisk::try_first);
  const RankedLayout* const safe = risk_row(plan, &WeighedRisk::fall_back);
  const bool unsure = may_not_fit(plan.prediction.confidence);
  const std::string figures = "\n" + describe_figures(plan, o.palette, o.training, unsure);
  if (first == nullptr || safe == nullptr) return describe_choice("RECOMMENDED", plan, o.palette) + figures;
  const std::string expected = describe_expected(*plan.risk, *safe);
  if (plan.layout == first->layout)
    return describe_choice("TRY FIRST", plan, o.palette) + figures + expected + "\n" +
           other_choice("FALL BACK", *safe, plan, o.palette);
  return other_choice("TRY FIRST", *first, plan, o.palette) + expected + "\n" +
         describe_choice("FALL BACK", plan, o.palette) + figures;
}

// Follows the table of the layouts that it mentions.
std::string describe_certainty(const Plan& plan) {
  if (!plan.search.drawn) return "";
  const auto ranking = mapped<Layout>(plan.ranking, &RankedLayout::layout);
  const std::string text = describe_order(*plan.search.drawn, ranking);
  return text.empty() ? "" : wrapped(text);
}

std::string describe_reasons(const Plan& plan, size_t lines, const Palette& palette) {
  std::string text;
  for (const std::string& reason : plan.reasons) {
    const std::string more = wrapped(reason, "  - ");
    if (newlines_in(text) + newlines_in(more) <= lines) text += more;
  }
  return text.empty() ? "" : "\n" + palette.heading("WHY") + "\n" + text;
}

// "15 and 14 nodes", those with a layout for which `holds`; empty where there are none.
template <class Holds>
std::string nodes_where(const Plan& plan, Holds&& holds) {
  const auto words = mapped_if<std::string>(
      plan.fewer_nodes, [&](const FewerNodes& f) { return f.best && holds(f); },
      [](const FewerNodes& f) { return format_count(f.nodes); });
  const std::string all = joined(words, " and ");
  return all.empty() ? "" : all + (all == "1" ? " node" : " nodes");
}

// What is read to go on with a layout on fewer nodes.
std::string describe_reading(const Plan& plan) {
  const CheckpointCost& c = *plan.checkpoint;
  const std::string& name = plan.layout.execution->framework;
  const std::string who = name == Execution{}.framework ? "mpt-run" : name;
  if (c.weight_bytes == 0) return wrapped("What a checkpoint of " + who + " holds is not judged.");
  std::string text = fmt::format(
      "To go on there, {} reads a checkpoint of {}: {} of weights and {} of the optimizer's moments.", who,
      format_bytes(double(c.weight_bytes + c.moment_bytes)), format_bytes(double(c.weight_bytes)),
      format_bytes(double(c.moment_bytes)));
  const std::pair<const char*, std::string> told[] = {{"Whether it is read on", "is not judged"},
                                                      {"On", "the checkpoint is read as it is"},
                                                      {"On", "reading needs " + c.prepared_by}};
  for (size_t n = 0; n < std::size(told); ++n)
    if (const auto nodes = nodes_where(plan, [n](const auto& f) { return size_t(f.reads) == n; });
        !nodes.empty())
      text += fmt::format(" {} {} {}.", told[n].first, nodes, told[n].second);
  return wrapped(text + (c.read_s > 0.0
                             ? fmt::format(" Each byte once at {} takes {}.", plan.request.storage_bandwidth,
                                           format_duration(c.read_s))
                             : " How long that takes is not estimated without --storage-bandwidth."));
}

// The table of the best layouts on fewer nodes; empty where none are asked for.
std::string describe_fewer_nodes(const Plan& plan, const Palette& palette) {
  if (plan.fewer_nodes.empty()) return "";
  reports::Table table(reports::columns(
      {"nodes", reports::device_word(plan.cluster) + std::string("s"), "step time", "tokens/s",
       "of " + counted(plan.cluster.nodes_of(plan.layout.ranks()), "node"), "memory", "fits", "<layout"}));
  std::string without;
  for (const FewerNodes& f : plan.fewer_nodes) {
    if (f.best)
      table.add_row({format_count(f.nodes), format_count(f.gpus), format_seconds(f.best->step_time_s),
                     format_count(int64_t(f.best->tokens_per_s)),
                     format_percent(f.best->tokens_per_s / plan.prediction.tokens_per_s),
                     format_bytes(double(f.best->peak_bytes)),
                     f.best->confidence.fits ? describe_likelihood(*f.best->confidence.fits) : "yes",
                     layout_name(f.best->layout)});
    else
      without += wrapped(f.why, "  - " + counted(f.nodes, "node") + ": ");
  }
  if (const auto nodes = nodes_where(plan, [](const auto& f) { return f.stopped; }); !nodes.empty())
    without += wrapped(nodes + ": the time limit ended the search, so there may be faster layouts", "  - ");
  if (plan.corrected) without += "  - Observed runs do not change these predictions.\n";
  const bool any = !nodes_where(plan, [](const auto&) { return true; }).empty();
  return "\n" + palette.heading("FEWER NODES") + "\n" + (any ? table.text(screen_columns()) : "") + without +
         (any && plan.checkpoint ? describe_reading(plan) : "");
}

}  // namespace

std::string describe_task(const Plan& plan, const Palette& palette) {
  const Workload& w = plan.workload;
  std::string text;
  if (plan.corrected)
    for (const std::string& sentence : plan.corrected->learned) text += wrapped(sentence);
  text += wrapped(
      fmt::format("{} on {}: {}", describe_model(plan.model), plan.cluster.name, describe_devices(plan)));
  const std::string& framework = plan.layout.execution->framework;
  text += wrapped(fmt::format("{} of {} tokens per step ({} tokens); {}, {}; {}",
                              counted(w.global_batch, "sequence"), format_count(w.sequence),
                              format_magnitude(double(w.tokens_per_step())),
                              framework == Execution{}.framework ? "mpt-run" : framework,
                              precision_words(plan.layout), describe_limit(plan)));
  const std::string training = training_words(plan.layout.training);
  if (!training.empty()) text += wrapped(training);
  const std::string new_kind = describe_new_kind(plan);
  if (!new_kind.empty()) text += describe_notes({new_kind}, palette);
  if (plan.cost.source != "roofline") return text;
  const std::string note =
      plan.cluster.device.kind == DeviceKind::cpu
          ? "Prices are a roofline estimate, often far off: mpt-profile measures this machine for --profile."
          : fmt::format(
                "Prices are a roofline estimate: no measured kernels of {} are known. Expect larger "
                "errors, in the order of layouts too.",
                plan.cost.machine);
  return text + describe_notes({note}, palette);
}

std::string describe_choice(const std::string& heading, const Plan& plan, const Palette& palette,
                            const std::string& more) {
  return choice_lines(heading, plan.layout, plan.workload, palette, more);
}

std::string describe_figures(const Plan& predicted, const Palette& palette, const std::string& training,
                             bool memory_by_kind) {
  const Plan plan = as_observed(predicted);
  std::string step = describe_step(plan.prediction.step_time_s, plan.prediction.confidence);
  if (plan.corrected)
    step += fmt::format("; {} without the runs", format_seconds(predicted.prediction.step_time_s));
  std::string text = labelled("step", step) + labelled("throughput", describe_throughput(plan)) +
                     labelled("memory", describe_memory_use(plan)) +
                     (memory_by_kind && !plan.corrected ? describe_parts(predicted) : "") +
                     labelled("time goes to", reports::describe_time_parts(plan));
  const Objective& objective = plan.objective;
  if (!objective.same && objective.seen.empty())
    text += labelled("objective", fmt::format("not known: the framework {}", objective.why));
  else if (!objective.same)
    text += labelled("objective", fmt::format("another than on one GPU: the framework {} ({})", objective.why,
                                              objective.seen));
  if (!training.empty()) text += labelled("training", training);
  return plan.corrected ? text : text + describe_risk(plan, palette);
}

std::string describe_notes(const std::vector<std::string>& notes, const Palette& palette) {
  return sum_of<std::string>(notes, [&](const std::string& note) {
    return with_heading(wrapped(note, "NOTE  "), "NOTE", palette.caution("NOTE"));
  });
}

std::string describe_lack(const Rejection& lack, const ClusterSpec& cluster) {
  const bool host = lack.constraint == "host memory";
  return fmt::format("{} needs {} per {}, there are {}",
                     lack.stage < 0 ? "it" : fmt::format("stage {}", lack.stage), format_bytes(lack.needed),
                     host ? "host" : reports::device_word(cluster), format_bytes(lack.available));
}

std::string describe_verdict(const Plan& plan, const std::optional<Rejection>& rejection,
                             const Palette& palette) {
  if (plan.corrected && plan.corrected->layouts.front().out_of_memory)
    return palette.bad("DOES NOT FIT: it ran out of memory.") + "\n";
  const auto& sure = plan.corrected ? plan.corrected->layouts.front().confidence : plan.prediction.confidence;
  if (!rejection && may_not_fit(sure))
    return palette.caution(fmt::format("May not fit ({}).", describe_likelihood(*sure.fits))) + "\n";
  if (!rejection) return palette.good("It fits.") + "\n";
  // One judgement: a layout that may fit is not said to fail.
  const bool may = rejection->constraint == "memory" && sure.fits.value_or(0.0) > 1.0 - MemoryMargin::kLikely;
  const std::string odds =
      may ? fmt::format("Probably DOES NOT FIT ({})", describe_likelihood(*sure.fits)) : "DOES NOT FIT";
  const std::string heading = odds + " by " + format_bytes(rejection->needed - rejection->available);
  const std::string text = wrapped(heading + ": " + describe_lack(*rejection, plan.cluster));
  return palette.bad(heading) + text.substr(heading.size());
}

std::string describe_next(const std::vector<NextCommand>& next, const Palette& palette) {
  if (next.empty()) return "";
  std::string text = palette.heading("NEXT") + "\n";
  size_t longest = 0;
  for (const NextCommand& n : next)
    if (columns_of(n.command) + columns_of(n.what_for) + 6 <= screen_columns())
      longest = std::max(longest, columns_of(n.command));
  for (const auto& [command, what_for] : next) {
    const size_t width = std::max(longest, columns_of(command));
    if (width + columns_of(what_for) + 6 <= screen_columns())
      text += fmt::format("  {:<{}}  # {}\n", command, width, what_for);
    else
      text += wrapped_command(command, "  ");
  }
  return text;
}

std::string describe_memory_change(int64_t bytes, int64_t instead_of) {
  const double change = double(bytes - instead_of);
  if (std::abs(change) <= kEqualMemory * double(instead_of)) return "same memory";
  return fmt::format("{} {}", format_bytes(std::abs(change)), change < 0 ? "less" : "more");
}

std::vector<Alternative> alternatives(const Plan& plan) {
  if (plan.ranking.empty()) return {};
  const auto risk = memory_risk(plan, published_evidence());
  const RankedLayout* const safe = risk ? safe_layout(plan, *risk) : nullptr;
  std::set<std::string> shown{layout_name(plan.layout)};
  for (const auto place : {&WeighedRisk::try_first, &WeighedRisk::fall_back})
    if (const RankedLayout* const row = risk_row(plan, place)) shown.insert(layout_name(row->layout));
  std::vector<Alternative> out;
  for (const RankedLayout& r : plan.ranking)
    if (shown.insert(layout_name(r.layout)).second && &r != safe)
      out.push_back({&r, describe_trade(r, plan)});
  if (safe != nullptr)
    out.push_back({safe, fmt::format("{}; safer: {}", describe_trade(*safe, plan), risk->option())});
  return out;
}

std::string answer_screen(const Plan& plan, const ScreenOptions& o) {
  constexpr size_t kMostReasons = 5, kFewestAlternatives = 6;
  const std::string head =
      describe_task(plan, o.palette) + "\n" + describe_choices(plan, o) + describe_notes(o.notes, o.palette);
  const std::string fewer = describe_fewer_nodes(plan, o.palette);  // asked for: beyond the limit
  const std::string next = o.next.empty() ? "" : "\n" + describe_next(o.next, o.palette);
  const std::string proof =
      "\n" + wrapped(describe_certificate(plan.search, plan.prediction.step_time_s, o.waited_s)) +
      wrapped(describe_prices(plan));
  const std::vector<Alternative> others = alternatives(plan);
  const std::string order = describe_certainty(plan);
  const size_t used = newlines_in(head) + newlines_in(next) + newlines_in(proof) + newlines_in(order);
  const size_t left = o.lines > used ? o.lines - used : 0;
  const size_t kept = others.empty() ? 2 : kFewestAlternatives + 2;
  const auto why = describe_reasons(plan, std::min(kMostReasons, left > kept ? left - kept : 0), o.palette);
  return head + fewer + describe_alternatives(others, left - std::min(left, newlines_in(why)), o.palette) +
         order + why + next + proof;
}

}  // namespace mpt::planner
