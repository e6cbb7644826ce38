// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "planner/cost/attention_cost.h"
#include "planner/cost/calibration.h"
#include "planner/cost/cost_source.h"
#include "planner/cost/device_rates.h"
#include "planner/cost/kernel_parts.h"
#include "planner/cost/operator_pieces.h"
#include "profiler/hardware/catalog.h"
#include "profiler/hardware/kernel_tables.h"

namespace mpt::planner {
namespace {

using models::CollectiveKind;
using models::OperatorKind;
using models::OperatorShape;
using profiler::KernelTables;
using profiler::Phase;
using profiler::Piece;

// Known prices. The splits of a search share most of their products, attention cores and collectives.
// Threads of a search share this cache. A key visits its numbers, from which the hash is computed.
template <class Key, class Value>
class Known {
 public:
  template <class F>
  Value get(const Key& key, F&& price) const {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = known_.find(key); found != known_.end()) return found->second;
    }
    const Value value = price();
    const std::lock_guard lock(mutex_);
    known_.emplace(key, value);
    return value;
  }

 private:
  struct Hash {
    size_t operator()(const Key& key) const {
      uint64_t hash = 0;
      key.visit_numbers([&](int64_t number) {
        hash = (hash ^ (hash >> 29) ^ uint64_t(number)) * 0x9e3779b97f4a7c15;  // 2^64 / golden ratio
      });
      return hash ^ (hash >> 32);
    }
  };
  mutable std::mutex mutex_;
  mutable std::unordered_map<Key, Value, Hash> known_;
};

struct OperatorKey : OperatorShape {
  template <class F>
  void visit_numbers(F&& visit) const {
    visit(int64_t(kind) * 64 + int64_t(precision) * 2 + int64_t(gated));
    for (const int64_t size :
         {rows, columns, inner, batch, sequence, heads, kv_heads, head_dim, value_head_dim, context})
      visit(size);
  }
  bool operator==(const OperatorKey&) const = default;
};

struct CollectiveKey {
  CollectiveKind kind;
  int64_t bytes, ranks, extent;
  template <class F>
  void visit_numbers(F&& visit) const {
    visit(int64_t(kind) + ranks * 8);
    visit(extent);
    visit(bytes);
  }
  bool operator==(const CollectiveKey&) const = default;
};

// Measured collectives. If they are from another device: this cluster with that device's links.
struct BorrowedLinks {
  const KernelTables& tables;
  std::optional<ClusterSpec> owner;
};

std::optional<ClusterSpec> owner_of(const KernelTables& links, const ClusterSpec& cluster) {
  const auto owner = profiler::cluster_of_device(links.device, {8, 8, 8});
  if (!owner || owner->device.name != links.device) return std::nullopt;
  ClusterSpec changed = cluster;
  changed.levels.front().bandwidth_bytes_per_s = owner->levels.front().bandwidth_bytes_per_s;
  changed.levels.front().mesh = owner->levels.front().mesh;
  // A cluster file may give other links to the same GPU.
  if (links.device == cluster.device.name && changed == cluster) return std::nullopt;
  return changed;
}

class KernelCost final : public CostSource {
 public:
  KernelCost(const ClusterSpec& cluster, const Execution& execution, const KernelTables& tables,
             const BorrowedLinks& links, std::shared_ptr<const KernelTables> own,
             const Calibration& constants)
      : CostSource(constants),
        cluster_(cluster),
        execution_(execution),
        tables_(tables),
        links_(links),
        own_(std::move(own)) {}

  std::array<PieceSeconds, 3> pieces_s(Piece piece, const Layout& layout,
                                       const models::LayerProgram& program) const override {
    std::array<PieceSeconds, 3> pieces =
        sums_of_operators(program, piece, [&](const models::Operator& op) { return of_layer_s(op, layout); });
    if (!execution_.host.blocking_launches) return pieces;
    const std::array<PieceSeconds, 3> host = all_launches_s(piece, program);
    for (size_t r = 0; r < pieces.size(); ++r) {
      pieces[r].forward_s += host[r].forward_s;
      pieces[r].backward_s += host[r].backward_s;
      pieces[r].input_gradient_s += host[r].input_gradient_s;
      pieces[r].weight_gradient_s += host[r].weight_gradient_s;
    }
    return pieces;
  }
  std::array<PieceSeconds, 3> launching_s(Piece piece, const models::LayerProgram& program) const override {
    if (execution_.host.blocking_launches) return {};
    return all_launches_s(piece, program);
  }
  double piece_s(Piece piece, Phase phase, const Layout& layout,
                 const models::LayerProgram& program) const override {
    return seconds_of(pieces_s(piece, layout, program)[size_t(layout.recompute)], phase);
  }

  double operator_s(const OperatorShape& s, Phase phase) const override {
    const PhaseSeconds all = phases_s(s);
    return phase == Phase::forward          ? all.forward_s
           : phase == Phase::input_gradient ? all.input_gradient_s
                                            : all.weight_gradient_s;
  }

  double collective_s(CollectiveKind kind, int64_t bytes, const GroupPlace& group) const override {
    if (group.ranks <= 1 || bytes == 0) return 0.0;
    return known_collectives_.get({kind, bytes, group.ranks, group.extent},
                                  [&] { return price_collective_s(kind, bytes, group); });
  }
  double exchange_s(int64_t bytes, const models::CopyRoute& route, const GroupPlace& group) const override {
    if (const auto ratio = measured_ratio(CollectiveKind::all_to_all, bytes, group))
      return *ratio * planner::exchange_s(bytes, route, group, cluster_);
    if (is_inside(group)) return CostSource::exchange_s(bytes, route, group);
    return planner::exchange_s(bytes, route, group, cluster_) / c_.network_all_to_all_rate;
  }
  double transfer_s(int64_t bytes, int64_t first, int64_t last, int64_t senders) const override {
    return message_s(bytes, first, last, senders, cluster_) / c_.network_rate;
  }
  double optimizer_s(int64_t parameters) const override {
    return execution_.host.step_ms * 1e-3 +
           double(parameters) * c_.optimizer_bytes / rates_.bandwidth_bytes_per_s;
  }
  double offloaded_optimizer_s(int64_t parameters) const override {
    return execution_.host.step_ms * 1e-3 + host_update_s(cluster_, parameters, c_);
  }
  double gradient_norm_s(int64_t parameters) const override {
    return c_.kernel_gap_s + double(parameters) * 4.0 / rates_.bandwidth_bytes_per_s;
  }
  double host_copy_s(int64_t bytes) const override {
    return double(bytes) / std::max(device_.host_bandwidth_bytes_per_s, 1.0);
  }
  double overlap_share(const GroupPlace& group) const override {
    return is_inside(group) ? c_.collective_overlap_share : c_.network_overlap_share;
  }
  double pipelined_overlap_share() const override { return c_.tensor_overlap_share; }
  double sharded_rate(const GroupPlace& group) const override {
    return is_inside(group) ? 1.0 : execution_.traffic.sharded_network_rate;
  }
  // A graph of the whole step leaves no micro-batch to schedule (megatron/core/full_cuda_graph.py).
  double dispatch_s() const override {
    return execution_.kernels.graphs ? 0.0 : execution_.host.micro_batch_us * 1e-6;
  }
  std::vector<double> rate_by_active_ranks() const override { return {}; }
  CostOrigin origin() const override {
    return own_ != nullptr ? CostOrigin{"own kernels", device_.name, "", own_->digest}
                           : CostOrigin{"kernels", device_.name, "", ""};
  }

 private:
  PhaseSeconds of_layer_s(const models::Operator& op, const Layout& layout) const {
    if (op.in_epilogue) return epilogue_s(op.shape);
    PhaseSeconds seconds = phases_s(op.shape);
    if (!narrows_here(op.shape)) return seconds;
    const auto casts_s = [&](Phase phase) {
      return other_own_cast_bytes(op, layout, phase) / rates_.bandwidth_bytes_per_s;
    };
    seconds.forward_s += casts_s(Phase::forward);
    seconds.input_gradient_s += casts_s(Phase::input_gradient);
    return seconds;
  }
  // The product also writes the activation's input, and reads it for the gradient.
  PhaseSeconds epilogue_s(const OperatorShape& s) const {
    const double seconds = double(s.rows) * double(s.columns) * double(element_bytes(s.precision)) /
                           rates_.bandwidth_bytes_per_s;
    return {seconds, seconds, 0.0};
  }
  bool narrows_here(const OperatorShape& s) const {
    return device_.fp8_flop_per_s > 0.0 && narrows_as_own_runtime(execution_, s);
  }
  PhaseSeconds phases_s(const OperatorShape& s) const {
    const auto known = [&](auto&& seconds) {
      return known_operators_.get({s}, [&] {
        // The runtime's attention is priced in the shape's precision.
        const double wider = runtime_kernel(s, execution_, device_) ? 1.0 : this->wider(s.precision);
        return PhaseSeconds{seconds(Phase::forward) * wider, seconds(Phase::input_gradient) * wider,
                            seconds(Phase::weight_gradient) * wider};
      });
    };
    using K = OperatorKind;
    if (s.kind == K::linear) return known([&](Phase phase) { return product_s(s, phase); });
    if (s.kind == K::expert_linear) return known([&](Phase phase) { return grouped_s(s, phase); });
    if (s.kind == K::attention) return known([&](Phase phase) { return attention_.seconds(s, phase); });
    if (s.kind == K::recurrence || s.kind == K::index)
      return {core_s(s, Phase::forward), core_s(s, Phase::input_gradient), 0.0};
    return {elementwise_s(s, Phase::forward), elementwise_s(s, Phase::input_gradient), 0.0};
  }

  // Cores that no table has. An index consists of products. A recurrence has many small products, and equal
  // work outside tensor cores.
  double core_s(const OperatorShape& s, Phase phase) const {
    const bool forward = phase == Phase::forward;
    const double flop = forward ? models::forward_flop(s) : models::input_gradient_flop(s);
    if (flop == 0.0) return 0.0;
    const double rate = s.kind == OperatorKind::recurrence ? device_.fp32_flop_per_s * c_.linear_mixer_share
                                                           : rates_.products_flop_per_s / wider(s.precision);
    const double bytes = forward ? models::forward_bytes_moved(s) : models::backward_bytes_moved(s);
    return c_.kernel_gap_s + std::max(flop / rate, bytes / rates_.bandwidth_bytes_per_s);
  }

  bool is_inside(const GroupPlace& group) const { return group.extent <= cluster_.levels.front().group_size; }

  std::optional<double> measured_ratio(CollectiveKind kind, int64_t bytes, const GroupPlace& group) const {
    return own_ == nullptr ? std::nullopt : measured_over_formula(*own_, kind, bytes, group, cluster_);
  }

  double price_collective_s(CollectiveKind kind, int64_t bytes, const GroupPlace& group) const {
    // A measured time already includes the loss that network_rate subtracts from the rate of a catalog.
    if (const auto ratio = measured_ratio(kind, bytes, group))
      return *ratio * planner::collective_s(kind, bytes, group, cluster_);
    if (!is_inside(group) && kind == CollectiveKind::all_to_all) return exchange_s(bytes, {}, group);
    const double by_formula = planner::collective_s(kind, bytes, group, cluster_);
    if (!is_inside(group)) return by_formula / c_.network_rate;
    const double ranks = double(std::min(group.ranks, std::max<int64_t>(links_.tables.most_ranks(), 1)));
    if (own_ != nullptr) {
      const auto own = own_->collective_s(enum_name(kind), double(group.ranks), double(bytes));
      if (own) return *own / c_.collective_rate;
    }
    const auto measured = links_.tables.collective_s(enum_name(kind), ranks, double(bytes));
    if (!measured || cluster_.levels.front().bandwidth_bytes_per_s < c_.nvlink_least_bytes_per_s)
      return by_formula / c_.collective_rate;
    // Beyond the measured ranks, inside one NVLink domain, the share of the message on each link still grows.
    const double more = (1.0 - 1.0 / double(group.ranks)) / (1.0 - 1.0 / ranks);
    // Links other than the measured ones carry the same messages at their rate.
    const double slower =
        links_.owner ? by_formula - planner::collective_s(kind, bytes, group, *links_.owner) : 0.0;
    return (*measured * more + slower) / c_.collective_rate;
  }

  // No measurement in fp32 exists. The time is that of the bf16 kernels, times the ratio of the peaks.
  double wider(Precision precision) const {
    return precision == Precision::fp32 ? std::max(1.0, device_.bf16_flop_per_s / device_.fp32_flop_per_s)
                                        : 1.0;
  }

  double gemm_s(Precision precision, double m, double n, double k) const {
    const bool fp4 = precision == Precision::nvfp4;
    const auto narrow = is_narrow(precision) && !fp4 ? tables_.gemm_s(true, m, n, k) : std::nullopt;
    const auto wide = tables_.gemm_s(false, m, n, k);
    // By the peak of the tables' device, like its measured times.
    double seconds = wide.value_or(2.0 * m * n * k * device_.kernel_rate /
                                   (c_.unmeasured_product_share * rates_.products_peak));
    if (is_narrow(precision)) seconds = narrowed_s(seconds, m * n, fp4 ? c_.nvfp4_speedup : c_.fp8_speedup);
    if (narrow) seconds = std::min(*narrow, seconds);
    if (precision == Precision::mxfp8) seconds /= c_.mxfp8_rate;
    const auto both = [&](double unit) { return std::fmod(n, unit) == 0.0 && std::fmod(k, unit) == 0.0; };
    const double line = execution_.kernels.early_products && !both(64) ? c_.early_line_unaligned_rate : 1.0;
    return seconds / (rates_.kernels * (both(8) ? line : c_.unaligned_rate));
  }

  // Time of an fp8 product from the 16-bit time. The multiplication is faster. The result still has 16 bits:
  // its write is no faster, and does not overlap (DeepGEMM's README, H800, 4,096 rows: 751, 1,168 and 1,426
  // TFLOP/s at inner lengths of 512, 2,048 and 16,384, which fits 1,470 and a write at 3.0 TB/s).
  double narrowed_s(double wide_s, double results, double speedup) const {
    const double written_s = std::min(wide_s, results * 2.0 / rates_.bandwidth_bytes_per_s);
    return (wide_s - written_s) / speedup + written_s;
  }

  std::optional<double> exact_s(const std::string& pass, int64_t m, int64_t n, int64_t k) const {
    const auto own = own_ != nullptr ? own_->exact_product_s(pass, m, n, k) : std::nullopt;
    return own ? own : tables_.exact_product_s(pass, m, n, k);
  }

  // A device without fp8 computes these products in 16 bits.
  Precision product_precision(const OperatorShape& s) const {
    return is_narrow(s.precision) && device_.fp8_flop_per_s <= 0.0 ? Precision::bf16 : s.precision;
  }

  // Inputs of fp8 passes are cast first: the input in the forward, the result's gradient in the backward. The
  // weight gradient reuses that cast. This project's runtime casts differently.
  double cast_s(const OperatorShape& s, Phase phase) const {
    if (narrows_here(s)) return own_cast_bytes(s, phase) / rates_.bandwidth_bytes_per_s;
    if (phase == Phase::weight_gradient) return 0.0;
    return double(s.rows) * double(phase == Phase::forward ? s.inner : s.columns) *
           rates_.cast_bytes(product_precision(s)) / rates_.bandwidth_bytes_per_s;
  }

  // m, n and k of a pass of a product.
  template <class T>
  static std::array<T, 3> sizes_of_pass(Phase phase, T rows, T columns, T inner) {
    if (phase == Phase::forward) return {rows, columns, inner};
    if (phase == Phase::input_gradient) return {rows, inner, columns};
    return {columns, inner, rows};
  }
  double rate_of_pass(Phase phase) const {
    return phase == Phase::forward          ? 1.0
           : phase == Phase::input_gradient ? c_.input_gradient_rate
                                            : c_.weight_gradient_rate;
  }
  double product_s(const OperatorShape& s, Phase phase) const {
    const auto [m, n, k] = sizes_of_pass(phase, s.rows, s.columns, s.inner);
    if (const auto t_s = exact_s(enum_name(phase), m, n, k)) return c_.kernel_gap_s + *t_s / rates_.kernels;
    const auto seconds = gemm_s(product_precision(s), double(m), double(n), double(k)) / rate_of_pass(phase);
    return c_.kernel_gap_s + (seconds + cast_s(s, phase));
  }

  // No grouped products in NVFP4 were measured. Their gain over fp8 is assumed to be that of other products.
  double grouped_speedup(Precision precision) const {
    const double fp8 = device_.mxfp8 ? c_.blackwell_grouped_fp8_speedup : c_.grouped_fp8_speedup;
    return precision == Precision::nvfp4 ? fp8 * c_.nvfp4_speedup / c_.fp8_speedup : fp8;
  }

  // One product per expert of this rank. With few rows the time is that of moving the weights.
  double grouped_s(const OperatorShape& s, Phase phase) const {
    const bool narrow = is_narrow(product_precision(s));
    const double groups = double(std::max<int64_t>(1, s.batch)), rows = double(s.rows) / groups;
    const auto columns = double(s.columns), inner = double(s.inner);
    const auto [m, n, k] = sizes_of_pass(phase, rows, columns, inner);
    const double results = phase == Phase::weight_gradient ? groups * columns * inner : double(s.rows) * n;
    double seconds = groups * (gemm_s(Precision::bf16, m, n, k) / rate_of_pass(phase));
    if (const auto flop_per_s = tables_.grouped_flop_per_s(rows, std::min(columns, inner))) {
      const double rate = rates_.kernels * (execution_.kernels.fuses_experts ? 1.0 : c_.grouped_rate);
      seconds = std::min(seconds, 2.0 * double(s.rows) * columns * inner / (*flop_per_s * rate));
    }
    if (narrow) seconds = narrowed_s(seconds, results, grouped_speedup(s.precision));
    seconds *= execution_.traffic.balanced_experts || execution_.traffic.expert_load > 1.0
                   ? 1.0
                   : c_.expert_imbalance;
    if (!execution_.kernels.fuses_experts) seconds = one_by_one_s(seconds, groups, narrow, phase);
    // Tokens are sorted by expert before the first product and restored after the second.
    const double passes =
        (execution_.traffic.deduplicates_dispatch ? c_.fused_permute_passes : c_.permute_passes) +
        (narrow && execution_.kernels.pads_expert_rows ? c_.padding_passes : 0.0);
    const double moved = double(s.rows) * double(s.copy_width) * 2.0 * passes;
    // Operands are narrowed first, by rows and by columns: inputs in the forward, gradients in the backward.
    const double narrowed =
        narrow && !execution_.kernels.fuses_experts
            ? double(s.rows) * (phase == Phase::forward ? inner : columns) * rates_.cast_bytes(s.precision)
            : 0.0;
    return c_.kernel_gap_s + seconds +
           (phase == Phase::weight_gradient
                ? 0.0
                : (moved + narrowed + bias_bytes(s, phase)) / rates_.bandwidth_bytes_per_s);
  }

  // Products of experts that are launched one by one: each has a start-up time on the device, and so has the
  // cast of its input. The host may take longer than the device, because it waited for the router's counts
  // and is not ahead (megatron/core/transformer/moe/token_dispatcher.py, cuda_sync_point).
  double one_by_one_s(double seconds, double experts, bool fp8, Phase phase) const {
    const Launches each = launches_of_expert(fp8);
    const bool weight = phase == Phase::weight_gradient;
    const double launches = weight                    ? each.weight_gradient
                            : phase == Phase::forward ? each.forward
                                                      : each.input_gradient;
    const double host_s =
        execution_.kernels.graphs ? 0.0 : experts * launches * execution_.host.launch_us * 1e-6;
    return std::max(seconds + experts * (fp8 && !weight ? 2.0 : 1.0) * c_.kernel_gap_s, host_s);
  }

  // Bytes that a bias of experts moves if it is added expert by expert.
  double bias_bytes(const OperatorShape& s, Phase phase) const {
    if (!models::has_extra_kernels(s, execution_)) return 0.0;
    return double(s.rows) * double(s.columns) *
           (phase == Phase::forward ? c_.expert_bias_bytes : c_.expert_bias_backward_bytes);
  }

  // Bytes per logit.
  double loss_bytes(bool forward) const {
    if (execution_.kernels.loss == LossKernel::fp32)
      return forward ? c_.fp32_loss_bytes : c_.fp32_loss_backward_bytes;
    return forward ? c_.fused_loss_bytes : c_.fused_loss_backward_bytes;
  }

  double elementwise_s(const OperatorShape& s, Phase phase) const {
    const bool forward = phase == Phase::forward;
    double bytes = forward ? models::forward_bytes_moved(s) : models::backward_bytes_moved(s);
    if (s.kind == OperatorKind::widen) return c_.kernel_gap_s + bytes / rates_.bandwidth_bytes_per_s;
    if (execution_.kernels.elementwise == ElementwiseKernels::eager) bytes *= c_.eager_passes;
    if (execution_.kernels.elementwise == ElementwiseKernels::compiled) bytes *= c_.compiled_passes;
    const double elements = double(s.rows) * double(s.columns);
    const double unit = double(element_bytes(s.precision)) / 2.0;
    if (s.kind == OperatorKind::norm && s.extra)
      bytes = elements * unit * (forward ? c_.plain_norm_bytes : c_.plain_norm_backward_bytes);
    if (models::has_extra_kernels(s, execution_)) {
      if (s.kind == OperatorKind::rotary)
        bytes = elements * unit * (forward ? c_.scaled_rotary_bytes : c_.scaled_rotary_backward_bytes);
      if (s.kind == OperatorKind::activation)
        bytes += elements * unit * (forward ? c_.limit_bytes : c_.limit_backward_bytes);
    }
    if (s.kind == OperatorKind::cross_entropy) bytes = elements * loss_bytes(forward);
    if (s.kind == OperatorKind::residual_add && execution_.kernels.dropout) bytes += elements;
    return c_.kernel_gap_s + bytes / rates_.bandwidth_bytes_per_s;
  }

  std::array<PieceSeconds, 3> all_launches_s(Piece piece, const models::LayerProgram& program) const {
    if (execution_.kernels.graphs || execution_.host.launch_us <= 0.0) return {};
    return sums_of_operators(program, piece, [&](const models::Operator& op) { return host_s(op); });
  }
  PhaseSeconds host_s(const models::Operator& op) const {
    if (op.in_epilogue) return {};
    const Launches l = launches_of(op.shape, execution_);
    const double launch_s = execution_.host.launch_us * 1e-6;
    // Each layer of experts has one router.
    const HostTimes& host = execution_.host;
    const double layer_us =
        execution_.kernels.router_graphs ? host.graphed_expert_layer_us : host.expert_layer_us;
    const double routed_s = op.shape.kind == models::OperatorKind::router ? 0.5 * layer_us * 1e-6 : 0.0;
    return {(l.forward + double(op.forward_collectives.size())) * launch_s + routed_s,
            (l.input_gradient + double(op.backward_collectives.size())) * launch_s + routed_s,
            l.weight_gradient * launch_s};
  }

  const ClusterSpec& cluster_;
  const DeviceSpec& device_ = cluster_.device;
  const Execution execution_;
  const KernelTables& tables_;
  const BorrowedLinks links_;
  const std::shared_ptr<const KernelTables> own_;  // the user's; may be null
  const DeviceRates rates_ = rates_of(cluster_, c_);
  const AttentionCost attention_{device_, execution_, tables_, own_.get(), c_, rates_};
  const Known<OperatorKey, PhaseSeconds> known_operators_;
  const Known<CollectiveKey, double> known_collectives_;
};

}  // namespace

std::unique_ptr<CostSource> make_kernel_cost(const ClusterSpec& cluster, const Execution& execution,
                                             const Calibration& constants,
                                             std::shared_ptr<const KernelTables> own) {
  const DeviceSpec& device = cluster.device;
  const KernelTables* tables = profiler::kernel_tables(device);
  if (tables == nullptr) return nullptr;
  const KernelTables* links = profiler::kernel_tables(device.name);
  if (tables->most_ranks() > 0 || links == nullptr) links = tables;
  return std::make_unique<KernelCost>(cluster, execution, *tables,
                                      BorrowedLinks{*links, owner_of(*links, cluster)}, std::move(own),
                                      constants);
}

std::unique_ptr<CostSource> make_device_cost(const ClusterSpec& cluster, const Execution& execution,
                                             const Calibration& constants,
                                             std::shared_ptr<const KernelTables> own) {
  std::unique_ptr<CostSource> measured = make_kernel_cost(cluster, execution, constants, std::move(own));
  return measured ? std::move(measured) : make_roofline_cost(cluster, constants, execution);
}

}  // namespace mpt::planner
