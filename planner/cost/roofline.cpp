// SPDX-License-Identifier: Apache-2.0

#include "planner/cost/attention_cost.h"
#include "planner/cost/cost_source.h"
#include "planner/cost/operator_pieces.h"

namespace mpt::planner {
namespace {

using models::OperatorKind;
using profiler::Phase;
using profiler::Piece;

constexpr int64_t kMostDevicesOfHost = 8;  // nodes that are racks have many hosts

class RooflineCost final : public CostSource {
 public:
  RooflineCost(const ClusterSpec& cluster, const Calibration& constants, const Execution& execution)
      : CostSource(constants), cluster_(cluster), execution_(execution) {}

  double piece_s(Piece piece, Phase phase, const Layout& layout,
                 const models::LayerProgram& program) const override {
    return sum_of_operators(program, piece, phase, layout.recompute,
                            [&](const models::Operator& op, Phase p) { return operator_s(op.shape, p); });
  }
  std::array<PieceSeconds, 3> pieces_s(Piece piece, const Layout&,
                                       const models::LayerProgram& program) const override {
    return sums_of_operators(program, piece, [&](const models::Operator& op) {
      return PhaseSeconds{operator_s(op.shape, Phase::forward), operator_s(op.shape, Phase::input_gradient),
                          operator_s(op.shape, Phase::weight_gradient)};
    });
  }
  double operator_s(const models::OperatorShape& s, Phase phase) const override {
    const double peak =
        s.kind == OperatorKind::recurrence ? cluster_.device.fp32_flop_per_s : peak_flop_per_s(s);
    const bool forward = phase == Phase::forward;
    double share = c_.roofline_product_share;
    if (s.kind == OperatorKind::attention)
      share = forward ? c_.roofline_attention_share : c_.roofline_attention_backward_share;
    if (s.kind == OperatorKind::recurrence) share = c_.linear_mixer_share;
    const double flop = forward                          ? models::forward_flop(s)
                        : phase == Phase::input_gradient ? models::input_gradient_flop(s)
                                                         : models::weight_gradient_flop(s);
    double bytes = forward ? models::forward_bytes_moved(s) : models::backward_bytes_moved(s) / 2.0;
    if (!forward && s.kind == OperatorKind::index) return 0.0;  // the index is frozen
    // Operators without matrix work do all of their backward in the input gradient.
    if (phase == Phase::weight_gradient && flop == 0.0) return 0.0;
    const DeviceSpec& device = cluster_.device;
    const auto own_s = own_kernel_s(s, forward, execution_, device, device.bf16_flop_per_s, c_);
    if (own_s) return *own_s;
    if (phase == Phase::input_gradient && flop == 0.0) bytes *= 2.0;
    return c_.kernel_gap_s + std::max(flop / (peak * share), bytes / bandwidth());
  }

  double collective_s(models::CollectiveKind kind, int64_t bytes, const GroupPlace& group) const override {
    return planner::collective_s(kind, bytes, group, cluster_);
  }
  double transfer_s(int64_t bytes, int64_t first, int64_t last, int64_t senders) const override {
    return message_s(bytes, first, last, senders, cluster_);
  }
  double optimizer_s(int64_t parameters) const override {
    return c_.kernel_gap_s + double(parameters) * c_.optimizer_bytes / bandwidth();
  }
  double offloaded_optimizer_s(int64_t parameters) const override {
    if (cluster_.device.kind == DeviceKind::cpu)
      return optimizer_s(parameters) + double(parameters) * c_.offload_copy_bytes / bandwidth();
    return c_.kernel_gap_s + host_update_s(cluster_, parameters, c_);
  }
  double host_copy_s(int64_t bytes) const override {
    return double(bytes) / std::max(cluster_.device.host_bandwidth_bytes_per_s, 1.0);
  }
  double gradient_norm_s(int64_t parameters) const override {
    return c_.kernel_gap_s + double(parameters) * 4.0 / bandwidth();
  }
  double dispatch_s() const override { return 0.0; }
  std::vector<double> rate_by_active_ranks() const override {
    // CPU ranks share the machine's cores; each rank has a whole GPU.
    if (cluster_.device.kind != DeviceKind::cpu) return {};
    return std::vector<double>(size_t(cluster_.cores_per_node), 1.0);
  }
  CostOrigin origin() const override { return {"roofline", cluster_.device.name, "", ""}; }

 private:
  // The attention core stays in bf16 if products run in fewer bits.
  double peak_flop_per_s(const models::OperatorShape& s) const {
    const DeviceSpec& device = cluster_.device;
    if (s.precision == Precision::fp32) return device.fp32_flop_per_s;
    const bool core = s.kind == OperatorKind::attention || s.kind == OperatorKind::recurrence;
    if (!is_narrow(s.precision) || core) return device.bf16_flop_per_s;
    const double peak = s.precision == Precision::nvfp4 ? device.fp4_flop_per_s : device.fp8_flop_per_s;
    return peak > 0.0 ? peak : device.bf16_flop_per_s;
  }
  double bandwidth() const {
    return cluster_.device.memory_bandwidth_bytes_per_s * c_.roofline_bandwidth_share;
  }

  const ClusterSpec& cluster_;
  const Execution execution_;
};

}  // namespace

std::unique_ptr<CostSource> make_roofline_cost(const ClusterSpec& cluster, const Calibration& constants,
                                               const Execution& execution) {
  return std::make_unique<RooflineCost>(cluster, constants, execution);
}

double host_update_s(const ClusterSpec& cluster, int64_t parameters, const Calibration& constants) {
  const double link_s = double(parameters) * 4.0 / std::max(cluster.device.host_bandwidth_bytes_per_s, 1.0);
  const auto ranks = double(std::clamp<int64_t>(cluster.devices_per_node, 1, kMostDevicesOfHost));
  const double rate =
      std::min(constants.host_parameters_per_s_and_rank, constants.host_parameters_per_s / ranks);
  return std::max(link_s, double(parameters) / rate);
}

}  // namespace mpt::planner
