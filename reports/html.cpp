// SPDX-License-Identifier: Apache-2.0
#include "reports/html.h"

#include <cmath>

#include "base/embedded.h"
#include "base/json.h"
#include "base/quantity.h"
#include "core/plan_words.h"
#include "core/ties.h"
#include "reports/compare.h"
#include "reports/next_steps.h"
#include "reports/utilisation.h"

namespace mpt::reports {

const EmbeddedFiles& html_files();  // generated from reports/html/

namespace {

// More rectangles than this make a picture unreadable and slow.
constexpr size_t kMostSpans = 20'000;

std::string html_file(std::string_view name) {
  const std::optional<std::string> text = embedded_text(html_files(), name);
  MPT_CHECK(text, "no embedded file {}", name);
  return *text;
}

// [rank, kind, stage, micro-batch, start in us, duration in us]; transfers on the receiving side.
Json spans_of(const StepProgram& program, const Timeline& timeline, bool compute_only) {
  Json spans = Json::array();
  for (InstructionId id = 0; id < program.size(); ++id) {
    const Instruction& i = program.instructions[size_t(id)];
    if (compute_only && !i.is_compute()) continue;
    if (spans.size() >= kMostSpans) break;
    const Span& span = timeline.spans[size_t(id)];
    const auto microseconds = [](double s) { return int64_t(std::llround(s * 1e6)); };
    for (const Lane& lane : program.lanes(id)) {
      if (i.is_transfer() && &lane == &program.lanes(id).front()) continue;
      spans.push_back({lane.rank, int(i.kind), i.stage, i.micro_batch, microseconds(span.start_s),
                       microseconds(span.seconds())});
    }
  }
  return spans;
}

Json rows_of(const std::vector<ComparisonRow>& rows) {
  Json out = Json::array();
  for (const ComparisonRow& r : rows) out.push_back({r.quantity, r.predicted, r.measured, r.difference});
  return out;
}

Json memory_rows(const Plan& plan, const RunResult* result) {
  Json out = Json::array();
  std::map<int64_t, std::string> layers;  // "9", "3+3" of a rank with two stages
  for (size_t s = 0; s < std::min(plan.schedule.rank_of_stage.size(), plan.layout.layers_per_stage.size());
       ++s) {
    std::string& of = layers[plan.schedule.rank_of_stage[s]];
    of += fmt::format("{}{}", of.empty() ? "" : "+", plan.layout.layers_per_stage[s]);
  }
  for (const RankMemory& m : plan.prediction.memory) {
    Json row{{"rank", m.rank},
             {"weights", m.parameter_bytes},
             {"gradients", m.gradient_bytes},
             {"optimizer", m.optimizer_bytes},
             {"transfer", m.transfer_buffer_bytes},
             {"activations", m.activation_peak_bytes},
             {"layers", layers[m.rank]},
             {"text", format_bytes(double(m.peak_bytes))}};
    if (result != nullptr) row["measured"] = result->peak_bytes[size_t(m.rank)];
    out.push_back(std::move(row));
  }
  return out;
}

// Memory of a rank over the step: the highest value within each of equal intervals.
class MemoryLine {
 public:
  MemoryLine(double end_s, int64_t held, size_t passes)
      : end_s_(end_s), highest_(passes > kMostPasses ? kFewPoints : kMostPoints, -1), held_(held) {}

  // A forward raises memory over its duration, and a backward lowers it. A pass adds its workspace.
  void add(const Span& span, const Instruction& i) {
    const int64_t most = held_ + i.acquire_bytes + i.workspace_bytes;
    const int64_t after = held_ + i.acquire_bytes - i.release_bytes;
    const bool fills = i.acquire_bytes >= i.release_bytes;
    const double first = fills ? double(held_) : double(most), last = fills ? double(most) : double(after);
    const size_t begin = slot(span.start_s), end = slot(span.end_s);
    for (size_t s = begin; s <= end; ++s) {
      const double share = end == begin ? (fills ? 1.0 : 0.0) : double(s - begin) / double(end - begin);
      note(s, int64_t(first + share * (last - first)));
    }
    held_ = after;
    note(end, held_);
  }
  Json points() const {
    Json points = Json::array();
    int64_t last = 0;
    for (const int64_t value : highest_) points.push_back(last = value >= 0 ? value : last);
    return points;
  }

 private:
  // With too many passes to draw each, only the envelope: each point is the highest of several passes.
  static constexpr size_t kMostPoints = 480, kFewPoints = 40, kMostPasses = 160;
  size_t slot(double time_s) const {
    return std::min(highest_.size() - 1, size_t(time_s / end_s_ * double(highest_.size())));
  }
  void note(size_t slot, int64_t bytes) { highest_[slot] = std::max(highest_[slot], bytes); }

  double end_s_;
  std::vector<int64_t> highest_;
  int64_t held_;
};

// [rank, [bytes, ...]] for some of the ranks, from the program's acquired and released bytes.
Json memory_over_time(const StepProgram& program, const Timeline& timeline) {
  constexpr size_t kMostRanks = 8;
  const double end_s = std::max(1e-9, step_time_s(timeline));
  const size_t ranks = size_t(program.ranks);
  const auto passes = size_t(std::count_if(program.instructions.begin(), program.instructions.end(),
                                           [](const Instruction& i) { return i.is_compute(); }));
  std::vector<MemoryLine> lines;
  for (size_t rank = 0; rank < ranks; ++rank) {
    lines.emplace_back(end_s, program.static_bytes[rank], passes / ranks);
    lines.back().add({0.0, 0.0}, {});
  }
  for (InstructionId id = 0; id < program.size(); ++id) {
    const Instruction& i = program.instructions[size_t(id)];
    if (i.is_compute()) lines[size_t(program.lanes(id).front().rank)].add(timeline.spans[size_t(id)], i);
  }
  Json out = Json::array();
  // Of many ranks, some at equal distances from the first to the last.
  const size_t shown = std::min(ranks, kMostRanks);
  for (size_t n = 0; n < shown; ++n) {
    const size_t rank = shown == 1 ? 0 : n * (ranks - 1) / (shown - 1);
    out.push_back({rank, lines[rank].points()});
  }
  return out;
}

// The parts of a step that ranks time.
constexpr double RankRecord::*kTimed[] = {&RankRecord::compute_s,  &RankRecord::tensor_s,
                                          &RankRecord::context_s,  &RankRecord::expert_s,
                                          &RankRecord::sharding_s, &RankRecord::idle_s};

// A measured step's seconds by cause, averaged over ranks and steps; nothing if ranks were not timed.
std::optional<RankRecord> mean_rank(const RunResult* result) {
  if (result == nullptr) return std::nullopt;
  RankRecord sum;
  double count = 0.0;
  for (size_t s = warm_up_steps(result->steps.size()); s < result->steps.size(); ++s)
    for (const RankRecord& r : result->steps[s].ranks) {
      count += 1.0;
      for (double RankRecord::*part : kTimed) sum.*part += r.*part;
    }
  if (count == 0.0) return std::nullopt;
  for (double RankRecord::*part : kTimed) sum.*part /= count;
  return sum;
}

// [cause, predicted seconds, measured seconds or null], averaged over ranks. Causes without the prefix
// "idle:" add up to the step.
Json parts_of(const Plan& plan, const RunResult* result) {
  const std::optional<RankRecord> measured = mean_rank(result);
  constexpr double RankRecord::*kInside[] = {&RankRecord::tensor_s, &RankRecord::context_s,
                                             &RankRecord::expert_s, &RankRecord::sharding_s};
  const auto of = [&](double RankRecord::*part) { return measured ? Json((*measured).*part) : Json(); };
  Json parts = Json::array(), idle = Json::array();
  double idle_s = 0.0;
  for (const TimePart& part : time_parts(plan))
    if (part.idle) {
      idle_s += part.seconds;
      idle.push_back({"idle: " + part.what, part.seconds, Json()});
    } else {
      const auto source = part.inside ? kInside[size_t(*part.inside)] : &RankRecord::compute_s;
      parts.push_back({part.what, part.seconds, of(source)});
    }
  parts.push_back({"idle", idle_s, of(&RankRecord::idle_s)});
  for (Json& part : idle) parts.push_back(std::move(part));
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

// [link, axes that use it, devices that it connects, bandwidth, latency]
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
  // Levels shared by all devices come first, so an axis on such a level is shown there and not with a group.
  for (const LinkLevel& level : plan.cluster.levels) add("", level);
  for (const DeviceGroup& group : plan.cluster.groups)
    for (const LinkLevel& level : group.levels) add(group.name + ": ", level);
  return out;
}

Json rows_of(const std::vector<RankedLayout>& layouts) {
  Json out = Json::array();
  for (const RankedLayout& r : layouts)
    out.push_back({layout_name(r.layout) + (r.role == Role::simplest ? " (simplest)" : ""), r.step_time_s,
                   format_seconds(r.step_time_s), format_percent(r.bubble_share),
                   format_bytes(double(r.peak_bytes)), format_count(int64_t(r.tokens_per_s)), r.peak_bytes,
                   r.layout.ranks(),
                   fmt::format("{:+.1f}%", 100.0 * (r.step_time_s / layouts.front().step_time_s - 1.0)),
                   r.confidence.fits ? describe_likelihood(*r.confidence.fits) : ""});
  return out;
}

// [name, figure, line below it]: measured figures if there are any.
Json headline_of(const Plan& plan, const RunResult* result) {
  const Prediction& p = plan.prediction;
  std::string limit = "of " + format_bytes(double(plan.memory_limit_bytes));
  const std::string range = describe_range(p.confidence);
  const std::string rate = describe_utilisation(plan);
  if (result == nullptr) {
    if (p.confidence.fits) limit += "; fits: " + describe_likelihood(*p.confidence.fits);
    return {{"Step time", format_seconds(p.step_time_s),
             range.empty() ? "predicted" : range + " in 8 of 10 cases"},
            {"Tokens/s", format_count(int64_t(p.tokens_per_s)), rate},
            {"Idle", format_percent(p.bubble_share), "of the step, all causes"},
            {"Peak memory", format_bytes(double(peak_bytes(plan))), limit}};
  }
  const double step = median_step_time_s(*result), idle = median_bubble_share(*result);
  const double tokens = step > 0.0 ? double(plan.workload.tokens_per_step()) / step : 0.0;
  const auto most = *std::max_element(result->peak_bytes.begin(), result->peak_bytes.end());
  return {{"Step time, measured", format_seconds(step), "predicted " + format_seconds(p.step_time_s)},
          {"Tokens/s, measured", format_count(int64_t(tokens)),
           "predicted " + format_count(int64_t(p.tokens_per_s))},
          {"Idle, measured", format_percent(idle), "predicted " + format_percent(p.bubble_share)},
          {"Peak memory, measured", format_bytes(double(most)),
           "predicted " + format_bytes(double(peak_bytes(plan))) + ", " + limit}};
}

Json facts_of(const Plan& plan, const Facts& more) {
  Json facts = Json::array();
  const auto add = [&](const std::string& name, const std::string& value) { facts.push_back({name, value}); };
  add("Layout", describe_layout_in_words(plan.layout, &plan.workload));
  add("Short form", layout_name(plan.layout) + " (docs/notation.md)");
  add("For", fmt::format("{} in {}", plan.layout.execution->framework, enum_name(plan.layout.precision)));
  const std::string schedule = plan.layout.pipeline > 1 ? plan.schedule.name : "no pipeline";
  add("Schedule", fmt::format("{}, {} micro-batches per step", schedule, plan.schedule.micro_batches));
  for (const auto& [name, value] : more) add(name, value);
  return facts;
}

Json next_of(const std::vector<NextStep>& steps) {
  Json out = Json::array();
  for (const NextStep& step : steps) out.push_back({step.title, step.text, step.command});
  return out;
}

Json steps_of(const RunResult& result) {
  Json steps = Json::array();
  for (const StepRecord& r : result.steps)
    steps.push_back({r.step, r.loss, r.tokens_per_s, r.step_time_s, r.bubble_share});
  return steps;
}

std::string with_escapes(const std::string& text, const std::map<char, std::string_view>& escapes) {
  std::string out;
  for (const char c : text) {
    const auto escape = escapes.find(c);
    out += escape == escapes.end() ? std::string_view(&c, 1) : escape->second;
  }
  return out;
}

// Replaces marks such as {{title}} by their texts in one pass, so marks within a text stay.
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

void describe_plan(const Plan& plan, const Facts& more, Json& data) {
  data["title"] = fmt::format("{} on {}", plan.model.name, plan.cluster.name);
  data["subtitle"] =
      fmt::format("{} layers, hidden {}; {} sequences of {} tokens per step on {}", plan.model.layers.count(),
                  plan.model.hidden, plan.workload.global_batch, plan.workload.sequence, devices_text(plan));
  data["facts"] = facts_of(plan, more);
  data["unit"] = plan.layout.chunks > 1 ? "rank" : "stage";
  data["gpu"] = plan.cluster.device.kind == DeviceKind::cpu ? "rank" : "GPU";
  data["search"] = describe_certificate(plan.search, plan.prediction.step_time_s);
  data["costs"] =
      plan.cost.source + ", " + plan.cost.machine + (plan.cost.date.empty() ? "" : ", " + plan.cost.date);
  data["devices"] = devices_of(plan);
  data["links"] = links_of(plan);
  data["ranking"] = rows_of(plan.ranking);
  data["front"] = rows_of(plan.front);
  data["equal_times"] = kEqualTimes;
  data["reasons"] = plan.reasons;
  data["rejected"] = plan.rejected;
  data["evidence"] = plan.evidence;
  data["memory_limit"] = plan.memory_limit_bytes;
  data["memory_limit_text"] = format_bytes(double(plan.memory_limit_bytes));
  data["ranks"] = plan.layout.pipeline;
  data["kinds"] = enum_names<InstructionKind>();
}

std::string render(const Json& data) {
  // "<" must not end the script element that holds the data.
  const std::string json = with_escapes(json_text(data), {{'<', "\\u003c"}});
  const std::map<std::string_view, std::string> parts = {
      {"head", html_file("head.html")},   {"title", escape_html(data.at("title"))},
      {"style", html_file("report.css")}, {"draw", html_file("draw.js")},
      {"script", html_file("start.js")},  {"data", json}};
  return filled(html_file("report.html"), parts);
}

Json plan_data(const Plan& plan, const RunResult* result, const Facts& more,
               const std::string& export_target) {
  Json data;
  describe_plan(plan, more, data);
  data["headline"] = headline_of(plan, result);
  data["parts"] = parts_of(plan, result);
  data["next"] = next_of(result != nullptr ? next_steps(plan, *result) : next_steps(plan, export_target));
  data["memory"] = memory_rows(plan, result);
  data["series"] = Json::array();
  data["cut"] = false;
  return data;
}

void add_series(Json& data, const char* name, const StepProgram& program, const Timeline& timeline) {
  const bool cut = program.instructions.size() > kMostSpans;
  data["series"].push_back({name, spans_of(program, timeline, cut)});
  data["cut"] = cut;
}

Json predicted_data(const Plan& plan, const StepProgram& program, const Timeline& predicted,
                    const Facts& facts, const std::string& export_target) {
  Json data = plan_data(plan, nullptr, facts, export_target);
  data["memory_over_time"] = memory_over_time(program, predicted);
  add_series(data, "predicted", program, predicted);
  return data;
}

}  // namespace

std::string escape_html(const std::string& text) {
  return with_escapes(printable(text), {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}});
}

Json plan_report_data(const Plan& plan, const StepProgram& program, const Timeline& predicted,
                      const std::string& export_target) {
  return predicted_data(plan, program, predicted, {}, export_target);
}

std::string plan_report(const Plan& plan, const StepProgram& program, const Timeline& predicted,
                        const Facts& facts, const std::string& export_target) {
  return render(predicted_data(plan, program, predicted, facts, export_target));
}

std::string run_report(const Plan& plan, const StepProgram& program, const std::optional<Timeline>& predicted,
                       const RunResult& result) {
  Json data = plan_data(plan, &result, {}, "");
  data["memory_over_time"] = memory_over_time(program, predicted ? *predicted : result.timeline);
  if (predicted) {
    add_series(data, "predicted", program, *predicted);
    data["instructions"] = rows_of(compare_instructions(program, *predicted, result.timeline));
  }
  add_series(data, "measured", program, result.timeline);
  data["comparison"] = rows_of(compare_run(plan, result));
  data["steps"] = steps_of(result);
  return render(data);
}

}  // namespace mpt::reports
