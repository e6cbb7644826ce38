// SPDX-License-Identifier: Apache-2.0

// mpt-plan estimate: scores a layout that somebody has, whether it fits or not, and says what would be
// better.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "core/error.h"
#include "core/quantity.h"
#include "core/schedule_catalog.h"
#include "planner/commands/commands.h"
#include "planner/diagnose/judge.h"
#include "planner/explain/evidence.h"
#include "planner/explain/explain.h"
#include "planner/explain/operators.h"
#include "planner/explain/streams.h"
#include "planner/explain/utilisation.h"
#include "reports/table.h"

namespace mpt::planner {
namespace {

struct EstimateOptions {
  std::string plan;
  PlanOptions problem;
};

template <class T>
T one(const std::vector<T>& values, T otherwise) {
  return values.empty() ? otherwise : values.front();
}

// The layout that the options name; what they leave out is 1, off or what the rest leaves.
Layout layout_from(const SearchProblem& problem) {
  const SpaceBounds& b = problem.bounds;
  Layout l;
  l.tensor = one<int64_t>(b.tensor, 1);
  l.context = one<int64_t>(b.context, 1);
  l.pipeline = one<int64_t>(b.pipeline, 1);
  const int64_t fixed = l.tensor * l.context * l.pipeline;
  l.data = one<int64_t>(b.data, std::max<int64_t>(1, problem.ranks / fixed));
  l.expert = one<int64_t>(b.expert, 1);
  // Experts are split like the dense layers where that leaves room for them, else they stay whole.
  const int64_t pool = l.tensor * l.context * l.data;
  l.expert_tensor = one<int64_t>(b.expert_tensor, pool % (l.expert * l.tensor) == 0 ? 0 : 1);
  if (l.expert_tensor == l.tensor) l.expert_tensor = 0;
  l.sequence_parallel = one(b.sequence_parallel, l.expert > 1 && l.tensor > 1);
  l.context_method = one(b.context_methods, ContextMethod::ring);
  l.zero = one<int64_t>(b.zero, 0);
  l.shard = l.zero > 0 ? l.replicas() : 1;
  l.offload_optimizer = one(b.offload, false);
  l.order = one(b.orders, RankOrder::pipeline_outermost);
  l.micro_batch = one<int64_t>(b.micro_batch, 1);
  l.precision = problem.precision;
  l.execution = problem.execution;
  l.recompute = one(b.recomputes, Recompute::none);
  problem.set_overlaps(l);
  l.chunks = one<int64_t>(b.chunks, 1);
  l.schedule = one<std::string>(b.schedules, l.chunks > 1 ? "interleaved" : "1f1b");
  const ScheduleEntry& entry = find_schedule(l.schedule, "--schedule");
  if (b.chunks.empty()) l.chunks = entry.min_chunks;
  if (l.chunks < entry.min_chunks || l.chunks > entry.max_chunks) {
    throw UserError(Problem{"--chunks", std::to_string(l.chunks),
                            fmt::format("{} to {} with {}", entry.min_chunks, entry.max_chunks, l.schedule),
                            ""});
  }
  l.layers_per_stage = even_stages(problem.model.layers, l.stages());
  return l;
}

void check(const SearchProblem& problem, const Layout& layout) {
  if (layout.ranks() > problem.cluster.devices) {
    throw UserError(
        Problem{"layout " + layout_name(layout), fmt::format("{} ranks", layout.ranks()),
                fmt::format("at most the {} devices of {}", problem.cluster.devices, problem.cluster.name),
                "change a degree, or give a larger --cluster"});
  }
  if (layout.ranks() < problem.ranks) {
    fmt::print(stderr, "mpt-plan: note: {} ranks of the layout leave {} of {} devices idle\n", layout.ranks(),
               problem.ranks - layout.ranks(), problem.ranks);
  }
  if (auto rejection = check_layout(problem.model, layout, problem.workload)) {
    throw UserError(Problem{"layout " + layout_name(layout), rejection->reason,
                            "a layout that divides the model and the batch",
                            "change the degree or --global-batch"});
  }
}

std::string memory_table(const Plan& plan) {
  reports::Table table({{"pipeline rank"},
                        {"weights"},
                        {"gradients"},
                        {"optimizer"},
                        {"transfer buffers"},
                        {"activations"},
                        {"peak"}});
  constexpr size_t kShown = 16;
  const auto& memory = plan.prediction.memory;
  for (size_t r = 0; r < memory.size() && r < kShown; ++r) {
    const RankMemory& m = memory[r];
    table.add_row({std::to_string(m.rank), format_bytes(double(m.parameter_bytes)),
                   format_bytes(double(m.gradient_bytes)), format_bytes(double(m.optimizer_bytes)),
                   format_bytes(double(m.transfer_buffer_bytes)),
                   format_bytes(double(m.activation_peak_bytes)), format_bytes(double(m.peak_bytes))});
  }
  const std::string more =
      memory.size() > kShown ? fmt::format("  and {} more ranks\n", memory.size() - kShown) : "";
  return table.text() + more;
}

const char* communication_name(CommunicationKind kind) {
  switch (kind) {
    case CommunicationKind::tensor:
      return "tensor-parallel collectives";
    case CommunicationKind::context:
      return "context-parallel exchange";
    case CommunicationKind::expert:
      return "expert-parallel all-to-all";
    default:
      return "gathering of sharded weights";
  }
}

std::string describe_estimate(const SearchProblem& problem, const Plan& plan, const Candidate& candidate) {
  const Breakdown b = breakdown(problem, candidate);
  const double step = plan.prediction.step_time_s;
  const auto part = [&](const char* name, double seconds) {
    return fmt::format("  {:<38} {:>10}  {:>6}\n", name, format_seconds(seconds),
                       format_percent(seconds / step));
  };
  std::string text = fmt::format("{}\n{} on {} of {}, {} sequences of {} tokens per step\n\n",
                                 layout_name(plan.layout), plan.model.name, plan.layout.ranks(),
                                 plan.cluster.name, plan.workload.global_batch, plan.workload.sequence);
  text += fmt::format("  step time {}, {} tokens/s, bubble {}; model work of {}\n\n", format_seconds(step),
                      format_count(int64_t(plan.prediction.tokens_per_s)),
                      format_percent(plan.prediction.bubble_share), reports::describe_utilisation(plan));
  text += "Where a rank's step goes\n" + part("compute", b.compute_s);
  double transfer_s = 0.0;
  for (const auto& [kind, seconds] : plan.prediction.exposed) {
    if (kind == CommunicationKind::transfer) transfer_s = seconds;
    if (size_t(kind) < kInsideKinds) text += part(communication_name(kind), seconds);
  }
  text += part("bubble", std::max(0.0, b.idle_s - b.step_end_s - transfer_s));  // rounding aside
  if (plan.layout.pipeline > 1) text += part("transfers between stages", transfer_s);
  text += part("gradients and norm at the end", b.step_end_s);
  text += fmt::format("\nMemory, {} per rank\n", format_bytes(double(plan.memory_limit_bytes))) +
          memory_table(plan);
  const auto& rejection = candidate.evaluation.rejection;
  text += rejection ? fmt::format("  DOES NOT FIT by {}: {}\n",
                                  format_bytes(rejection->needed - rejection->available), rejection->reason)
                    : "  It fits.\n";
  const std::string host = describe_host_memory(plan);
  if (!host.empty()) text += "  " + host;
  return text + describe_evidence(plan);
}

std::string advice(const SearchProblem& given, const Candidate& mine) {
  SearchProblem problem = given;
  problem.bounds = {};
  problem.near_misses = false;
  const auto search = watched_search(problem, 1);
  const SearchResult& result = search->result;
  if (result.best.empty()) return "\nNo layout of this cluster fits; see mpt-plan without a layout.\n";
  const Candidate& best = result.best.front();
  const double gain = 1.0 - best.evaluation.step_time_s / mine.evaluation.step_time_s;
  std::string text = "\nBetter\n";
  const bool fits = !mine.evaluation.rejection;
  if (gain <= 1e-9 && fits) {
    text += fmt::format("  None: no layout of the {} is faster.\n", format_count(result.certificate.layouts));
  } else if (gain <= 0.0) {
    text += fmt::format("  The fastest that fits is {}: {} per step.\n", layout_name(best.estimate.layout),
                        format_seconds(best.evaluation.step_time_s));
  } else {
    text += fmt::format("  {}: {} per step, {} less, {} of memory.\n  Against it, {}\n",
                        layout_name(best.estimate.layout), format_seconds(best.evaluation.step_time_s),
                        format_percent(gain), format_bytes(double(best.evaluation.peak_bytes)),
                        describe_loss(problem, best, mine));
  }
  return text + describe_certificate(result.certificate);
}

// The problem on the devices that the layout uses, where it leaves some idle; nothing where all are used.
std::unique_ptr<PreparedSearch> on_used_part(const PlanOptions& o, const Plan* given,
                                             const SearchProblem& problem, const Layout& layout) {
  if (layout.ranks() >= problem.ranks || problem.cluster.mixed() || !o.profile.empty()) return nullptr;
  PlanOptions part = o;
  part.ranks = layout.ranks();
  part.memory = std::to_string(problem.memory_limit_bytes);
  return prepare(part, given);
}

// A plan's own layout leaves nothing open.
void check_plan_options(const CLI::App& command, const EstimateOptions& o) {
  if (o.plan.empty()) return;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 || option->get_group() != "Layout") continue;
    throw UserError(Problem{"--plan", "excludes " + option->get_name(), "one or the other",
                            "the plan holds its layout; leave --plan out and name all of it"});
  }
}

}  // namespace

std::string describe_host(const PlanOptions& o, const Plan* given, const Layout& layout, double step_time_s) {
  constexpr double kWorthSaying = 0.03;
  const Execution& execution = layout.execution;
  if (execution.framework == Execution{}.framework || execution.graphs || execution.launch_us <= 0.0)
    return "";
  PlanOptions with_graphs = o;
  with_graphs.execution.emplace_back("graphs=true");
  const auto prepared = prepare(with_graphs, given);
  Layout graphed = layout;
  graphed.execution = prepared->problem.execution;
  const double graphed_s =
      evaluate_regardless(prepared->problem, estimate(prepared->problem, graphed)).step_time_s;
  const double less = 1.0 - graphed_s / step_time_s;
  if (less < kWorthSaying) return "";
  return fmt::format(
      "\nThe device waits for the host\n  Were all kernels launched from CUDA graphs (--execution "
      "graphs=true), a step would take {}, {} less.\n",
      format_seconds(graphed_s), format_percent(less));
}

void score(const PlanOptions& o, const Plan* given) {
  const auto prepared = prepare(o, given);
  const SearchProblem& problem = prepared->problem;
  Layout layout = given != nullptr ? given->layout : layout_from(problem);
  layout.precision = problem.precision;
  layout.execution = problem.execution;
  if (given != nullptr && !o.overlaps.empty()) problem.set_overlaps(layout);
  check(problem, layout);
  const auto used = on_used_part(o, given, problem, layout);
  const SearchProblem& priced = used ? used->problem : problem;
  Candidate candidate{estimate(priced, layout), {}};
  candidate.evaluation = evaluate_regardless(priced, candidate.estimate);
  const Plan plan = plan_of(problem, candidate);
  const std::string judgement = describe_judgement(plan, o.measured);
  if (o.out.json) fmt::print(stderr, "{}", judgement);
  std::string text;
  if (!o.out.json) {
    text = describe_estimate(problem, plan, candidate) + describe_cost(o.cost, plan) + judgement;
    if (o.operators) text += "\n" + describe_operators(problem, layout);
    if (o.streams) {
      const Evaluation& whole = candidate.evaluation;
      text += "\n" + describe_streams(simulate_streams(problem, layout, whole.program), whole.step_time_s);
    }
    text += describe_host(o, given, layout, candidate.evaluation.step_time_s) + advice(problem, candidate);
  }
  write_outputs(o.out, plan, text, o.cost, &problem);
}

std::function<int()> add_estimate(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("estimate", "Score a layout that you have, and see what would be better");
  auto o = std::make_shared<EstimateOptions>();
  command->add_option("--plan", o->plan,
                      "Score the layout of this plan file, here or on another --cluster or --model");
  declare_problem(*command, o->problem);
  declare_space(*command, o->problem.space, false);
  command->add_flag(
      "--operators", o->problem.operators,
      "Print what a forward and a backward are made of: operators, their speed, and collectives");
  command->add_flag(
      "--streams", o->problem.streams,
      "Simulate the step operator by operator: what each stream does, alone and beside compute");
  declare_measured(*command, o->problem);
  declare_outputs(*command, o->problem.out);
  declare_cost(*command, o->problem.cost);
  return [command, o] {
    check_plan_options(*command, *o);
    check_outputs(o->problem.out);
    if (o->plan.empty()) {
      score(o->problem, nullptr);
    } else {
      const Plan plan = load_plan(o->plan);
      score(o->problem, &plan);
    }
    return kExitOk;
  };
}

}  // namespace mpt::planner
