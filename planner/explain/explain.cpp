// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/explain.h"

#include "base/quantity.h"
#include "core/ties.h"
#include "planner/explain/plan_parts.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

std::string share(double part, double whole) { return format_difference(whole > 0 ? part / whole : 0.0); }

// The fastest of the kept layouts with another split, for a useful comparison.
const Candidate* other_split(const SearchResult& result) {
  const Layout& first = result.best.front().estimate.layout;
  return first_if(result.best, [&](const Candidate& c) {
    const Layout& l = c.estimate.layout;
    return l.tensor != first.tensor || l.pipeline != first.pipeline || l.data != first.data;
  });
}

// The seconds by which the step would be shorter if transfers took no time.
double transfer_loss_s(const SearchProblem& problem, const Candidate& candidate) {
  const Evaluation& e = candidate.evaluation;
  std::vector<double> durations = e.durations_s;
  for (size_t id = 0; id < durations.size(); ++id)
    if (e.program.instructions[id].is_transfer()) durations[id] = 0.0;
  const Contention contention = contention_of(problem, candidate.estimate.layout);
  return std::max(0.0, step_time_s(e.timeline) - step_time_s(simulate(e.program, durations, contention)));
}

std::string loss_of(const SearchProblem& problem, const Candidate& best, const Candidate& other) {
  const double loss = other.evaluation.step_time_s - best.evaluation.step_time_s;
  const std::string name = layout_name(other.estimate.layout);
  if (std::abs(loss) < kEqualTimes * best.evaluation.step_time_s) return name + " takes as long.";
  return fmt::format("{} is {} slower{}.", name, share(loss, best.evaluation.step_time_s),
                     difference_of(problem, best, other));
}

bool ties(const Candidate& best, const Candidate& other) {
  return other.evaluation.step_time_s < (1.0 + kEqualTimes) * best.evaluation.step_time_s;
}

// The need or the step time of the layout without one of its parts.
std::string without(const SearchProblem& problem, const Candidate& best, const Layout& changed,
                    const std::string& what) {
  if (check_layout(problem.model, changed, problem.workload)) return "";
  const Evaluation other = evaluate(problem, estimate(problem, changed));
  if (other.rejection)
    return fmt::format("{} it would need {} per {}; there are {}.", what,
                       format_bytes(other.rejection->needed), reports::device_word(problem.cluster),
                       format_bytes(other.rejection->available));
  const double loss = other.step_time_s - best.evaluation.step_time_s;
  if (loss < kEqualTimes * best.evaluation.step_time_s) return "";
  if (changed.recompute != best.estimate.layout.recompute && problem.cost->origin().spread > kNoisySpread)
    return what +
           " it would be slower by the profile's times. That is not possible: the profile is too noisy.";
  return fmt::format("{} it would be {} slower.", what, share(loss, best.evaluation.step_time_s));
}

// Adds the benefit of each part of the layout.
void add_parts(const SearchProblem& problem, const Candidate& best, std::vector<std::string>& out) {
  const auto add = [&](bool present, const std::string& what, auto&& change) {
    if (!present) return;
    Layout changed = best.estimate.layout;
    change(changed);
    std::string text = without(problem, best, changed, what);
    if (!text.empty()) out.push_back(std::move(text));
  };
  const Layout& l = best.estimate.layout;
  add(l.recompute != Recompute::none, "Without recompute", [](Layout& c) {
    c.recompute = Recompute::none;
    c.recomputed_layers.clear();
  });
  add(l.offload_optimizer, "With the optimizer on the GPUs", [](Layout& c) { c.offload_optimizer = false; });
  add(l.zero > 0, "Without ZeRO", [](Layout& c) {
    c.zero = 0;
    c.shard = 1;
  });
  const bool plain = l.chunks == 1 && l.schedule == "1f1b";
  add(l.pipeline > 1 && !plain && l.recomputed_layers.empty(), "With the schedule 1f1b", [&](Layout& c) {
    c.schedule = "1f1b";
    c.chunks = 1;
    // Each stage keeps the layers of its chunks.
    c.layers_per_stage.assign(size_t(l.pipeline), 0);
    for (size_t s = 0; s < l.layers_per_stage.size(); ++s)
      c.layers_per_stage[size_t(best.evaluation.program.rank_of_stage[s])] += l.layers_per_stage[s];
  });
}

}  // namespace

Breakdown breakdown(const SearchProblem& problem, const Candidate& candidate) {
  const Evaluation& e = candidate.evaluation;
  Breakdown b;
  double last_compute_s = 0.0, norm_end_s = 0.0;
  for (InstructionId id = 0; id < e.program.size(); ++id) {
    const Instruction& i = e.program.instructions[size_t(id)];
    const Span& span = e.timeline.spans[size_t(id)];
    if (i.kind == InstructionKind::reduce_norm) norm_end_s = span.end_s;
    if (!i.is_compute()) continue;
    const double times = i.micro_batch < 0 ? 1.0 : e.times();
    b.compute_s += times * span.seconds();
    if (i.kind == InstructionKind::optimizer_step) continue;
    last_compute_s = std::max(last_compute_s, span.end_s);
    const double whole = e.durations_s[size_t(id)];
    if (whole > 0) b.inside.add(candidate.estimate.cost.inside_compute(i), times * span.seconds() / whole);
  }
  b.compute_s /= e.program.ranks;
  for (double& seconds : b.inside.seconds) seconds /= e.program.ranks;
  b.collectives_s = b.inside.total();
  b.compute_s -= b.collectives_s;
  b.idle_s = e.step_time_s - b.compute_s - b.collectives_s;
  b.step_end_s = std::max(last_compute_s, norm_end_s) - last_compute_s;
  b.transfer_s = transfer_loss_s(problem, candidate);
  return b;
}

std::string difference_of(const SearchProblem& problem, const Candidate& first, const Candidate& other) {
  const Breakdown a = breakdown(problem, first), b = breakdown(problem, other);
  const std::pair<double, const char*> parts[] = {{b.compute_s - a.compute_s, "computing"},
                                                  {b.collectives_s - a.collectives_s, "communication"},
                                                  {b.idle_s - a.idle_s, "idle time"}};
  constexpr double kHardly = 0.1;
  const double largest = max_of(parts, 0.0, [](const auto& part) { return std::abs(part.first); });
  std::string text;
  for (const auto& [seconds, what] : parts) {
    if (std::abs(seconds) < kHardly * largest || largest < 1e-9) continue;
    text += fmt::format("{}{} {} {}", text.empty() ? ": " : ", ", format_seconds(std::abs(seconds)),
                        seconds > 0 ? "more" : "less", what);
  }
  return text;
}

std::vector<ExposedCommunication> exposed_communication(const Layout& layout, const Breakdown& b) {
  const std::pair<CommunicationKind, int64_t> inside[] = {{CommunicationKind::tensor, layout.tensor},
                                                          {CommunicationKind::context, layout.context},
                                                          {CommunicationKind::expert, layout.expert},
                                                          {CommunicationKind::sharding, layout.zero}};
  std::vector<ExposedCommunication> exposed;
  for (const auto& [kind, degree] : inside)
    if (degree > 1) exposed.push_back({kind, b.inside.seconds[size_t(kind)]});
  if (layout.pipeline > 1) exposed.push_back({CommunicationKind::transfer, b.transfer_s});
  exposed.push_back({CommunicationKind::gradients, b.step_end_s});
  return exposed;
}

std::vector<std::string> reasons(const SearchResult& result, const SearchProblem& problem) {
  const Candidate& best = result.best.front();
  const Layout& layout = best.estimate.layout;
  std::vector<std::string> out;
  if (problem.near_misses && !best.evaluation.rejection) add_parts(problem, best, out);
  if (problem.cluster.mixed()) out.push_back(describe_groups(problem, best));
  if (const Candidate* other = other_split(result); other != nullptr)
    out.push_back("Another split: " + loss_of(problem, best, *other));
  else if (result.best.size() > 1 && (out.empty() || !ties(best, result.best[1])))
    out.push_back("The next fastest: " + loss_of(problem, best, result.best[1]));
  if (layout.ranks() > 1) out.push_back(describe_links(problem.cluster, layout));
  return out;
}

std::vector<std::string> rejections(const SearchResult& result, const SearchProblem& problem) {
  constexpr size_t kMost = 6;
  std::vector<std::string> out;
  for (const NearMiss& family : result.over_memory)
    out.push_back(fmt::format("memory: {} layouts of {} do not fit; {} needs {} more than there is: {}",
                              format_count(family.count), family.name, layout_name(family.layout),
                              format_bytes(family.nearest.needed - family.nearest.available),
                              family.nearest.reason));
  if (result.more_over_memory > 0)
    out.push_back(fmt::format("memory: layouts of {} other splits do not fit either",
                              format_count(result.more_over_memory)));
  for (const auto& [reason, count] : result.not_dividing) {
    if (out.size() >= 2 * kMost) break;
    out.push_back(
        fmt::format("not possible: {}{}", reason, count > 1 ? fmt::format(" ({} times)", count) : ""));
  }
  if (result.certificate.over_bound > 0 && result.certificate.optimal && !result.best.empty())
    out.push_back(
        fmt::format("time: {} layouts need {} or more for the work of their busiest GPU alone, so "
                    "they cannot be among the {} fastest",
                    format_count(result.certificate.over_bound),
                    format_seconds(result.best.back().evaluation.step_time_s), result.best.size()));
  if (out.empty())
    out.push_back(fmt::format("nothing: all {} layouts on {} fit and were simulated",
                              format_count(result.certificate.layouts), problem.cluster.name));
  return out;
}

}  // namespace mpt::planner
