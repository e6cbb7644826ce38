// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/kernel_parts.h"

#include <tuple>

namespace mpt::planner {
namespace {

using profiler::Phase;

// Bytes per element: read for its magnitude; read again and written, in one order or in both.
constexpr double kMagnitudeBytes = 2.0, kOneOrderBytes = 2.0 + 1.0, kBothOrdersBytes = 2.0 + 2.0;

using models::CollectiveKind;
using models::OperatorKind;
using models::OperatorShape;

constexpr CollectiveKind kRings[] = {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                     CollectiveKind::reduce_scatter};

bool is_ring(CollectiveKind kind) { return kind != CollectiveKind::all_to_all; }

// The cluster of the measurement: its nodes had no other ranks, which would share the ports.
ClusterSpec with_ranks_per_host(const ClusterSpec& cluster, int64_t ranks_per_host) {
  ClusterSpec alone = cluster;
  alone.devices_per_node = ranks_per_host;
  for (LinkLevel& level : alone.levels)
    level.group_size = std::max<int64_t>(1, level.group_size * ranks_per_host / cluster.devices_per_node);
  return alone;
}

struct Timed {
  CollectiveKind kind = CollectiveKind::all_reduce;
  int64_t hosts = 0, ranks = 0;
  const profiler::LogGrid* seconds = nullptr;
};

// The most similar timed collective: of the same kind, equally spread, with the most ranks up to the group's.
std::optional<Timed> nearest_timed(const profiler::KernelTables& own, CollectiveKind kind,
                                   const GroupPlace& group, const ClusterSpec& cluster) {
  const size_t level = level_of_blocks(cluster, group.extent);
  std::optional<Timed> nearest;
  std::tuple<bool, bool, int64_t> nearness;
  for (const auto& measured : own.collective_of_hosts) {
    const auto& by_operation = measured.second;
    const auto hosts = measured.first[0], ranks = measured.first[1];
    const int64_t extent = hosts * cluster.devices_per_node;
    if (ranks / hosts > cluster.devices_per_node || level_of_blocks(cluster, extent) != level) continue;
    const bool alike = ranks * group.extent == group.ranks * extent;
    const auto consider = [&](CollectiveKind timed) {
      const auto found = by_operation.find(enum_name(timed));
      if (found == by_operation.end()) return;
      const std::tuple<bool, bool, int64_t> this_near{timed == kind, alike,
                                                      ranks > group.ranks ? -ranks : ranks};
      if (nearest && this_near <= nearness) return;
      nearest = Timed{timed, hosts, ranks, &found->second};
      nearness = this_near;
    };
    if (!is_ring(kind)) consider(kind);
    for (const CollectiveKind ring : kRings)
      if (is_ring(kind)) consider(ring);
  }
  return nearest;
}

struct LaunchesOfKind {
  OperatorKind kind;
  Launches fused, eager;  // forward, input gradient, weight gradient
};
constexpr LaunchesOfKind kLaunches[] = {{OperatorKind::linear, {2, 2, 2}, {2, 2, 2}},
                                        {OperatorKind::attention, {3, 4, 0}, {3, 4, 0}},
                                        {OperatorKind::norm, {1, 2, 0}, {4, 6, 0}},
                                        {OperatorKind::activation, {1, 1, 0}, {2, 4, 0}},
                                        {OperatorKind::residual_add, {1, 1, 0}, {2, 2, 0}},
                                        {OperatorKind::rotary, {2, 2, 0}, {10, 12, 0}},
                                        {OperatorKind::router, {12, 12, 0}, {12, 12, 0}},
                                        {OperatorKind::embedding, {3, 3, 0}, {3, 3, 0}},
                                        {OperatorKind::cross_entropy, {12, 6, 0}, {12, 6, 0}},
                                        {OperatorKind::index, {8, 0, 0}, {8, 0, 0}},
                                        {OperatorKind::convolution, {1, 2, 0}, {1, 2, 0}},
                                        {OperatorKind::recurrence, {6, 10, 0}, {6, 10, 0}},
                                        {OperatorKind::widen, {1, 1, 0}, {1, 1, 0}}};

// In addition to the products, tokens are sorted, weighted and split.
Launches launches_of_experts(const OperatorShape& s, bool fused) {
  if (fused) return {6, 6, 4};
  const Launches each = launches_of_expert(is_narrow(s.precision));
  const double experts = double(std::max<int64_t>(1, s.batch));
  return {5 + experts * each.forward, 5 + experts * each.input_gradient, 3 + experts * each.weight_gradient};
}

}  // namespace

Launches launches_of_expert(bool fp8) { return fp8 ? Launches{5, 5, 3} : Launches{1, 1, 1}; }

Launches launches_of(const OperatorShape& s, const Execution& e) {
  if (s.kind == OperatorKind::expert_linear) return launches_of_experts(s, e.kernels.fuses_experts);
  if (s.kind == OperatorKind::norm && s.extra) return {8, 16, 0};
  if (s.kind == OperatorKind::attention && e.kernels.attention == AttentionKernel::unfused) return {8, 12, 0};
  if (s.kind == OperatorKind::attention && e.kernels.attention == AttentionKernel::plain) return {18, 14, 0};
  const auto* const found = first_if(kLaunches, [&](const auto& row) { return row.kind == s.kind; });
  return e.kernels.elementwise == ElementwiseKernels::eager ? found->eager : found->fused;
}

bool narrows_as_own_runtime(const Execution& execution, const models::OperatorShape& shape) {
  return shape.kind == models::OperatorKind::linear && shape.precision == Precision::fp8 &&
         execution.kernels.narrows_apart;
}

double own_cast_bytes(const models::OperatorShape& s, Phase phase) {
  const double input = double(s.rows) * double(s.inner), gradient = double(s.rows) * double(s.columns);
  return phase == Phase::forward          ? input * (kMagnitudeBytes + kOneOrderBytes)
         : phase == Phase::input_gradient ? gradient * (kMagnitudeBytes + kBothOrdersBytes)
                                          : input * kOneOrderBytes;
}

double other_own_cast_bytes(const models::Operator& op, const Layout& layout, Phase phase) {
  const models::OperatorShape& s = op.shape;
  double bytes = 0.0;
  if (phase == Phase::forward && op.module == models::Module::mlp_down)
    bytes -= double(s.rows) * double(s.inner) * kMagnitudeBytes;
  if (phase == Phase::input_gradient && op.module == models::Module::mlp_up)
    bytes -= double(s.rows) * double(s.columns) * kMagnitudeBytes;
  if (phase != Phase::weight_gradient && layout.zero >= 3)
    bytes += double(s.columns) * double(s.inner) * (kMagnitudeBytes + kOneOrderBytes);
  return bytes;
}

std::optional<double> measured_over_formula(const profiler::KernelTables& own, CollectiveKind kind,
                                            int64_t bytes, const GroupPlace& group,
                                            const ClusterSpec& cluster) {
  if (own.collective_of_hosts.empty() || cluster.mixed()) return std::nullopt;
  // Inside a node hosts do not matter: its measured times have a separate table.
  if (group.extent <= cluster.devices_per_node) return std::nullopt;
  const auto timed = nearest_timed(own, kind, group, cluster);
  if (!timed) return std::nullopt;
  const ClusterSpec alone = with_ranks_per_host(cluster, timed->ranks / timed->hosts);
  const double by_formula = collective_s(timed->kind, bytes, {timed->ranks, timed->ranks}, alone);
  if (!(by_formula > 0.0)) return std::nullopt;
  return timed->seconds->at({double(bytes), 1.0, 1.0}) / by_formula;
}

}  // namespace mpt::planner
