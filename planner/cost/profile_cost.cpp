// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "base/error.h"
#include "base/ranges.h"
#include "models/layer_kinds.h"
#include "planner/cost/attention_cost.h"
#include "planner/cost/cost_source.h"
#include "planner/cost/operator_pieces.h"
#include "profiler/hardware/profile_noise.h"

namespace mpt::planner {
namespace {

using profiler::Phase;
using profiler::Piece;
using profiler::Profile;
using profiler::TransportOperation;

// A measured curve: seconds over work. It is exact at its points and linear in work per second between them.
// Beyond them it has the nearest point's rate.
class RateCurve {
 public:
  void add(double work, double seconds) { points_[work] = seconds; }
  bool empty() const { return points_.empty(); }

  double seconds(double work) const {
    const auto above = points_.lower_bound(work);
    if (above != points_.end() && above->first == work) return above->second;
    if (above == points_.begin()) return work / rate(*above);
    if (above == points_.end()) return work / rate(*points_.rbegin());
    const auto below = std::prev(above);
    const double share = (work - below->first) / (above->first - below->first);
    return work / (rate(*below) + share * (rate(*above) - rate(*below)));
  }

  /// For messages: below the smallest point latency dominates, so the time does not fall with size.
  double message_s(double bytes) const {
    return bytes <= points_.begin()->first ? points_.begin()->second : seconds(bytes);
  }

 private:
  static double rate(const std::pair<const double, double>& point) {
    return point.first / std::max(point.second, 1e-12);
  }
  std::map<double, double> points_;
};

TransportOperation transport_of(models::CollectiveKind kind) {
  return kind == models::CollectiveKind::all_reduce ? TransportOperation::all_reduce
         : kind == models::CollectiveKind::reduce_scatter
             ? TransportOperation::reduce_scatter
             : TransportOperation::all_gather;  // all-to-all, too
}

class ProfileCost final : public CostSource {
 public:
  ProfileCost(const Profile& profile, const ModelSpec& model, const Workload& workload, Precision precision,
              const ClusterSpec& cluster, const Calibration& constants)
      : CostSource(constants),
        profile_(profile),
        model_(model),
        workload_(workload),
        cluster_(cluster),
        matches_(profiler::profile_matches(profile, model, workload.sequence, precision)) {
    // A matching profile has the same kinds in the same order.
    const models::LayerKinds timed(profile.model);
    for (const auto& t : profile.pieces) {
      if (profiler::sequence_of(profile, t) != workload.sequence) continue;
      const size_t kind = t.piece == Piece::layer ? timed.of(t.layer) : 0;
      pieces_[{t.piece, kind, t.phase, t.tensor, t.recompute}].add(double(t.micro_batch), t.seconds);
    }
    for (const auto& t : profile.transport)
      transport_[{t.operation, t.hosts, t.group}].add(double(t.bytes), t.seconds);
    for (const auto& t : profile.operators) {
      const double work = std::max(work_of(t.shape, t.phase), 1.0);
      operator_rates_[{t.shape.kind, t.phase, kernel_of(t.shape)}].add(work, t.seconds);
    }
  }

  double piece_s(Piece piece, Phase phase, const Layout& layout,
                 const models::LayerProgram& program) const override {
    if (!matches_) return by_operators(piece, phase, layout, program);
    const size_t kind = timed_kind(piece, phase, program);
    const double whole = measured_s(piece, kind, phase, layout);
    const bool alone = piece != Piece::head || model_.next_token_layers == 0;
    const bool itself = piece != Piece::layer || kind == program.kind;
    if (!layout.sequence_parallel && layout.context == 1 && alone && itself) return whole;
    // Pieces were timed with whole sequences, the head without next-token modules. Old profiles have one
    // layer for all kinds. Such a time is scaled by the ratio of the operators' prices.
    const double operators = by_operators(piece, phase, layout, timed_program(piece, kind, layout));
    return operators > 0.0 ? whole * by_operators(piece, phase, layout, program) / operators : whole;
  }

  double operator_s(const models::OperatorShape& s, Phase phase) const override {
    // Only products split their backward; other operators do all of it in the input gradient.
    Phase measured = phase;
    if (s.kind != models::OperatorKind::linear && s.kind != models::OperatorKind::expert_linear) {
      if (phase == Phase::weight_gradient) return 0.0;
      if (phase == Phase::input_gradient) measured = Phase::backward;
    }
    const double work = work_of(s, phase);
    const auto kind = s.kind == models::OperatorKind::expert_linear ? models::OperatorKind::linear : s.kind;
    const auto kernel = kernel_of(s);
    if (const auto* own = find_value(operator_rates_, {kind, measured, kernel})) return own->seconds(work);
    if (kernel) return unmeasured_->operator_s(s, phase);
    return work / (models::forward_flop(s) > 0.0 ? profile_.matmul_flop_per_s
                                                 : profile_.memory_bandwidth_bytes_per_s);
  }

  // Measured times within a node and between nodes. Times between nodes that were not measured come from the
  // cluster's description.
  double collective_s(models::CollectiveKind kind, int64_t bytes, const GroupPlace& group) const override {
    if (group.ranks <= 1) return 0.0;
    const TransportOperation operation = transport_of(kind);
    const RateCurve* nearest = nullptr;
    GroupPlace measured;
    for (const auto& [key, curve] : transport_) {
      const auto& [timed, hosts, ranks] = key;
      const GroupPlace place{ranks, hosts == 1 ? ranks : hosts * cluster_.devices_per_node};
      if (timed != operation || is_within_node(place) != is_within_node(group)) continue;
      if (nearest != nullptr && nearness(place, group) <= nearness(measured, group)) continue;
      nearest = &curve;
      measured = place;
    }
    if (nearest == nullptr) return unmeasured_->collective_s(kind, bytes, group);
    if (measured.ranks == group.ranks && measured.extent == group.extent)
      return nearest->message_s(double(bytes));
    // A group that was not measured: the nearest one's time, scaled by the ratio of unmeasured prices.
    const double nearest_s = unmeasured_->collective_s(kind, bytes, measured);
    const double scale = nearest_s > 0.0 ? unmeasured_->collective_s(kind, bytes, group) / nearest_s : 1.0;
    return nearest->message_s(double(bytes)) * scale;
  }

  double transfer_s(int64_t bytes, int64_t first, int64_t last, int64_t senders) const override {
    const bool on_one_node = first / cluster_.devices_per_node == last / cluster_.devices_per_node;
    const auto found = transport_.find({TransportOperation::send_receive, on_one_node ? 1 : 2, 2});
    if (found == transport_.end()) return unmeasured_->transfer_s(bytes, first, last, senders);
    const double alone_s = found->second.message_s(double(bytes));
    if (on_one_node || senders <= 1) return alone_s;
    // If several messages leave a node at once, the time grows by the load on the cluster's ports.
    return alone_s * unmeasured_->transfer_s(bytes, first, last, senders) /
           unmeasured_->transfer_s(bytes, first, last, 1);
  }
  double overlap_share(const GroupPlace& group) const override { return unmeasured_->overlap_share(group); }
  double sharded_rate(const GroupPlace& group) const override { return unmeasured_->sharded_rate(group); }

  double optimizer_s(int64_t parameters) const override {
    return double(parameters) * profile_.optimizer_s_per_parameter;
  }
  double offloaded_optimizer_s(int64_t parameters) const override {
    if (cluster_.device.kind != DeviceKind::cpu) return unmeasured_->offloaded_optimizer_s(parameters);
    return optimizer_s(parameters) +
           double(parameters) * c_.offload_copy_bytes / profile_.memory_bandwidth_bytes_per_s;
  }
  double gradient_norm_s(int64_t parameters) const override {
    return double(parameters) * profile_.gradient_norm_s_per_parameter;
  }
  double dispatch_s() const override { return profile_.dispatch_s; }
  std::vector<double> rate_by_active_ranks() const override {
    // CPU ranks share the machine's cores; each rank has a whole GPU.
    if (cluster_.device.kind != DeviceKind::cpu) return {};
    return profile_.rate_by_active_ranks;
  }
  CostOrigin origin() const override {
    return {matches_ ? "profile" : "profile (operators)", profile_.machine.device, profile_.date,
            profiler::profile_digest(profile_),
            profiler::noise_of(profile_, workload_.sequence).worst_spread};
  }

 private:
  static Execution runtime_on(const ClusterSpec& cluster) {
    Execution execution;
    if (cluster.device.kind == DeviceKind::gpu) execution.kernels.attention = AttentionKernel::own;
    return execution;
  }
  // Kernel of an attention core on GPUs. The rate of one kernel does not apply to another.
  std::optional<RuntimeAttention> kernel_of(const models::OperatorShape& s) const {
    return runtime_kernel(s, runtime_, cluster_.device);
  }
  bool is_within_node(const GroupPlace& group) const { return group.extent <= cluster_.devices_per_node; }
  // A measured group with the same ranks per node is nearest; then the largest that is not larger.
  std::pair<bool, int64_t> nearness(const GroupPlace& measured, const GroupPlace& group) const {
    const bool alike = measured.ranks * group.extent == group.ranks * measured.extent;
    return {alike, measured.ranks > group.ranks ? -measured.ranks : measured.ranks};
  }

  double by_operators(Piece piece, Phase phase, const Layout& layout,
                      const models::LayerProgram& program) const {
    return sum_of_operators(program, piece, phase, layout.recompute,
                            [&](const models::Operator& op, Phase p) { return operator_s(op.shape, p); });
  }

  // The program's kind of layer if it was timed.
  size_t timed_kind(Piece piece, Phase phase, const models::LayerProgram& program) const {
    if (piece != Piece::layer) return 0;
    const auto first = pieces_.lower_bound({piece, program.kind, phase, 0, Recompute::none});
    const bool timed = first != pieces_.end() && std::get<0>(first->first) == piece &&
                       std::get<1>(first->first) == program.kind && std::get<2>(first->first) == phase;
    return timed ? program.kind : 0;
  }

  double measured_s(Piece piece, size_t kind, Phase phase, const Layout& layout) const {
    const Recompute recompute = piece == Piece::layer ? layout.recompute : Recompute::none;
    // The widest measured split that divides this one; the rest is assumed to scale.
    for (int64_t tensor = layout.tensor; tensor >= 1; --tensor)
      if (const auto* timed = find_value(pieces_, {piece, kind, phase, tensor, recompute}))
        return timed->seconds(double(layout.micro_batch)) * double(tensor) / double(layout.tensor);
    refuse_input("profile at /pieces", fmt::format("no timing of {} {}", enum_name(piece), enum_name(phase)),
                 "timings of every piece", "measure again with mpt-profile");
  }

  // The program that was timed: its rank had every token of its sequences.
  models::LayerProgram timed_program(Piece piece, size_t kind, Layout layout) const {
    layout.sequence_parallel = false;
    layout.context = 1;
    if (piece == Piece::embedding) return models::embedding_program(model_, layout, workload_.sequence);
    if (piece == Piece::head) return models::head_program(model_, layout, workload_.sequence);
    return models::layer_program(model_, kinds_.kind(kind), layout, workload_.sequence);
  }

  // FLOP of products, bytes of everything else.
  static double work_of(const models::OperatorShape& s, Phase phase) {
    const double flop = phase == Phase::forward           ? models::forward_flop(s)
                        : phase == Phase::weight_gradient ? models::weight_gradient_flop(s)
                                                          : models::input_gradient_flop(s);
    return flop > 0.0                ? flop
           : phase == Phase::forward ? models::forward_bytes_moved(s)
                                     : models::backward_bytes_moved(s);
  }

  const Profile& profile_;
  const ModelSpec& model_;
  const Workload workload_;
  const ClusterSpec& cluster_;
  const Execution runtime_ = runtime_on(cluster_);  // on the cluster's devices
  // Prices links and kernels without times in the profile.
  std::unique_ptr<CostSource> unmeasured_ = make_device_cost(cluster_, runtime_, c_);
  models::LayerKinds kinds_{model_};
  bool matches_;
  std::map<std::tuple<Piece, size_t, Phase, int64_t, Recompute>, RateCurve> pieces_;  // by kinds of layers
  std::map<std::tuple<TransportOperation, int64_t, int64_t>, RateCurve> transport_;   // by hosts and ranks
  std::map<std::tuple<models::OperatorKind, Phase, std::optional<RuntimeAttention>>, RateCurve>
      operator_rates_;
};

}  // namespace

std::unique_ptr<CostSource> make_profile_cost(const Profile& profile, const ModelSpec& model,
                                              const Workload& workload, Precision precision,
                                              const ClusterSpec& cluster, const Calibration& constants) {
  return std::make_unique<ProfileCost>(profile, model, workload, precision, cluster, constants);
}

}  // namespace mpt::planner
