// SPDX-License-Identifier: Apache-2.0
#include "reports/html.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "core/json.h"
#include "core/layout_words.h"
#include "core/quantity.h"
#include "reports/compare.h"
#include "reports/utilisation.h"

namespace mpt::reports {

const std::vector<std::pair<std::string_view, std::string_view>>&
html_files();  // generated from reports/html/

namespace {

// A picture of more rectangles than this is neither readable nor quick.
constexpr size_t kMostSpans = 20'000;

std::string_view html_file(std::string_view name) {
  for (const auto& [file, text] : html_files()) {
    if (file == name) return text;
  }
  MPT_CHECK(false, "no embedded file {}", name);
}

// [rank, kind, stage, micro-batch, start in us, duration in us]; transfers on the receiving side.
Json spans_of(const StepProgram& program, const Timeline& timeline, bool& cut) {
  Json spans = Json::array();
  const bool compute_only = program.instructions.size() > kMostSpans;
  for (InstructionId id = 0; id < program.size(); ++id) {
    const Instruction& i = program.instructions[size_t(id)];
    if (compute_only && !i.is_compute()) continue;
    if (spans.size() >= kMostSpans) break;
    const Span& span = timeline.spans[size_t(id)];
    const auto microseconds = [](double s) { return int64_t(s * 1e6 + 0.5); };
    for (const Lane& lane : program.lanes(id)) {
      if (i.is_transfer() && &lane == &program.lanes(id).front()) continue;
      spans.push_back({lane.rank, int(i.kind), i.stage, i.micro_batch, microseconds(span.start_s),
                       microseconds(span.seconds())});
    }
  }
  cut = compute_only;
  return spans;
}

Json rows_of(const std::vector<ComparisonRow>& rows) {
  Json out = Json::array();
  for (const ComparisonRow& r : rows) out.push_back({r.quantity, r.predicted, r.measured, r.difference});
  return out;
}

Json memory_of(const Plan& plan, const RunResult* result) {
  Json out = Json::array();
  for (const RankMemory& m : plan.prediction.memory) {
    Json row{{"rank", m.rank},
             {"weights", m.parameter_bytes},
             {"gradients", m.gradient_bytes},
             {"optimizer", m.optimizer_bytes},
             {"transfer", m.transfer_buffer_bytes},
             {"activations", m.activation_peak_bytes},
             {"text", format_bytes(double(m.peak_bytes))}};
    if (result != nullptr) row["measured"] = result->peak_bytes[size_t(m.rank)];
    out.push_back(std::move(row));
  }
  return out;
}

// [rank, [bytes, ...]] at equal distances over the step: memory as the program's own accounting has it, at
// the ends of instructions and with their workspace while they run; of each distance the highest.
Json memory_over_time(const StepProgram& program, const Timeline& timeline) {
  constexpr size_t kMostRanks = 8, kMostPoints = 240;
  const double end_s = std::max(1e-9, step_time_s(timeline));
  const size_t ranks = size_t(program.ranks);
  std::vector<int64_t> held = program.static_bytes;
  std::vector<std::vector<int64_t>> highest(ranks, std::vector<int64_t>(kMostPoints, -1));
  const auto note = [&](size_t rank, double time_s, int64_t bytes) {
    const size_t slot = std::min(kMostPoints - 1, size_t(time_s / end_s * double(kMostPoints)));
    highest[rank][slot] = std::max(highest[rank][slot], bytes);
  };
  for (InstructionId id = 0; id < program.size(); ++id) {
    const Instruction& i = program.instructions[size_t(id)];
    if (!i.is_compute()) continue;
    const auto rank = size_t(program.lanes(id).front().rank);
    const Span& span = timeline.spans[size_t(id)];
    note(rank, span.start_s, held[rank] + i.acquire_bytes + i.workspace_bytes);
    held[rank] += i.acquire_bytes - i.release_bytes;
    note(rank, span.end_s, held[rank]);
  }
  Json out = Json::array();
  // Of many ranks, some from the first to the last.
  const size_t shown = std::min(ranks, kMostRanks);
  for (size_t n = 0; n < shown; ++n) {
    const size_t rank = shown == 1 ? 0 : n * (ranks - 1) / (shown - 1);
    Json points = Json::array();
    int64_t last = program.static_bytes[rank];
    for (size_t slot = 0; slot < kMostPoints; ++slot) {
      if (highest[rank][slot] >= 0) last = highest[rank][slot];
      points.push_back(last);
    }
    out.push_back({rank, points});
  }
  return out;
}

Json parts_of(const Plan& plan) {
  Json parts = Json::array();
  for (const TimePart& part : time_parts(plan))
    parts.push_back({part.idle ? "idle: " + part.what : part.what, part.seconds});
  return parts;
}

// [name, number, of a node, memory, its bandwidth, peak at the plan's precision]
Json devices_of(const Plan& plan) {
  const ClusterSpec& cluster = plan.cluster;
  Json out = Json::array();
  const auto add = [&](const DeviceSpec& device, int64_t number, int64_t of_a_node) {
    const double peak = peak_flop_per_s(device, plan.layout.precision);
    out.push_back({device.name, format_count(number), format_count(of_a_node),
                   format_bytes(double(device.memory_bytes)),
                   format_bandwidth(device.memory_bandwidth_bytes_per_s),
                   peak > 0.0 ? format_flop_rate(peak) + " " + enum_name(plan.layout.precision) : ""});
  };
  for (const DeviceGroup& group : cluster.groups) add(group.device, group.devices, group.devices_per_node);
  if (!cluster.mixed()) add(cluster.device, cluster.devices, cluster.devices_per_node);
  return out;
}

// [link, what lies on it, devices that it connects, bandwidth, latency]
Json links_of(const Plan& plan) {
  Json out = Json::array();
  std::vector<bool> shown(plan.links.size(), false);
  const auto add = [&](const std::string& owner, const LinkLevel& level) {
    std::string carried;
    for (size_t n = 0; n < plan.links.size(); ++n) {
      const AxisLink& link = plan.links[n];
      if (shown[n] || link.level != level) continue;
      shown[n] = true;
      carried += fmt::format("{}{} over {}", carried.empty() ? "" : ", ", link.axis, link.degree);
    }
    out.push_back({owner + level.name, carried, format_count(level.group_size),
                   format_bandwidth(level.bandwidth_bytes_per_s), format_seconds(level.latency_s)});
  };
  // What all devices share first: an axis that lies on such a level crosses groups.
  for (const LinkLevel& level : plan.cluster.levels) add("", level);
  for (const DeviceGroup& group : plan.cluster.groups) {
    for (const LinkLevel& level : group.levels) add(group.name + ": ", level);
  }
  return out;
}

Json rows_of(const std::vector<RankedLayout>& layouts) {
  Json out = Json::array();
  for (const RankedLayout& r : layouts) {
    out.push_back({layout_name(r.layout), r.step_time_s, format_seconds(r.step_time_s),
                   format_percent(r.bubble_share), format_bytes(double(r.peak_bytes)),
                   format_count(int64_t(r.tokens_per_s)), r.peak_bytes, r.layout.ranks()});
  }
  return out;
}

Json facts_of(const Plan& plan, const Facts& more) {
  const Layout& l = plan.layout;
  const SearchCertificate& c = plan.search;
  Json facts = Json::array();
  const auto add = [&](const char* name, std::string value) { facts.push_back({name, std::move(value)}); };
  add("Step time", format_seconds(plan.prediction.step_time_s));
  add("Tokens/s", format_count(int64_t(plan.prediction.tokens_per_s)));
  add("Idle", format_percent(plan.prediction.bubble_share));
  add("Peak memory", fmt::format("{} of {}", format_bytes(double(peak_bytes(plan))),
                                 format_bytes(double(plan.memory_limit_bytes))));
  add("Layout", describe_layout_in_words(l, &plan.workload));
  add("Short form", layout_name(l) + " (docs/notation.md)");
  add("Schedule", fmt::format("{}, {} micro-batches of {}", plan.schedule.name, plan.schedule.micro_batches,
                              l.micro_batch));
  add("Model FLOP/s (MFU)", describe_utilisation(plan));
  for (const auto& [name, value] : more) add(name.c_str(), value);
  add("Search", fmt::format("{} layouts: {} over memory, {} over the bound, {} simulated{}",
                            format_count(c.layouts), format_count(c.over_memory), format_count(c.over_bound),
                            format_count(c.simulated), c.optimal ? "; optimal" : ""));
  add("Costs from",
      plan.cost.source + ", " + plan.cost.machine + (plan.cost.date.empty() ? "" : ", " + plan.cost.date));
  return facts;
}

Json steps_of(const RunResult& result) {
  Json steps = Json::array();
  for (const StepRecord& r : result.steps)
    steps.push_back({r.step, r.loss, r.tokens_per_s, r.step_time_s, r.bubble_share});
  return steps;
}

// Marks such as {{title}} by their texts, in one pass, so that marks within a text stay.
std::string filled(std::string_view page, const std::map<std::string_view, std::string>& parts) {
  std::string out;
  for (size_t at = page.find("{{"); at != std::string_view::npos; at = page.find("{{")) {
    const size_t end = page.find("}}", at);
    const auto part = parts.find(page.substr(at + 2, end - at - 2));
    MPT_CHECK(part != parts.end(), "a mark without text in the page");
    out.append(page.substr(0, at)).append(part->second);
    page.remove_prefix(end + 2);
  }
  return out.append(page);
}

std::string render(const Plan& plan, Json data, const Facts& more) {
  const std::string title = fmt::format("{} on {}", plan.model.name, plan.cluster.name);
  data["title"] = title;
  data["subtitle"] = fmt::format("{} layers, hidden {}; {} sequences of {} tokens per step on {} x {}",
                                 plan.model.layers, plan.model.hidden, plan.workload.global_batch,
                                 plan.workload.sequence, plan.cluster.devices, plan.cluster.device.name);
  data["facts"] = facts_of(plan, more);
  data["parts"] = parts_of(plan);
  data["devices"] = devices_of(plan);
  data["links"] = links_of(plan);
  data["ranking"] = rows_of(plan.ranking);
  data["front"] = rows_of(plan.front);
  data["reasons"] = plan.reasons;
  data["rejected"] = plan.rejected;
  data["evidence"] = plan.evidence;
  data["memory_limit"] = plan.memory_limit_bytes;
  data["memory_limit_text"] = format_bytes(double(plan.memory_limit_bytes));
  data["ranks"] = plan.layout.pipeline;
  data["kinds"] = enum_names<InstructionKind>();
  // "<" must not end the script element that holds the data.
  std::string json;
  for (const char c : json_text(data)) {
    if (c == '<')
      json += "\\u003c";
    else
      json += c;
  }
  const std::map<std::string_view, std::string> parts = {{"title", escape_html(title)},
                                                         {"style", std::string(html_file("report.css"))},
                                                         {"script", std::string(html_file("report.js"))},
                                                         {"data", json}};
  return filled(html_file("report.html"), parts);
}

Json plan_data(const Plan& plan, const RunResult* result) {
  Json data;
  data["memory"] = memory_of(plan, result);
  data["series"] = Json::array();
  data["cut"] = false;
  return data;
}

void add_series(Json& data, const char* name, const StepProgram& program, const Timeline& timeline) {
  bool cut = false;
  data["series"].push_back({name, spans_of(program, timeline, cut)});
  if (cut) data["cut"] = true;
}

}  // namespace

std::string escape_html(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string static_page(const std::string& title, const std::string& subtitle,
                        const std::vector<std::pair<std::string, std::string>>& sections) {
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light "
      "dark\">\n"
      "<title>{0} - "
      "MPT</title>\n<style>\n{1}\n</style>\n</head>\n<body>\n<header><h1>{0}</h1><p>{2}</p></"
      "header>\n<main>\n",
      escape_html(title), html_file("report.css"), escape_html(subtitle));
  for (const auto& [heading, body] : sections)
    page += fmt::format("<section><h2>{}</h2><div class=\"scroll\">{}</div></section>\n",
                        escape_html(heading), body);
  return page +
         "</main>\n<footer>Written by MPT. One file, nothing is loaded from "
         "anywhere.</footer>\n</body>\n</html>\n";
}

std::string plan_report(const Plan& plan, const StepProgram& program, const Timeline& predicted,
                        const Facts& facts) {
  Json data = plan_data(plan, nullptr);
  data["memory_over_time"] = memory_over_time(program, predicted);
  add_series(data, "predicted", program, predicted);
  return render(plan, std::move(data), facts);
}

std::string run_report(const Plan& plan, const StepProgram& program, const std::optional<Timeline>& predicted,
                       const RunResult& result) {
  Json data = plan_data(plan, &result);
  data["memory_over_time"] = memory_over_time(program, predicted ? *predicted : result.timeline);
  if (predicted) {
    add_series(data, "predicted", program, *predicted);
    data["instructions"] = rows_of(compare_instructions(program, *predicted, result.timeline));
  }
  add_series(data, "measured", program, result.timeline);
  data["comparison"] = rows_of(compare_run(plan, result));
  data["steps"] = steps_of(result);
  return render(plan, std::move(data), {});
}

}  // namespace mpt::reports
