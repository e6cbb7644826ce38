// SPDX-License-Identifier: Apache-2.0
#include "planner/diagnose/diagnose.h"

#include "base/quantity.h"
#include "base/terminal.h"
#include "planner/cost/collective.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

// Traffic with a smaller predicted share of the step cannot explain the loss.
constexpr double kLeastTraffic = 0.02;

// A program of nccl-tests and its arguments.
struct Benchmark {
  const char* program;
  int64_t bytes = 0;
  GroupPlace group;
};

int64_t most(const Plan& plan, int64_t StageFootprint::*bytes) {
  return max_of<int64_t>(plan.footprints, 0, bytes);
}

Benchmark benchmark_of(CommunicationKind kind, const Plan& plan) {
  const Layout& l = plan.layout;
  const int64_t boundary = most(plan, &StageFootprint::boundary_bytes);
  // With sequence parallelism a rank's boundary is one rank's share of the message.
  const int64_t message = boundary * (l.sequence_parallel ? l.tensor : 1);
  const int64_t layers = std::max<int64_t>(1, l.layers_per_stage.empty() ? 1 : l.layers_per_stage.front());
  const int64_t shards = std::max<int64_t>(1, l.shard),
                bytes = std::max<int64_t>(2, l.execution->states.weight_bytes);
  switch (kind) {
    case CommunicationKind::tensor:
      return {l.sequence_parallel ? "all_gather_perf" : "all_reduce_perf", message, tensor_group(l)};
    case CommunicationKind::context:
      return {l.context_method == ContextMethod::ring ? "sendrecv_perf" : "alltoall_perf", message,
              context_group(l)};
    case CommunicationKind::expert:
      return {"alltoall_perf",
              message * (plan.model.moe() != nullptr ? plan.model.moe()->experts_per_token : 1),
              expert_parallel_group(l)};
    case CommunicationKind::sharding:
      return {"all_gather_perf",
              most(plan, &StageFootprint::parameter_bytes) * (l.zero == 3 ? shards : 1) / layers * 2 / bytes,
              data_group(l)};
    case CommunicationKind::transfer:
      return {"sendrecv_perf", boundary, {2, l.ranks() / l.pipeline * 2}};
    case CommunicationKind::gradients:
      return {l.scatters_gradients() ? "reduce_scatter_perf" : "all_reduce_perf",
              most(plan, &StageFootprint::gradient_bytes) * (l.zero > 1 ? shards : 1) /
                  (l.zero == 3 ? layers : 1),
              data_group(l)};
  }
  return {"all_reduce_perf", message, tensor_group(l)};
}

std::string describe(const Benchmark& b, CommunicationKind kind, double share, const ClusterSpec& cluster) {
  const int64_t per_node = std::max<int64_t>(1, cluster.devices_per_node);
  const int64_t nodes = std::min(b.group.ranks, (b.group.extent + per_node - 1) / per_node);
  const int64_t mib = std::max<int64_t>(1, b.bytes / kMiB);
  return fmt::format(
      "NCCL: {} -b {}M -e {}M of nccl-tests on {} GPUs of {} times the {} traffic, {} of the predicted step. "
      "mpt-profile import takes its output.",
      b.program, mib, mib, b.group.ranks, nodes <= 1 ? "one node" : fmt::format("{} nodes", nodes),
      enum_name(kind), format_percent(share));
}

}  // namespace

std::vector<std::string> next_measurements(const Plan& plan, const MeasuredRun& run) {
  std::vector<std::string> lines;
  if (run.instructions.empty() && !any_of(run.part_s, [](double s) { return s > 0.0; }))
    lines.push_back(
        run.finer.empty()
            ? std::string("Timers: a log of the run with its timers says which part of the step is slow.")
            : fmt::format("Timers: {} says which part of the step is slow.", run.finer));
  if (plan.cluster.device.kind == DeviceKind::gpu && plan.cost.source != "profile") {
    const std::string& name = plan.request.model.name;
    lines.push_back(
        fmt::format("Kernels: mpt-profile --model {} --seq {} --device cuda --precision {} on one node times "
                    "compute, {} of the predicted step.",
                    shell_word(name.empty() ? plan.model.name : name), plan.workload.sequence,
                    enum_name(plan.layout.precision),
                    format_percent(reports::time_parts(plan).front().seconds / plan.prediction.step_time_s)));
  }
  const ExposedCommunication* worst = nullptr;
  double most_s = kLeastTraffic * plan.prediction.step_time_s;
  for (const auto& e : plan.prediction.exposed)
    if (e.seconds > most_s) worst = &e, most_s = e.seconds;
  if (worst != nullptr && plan.cluster.device.kind == DeviceKind::gpu)
    lines.push_back(describe(benchmark_of(worst->kind, plan), worst->kind,
                             most_s / plan.prediction.step_time_s, plan.cluster));
  return lines;
}

}  // namespace mpt::planner
