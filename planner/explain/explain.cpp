// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/quantity.h"
#include "planner/explain/placement.h"
#include "planner/memory/memory_model.h"

namespace mpt::planner {
namespace {

std::string signed_seconds(double seconds) {
  if (std::abs(seconds) < 1e-9) seconds = 0.0;  // a rounding error, not a difference
  return (seconds < 0 ? "-" : "+") + format_seconds(std::abs(seconds));
}

std::string share(double part, double whole) { return format_percent(whole > 0 ? part / whole : 0.0); }

std::string why_first(const Candidate& best, const SearchProblem& problem) {
  const Breakdown b = breakdown(problem, best);
  const double step = best.evaluation.step_time_s;
  return fmt::format(
      "{}: {} per step, {} tokens/s. A rank computes {} ({}), spends {} in collectives inside them and "
      "idles {} ({}), of which {} at the step's end; the fullest rank holds {} of {}.",
      layout_name(best.estimate.layout), format_seconds(step),
      format_count(int64_t(double(problem.workload.tokens_per_step()) / step)), format_seconds(b.compute_s),
      share(b.compute_s, step), format_seconds(b.collectives_s), format_seconds(b.idle_s),
      share(b.idle_s, step), format_seconds(b.step_end_s), format_bytes(double(best.evaluation.peak_bytes)),
      format_bytes(double(problem.memory_limit_bytes)));
}

// The fastest of the kept layouts that differs in its split, so that the comparison says something.
const Candidate* other_split(const SearchResult& result) {
  const Layout& first = result.best.front().estimate.layout;
  for (const Candidate& c : result.best) {
    const Layout& l = c.estimate.layout;
    if (l.tensor != first.tensor || l.pipeline != first.pipeline || l.data != first.data) return &c;
  }
  return nullptr;
}

}  // namespace

namespace {

// The step would be so much shorter if transfers took no time.
double transfer_loss_s(const SearchProblem& problem, const Candidate& candidate) {
  const Evaluation& e = candidate.evaluation;
  std::vector<double> durations = e.durations_s;
  for (size_t id = 0; id < durations.size(); ++id) {
    const InstructionKind kind = e.program.instructions[id].kind;
    const bool transfer =
        kind == InstructionKind::transfer_activation || kind == InstructionKind::transfer_gradient;
    if (transfer) durations[id] = 0.0;
  }
  const Contention contention = contention_of(problem, candidate.estimate.layout);
  return std::max(0.0, e.step_time_s - step_time_s(simulate(e.program, durations, contention)));
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
    b.compute_s += span.seconds();
    if (i.kind == InstructionKind::optimizer_step) continue;
    last_compute_s = std::max(last_compute_s, span.end_s);
    const double whole = e.durations_s[size_t(id)];
    if (whole > 0) b.inside.add(candidate.estimate.cost.inside_compute(i), span.seconds() / whole);
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

std::vector<ExposedCommunication> exposed_communication(const Layout& layout, const Breakdown& b) {
  const std::tuple<CommunicationKind, bool, double> kinds[] = {
      {CommunicationKind::tensor, layout.tensor > 1, b.inside.seconds[size_t(CommunicationKind::tensor)]},
      {CommunicationKind::context, layout.context > 1, b.inside.seconds[size_t(CommunicationKind::context)]},
      {CommunicationKind::expert, layout.expert > 1, b.inside.seconds[size_t(CommunicationKind::expert)]},
      {CommunicationKind::sharding, layout.zero > 1, b.inside.seconds[size_t(CommunicationKind::sharding)]},
      {CommunicationKind::transfer, layout.pipeline > 1, b.transfer_s},
      {CommunicationKind::gradients, true, b.step_end_s}};
  std::vector<ExposedCommunication> exposed;
  for (const auto& [kind, present, seconds] : kinds) {
    if (present) exposed.push_back({kind, seconds});
  }
  return exposed;
}

std::string describe_loss(const SearchProblem& problem, const Candidate& best, const Candidate& other) {
  const Breakdown a = breakdown(problem, best), b = breakdown(problem, other);
  const double loss = other.evaluation.step_time_s - best.evaluation.step_time_s;
  return fmt::format("{} takes {} ({}): compute {}, collectives {}, idle {}.",
                     layout_name(other.estimate.layout), signed_seconds(loss),
                     share(loss, best.evaluation.step_time_s), signed_seconds(b.compute_s - a.compute_s),
                     signed_seconds(b.collectives_s - a.collectives_s), signed_seconds(b.idle_s - a.idle_s));
}

std::vector<std::string> reasons(const SearchResult& result, const SearchProblem& problem) {
  std::vector<std::string> out{why_first(result.best.front(), problem)};
  const Layout& layout = result.best.front().estimate.layout;
  if (layout.ranks() > 1) out.push_back(describe_links(problem.cluster, layout));
  if (problem.cluster.mixed()) out.push_back(describe_groups(problem, result.best.front()));
  if (result.best.size() > 1)
    out.push_back("The runner-up: " + describe_loss(problem, result.best[0], result.best[1]));
  if (const Candidate* other = other_split(result); other != nullptr && other != &result.best[1]) {
    out.push_back("The best other split: " + describe_loss(problem, result.best.front(), *other));
  }
  return out;
}

std::vector<std::string> rejections(const SearchResult& result, const SearchProblem& problem) {
  constexpr size_t kMost = 6;
  std::vector<std::string> out;
  for (const MemoryFamily& family : result.over_memory) {
    out.push_back(fmt::format("memory: {} layouts of {} do not fit; a near miss, {}, is {} over: {}",
                              family.count, family.name, layout_name(family.layout),
                              format_bytes(family.nearest.needed - family.nearest.available),
                              family.nearest.reason));
  }
  if (result.more_over_memory > 0)
    out.push_back(fmt::format("memory: layouts of {} more splits", result.more_over_memory));
  for (const auto& [reason, count] : result.not_dividing) {
    if (out.size() >= 2 * kMost) break;
    out.push_back(fmt::format("divides: {}{}", reason, count > 1 ? fmt::format(" ({} times)", count) : ""));
  }
  if (result.certificate.over_bound > 0 && result.certificate.optimal && !result.best.empty()) {
    out.push_back(fmt::format(
        "time: {} layouts cannot be faster than {}, the last of the {} above: their busiest rank's own "
        "work takes longer",
        format_count(result.certificate.over_bound),
        format_seconds(result.best.back().evaluation.step_time_s), result.best.size()));
  }
  if (out.empty()) {
    out.push_back(fmt::format("nothing: all {} layouts on {} fit and were simulated",
                              result.certificate.layouts, problem.cluster.name));
  }
  return out;
}

void throw_nothing_fits(const SearchResult& result, const SearchProblem& problem) {
  if (!result.certificate.optimal) {
    throw UserError(Problem{"--time-limit",
                            fmt::format("the search was stopped after {} without a layout that fits",
                                        format_seconds(result.certificate.seconds)),
                            "more time", "raise it, or bound the space with --tp, --pp and the like"});
  }
  if (result.over_memory.empty()) {
    std::string why;
    constexpr size_t kMost = 6;
    size_t told = 0;
    for (const auto& [reason, count] : result.not_dividing) {
      if (told++ < kMost) why += (told == 1 ? ": " : "; ") + reason;
    }
    if (told > kMost) why += fmt::format("; and {} more", told - kMost);
    throw UserError(Problem{
        "layouts", fmt::format("none divides the model and the batch over {} ranks{}", problem.ranks, why),
        "at least one", "change --global-batch, the number of ranks, or the degrees that are fixed"});
  }
  const MemoryFamily& family = result.over_memory.front();
  throw UserError(Problem{
      "--memory",
      fmt::format("{} per rank, and no layout of {} fits", format_bytes(double(problem.memory_limit_bytes)),
                  format_count(result.certificate.layouts)),
      fmt::format("at least {}", format_bytes(family.nearest.needed)),
      fmt::format("the smallest is {}; {}", layout_name(family.layout), family.nearest.reason)});
}

}  // namespace mpt::planner
