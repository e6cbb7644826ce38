// SPDX-License-Identifier: Apache-2.0
#pragma once

// CostSource: seconds of the pieces of a step, and where the numbers came from. It knows no schedule;
// StepCost adds its pieces up to instructions.

#include <array>
#include <memory>
#include <vector>

#include "core/cluster_spec.h"
#include "core/plan.h"
#include "models/layer_program.h"
#include "planner/cost/calibration.h"
#include "planner/cost/collective.h"
#include "profiler/hardware/kernel_tables.h"
#include "profiler/hardware/profile.h"

namespace mpt::planner {

/// Share of its time by which a collective lengthens the compute that it runs beside: 0.46 to 0.49 for an
/// all-gather among 8 A100 beside a large product (measured in n1-m8-intra8 of the public data set behind
/// docs/collectives.md).
inline constexpr double kOverlapShare = 0.46;

/// Parameters per second that Adam updates on a node's processors, all of its ranks together, and one rank's
/// process alone. Measured by others: 106 billion on four 8-GPU nodes in up to 9.6 s (Megatron Core, slime
/// issue 1139), 72 billion on four in about 10 s (DeepSpeed issue 6834), 0.6 billion of one rank in 0.93 s
/// (Megatron Core, NeMo-RL pull request 3628). A fused update that runs beside backward reaches 14 billion a
/// node (prime-rl pull request 3234); no framework of frameworks/ has it.
inline constexpr double kHostParametersPerSecond = 3e9, kHostParametersPerSecondAndRank = 0.65e9;

/// A CPU rank works in the host's memory as it is, but gradients and weights, of 4 bytes at most, are read
/// and written once more on their way to the optimizer and back.
inline constexpr double kOffloadCopyBytes = 16.0;

/// Compute of one piece for one micro-batch, without its collectives.
struct PieceSeconds {
  double forward_s = 0.0, backward_s = 0.0, input_gradient_s = 0.0, weight_gradient_s = 0.0;
};

class CostSource {
 public:
  virtual ~CostSource() = default;

  /// A piece under each recompute, by Recompute; the layout's own is of no account.
  virtual std::array<PieceSeconds, 3> pieces_s(profiler::Piece piece, const Layout& layout,
                                               const models::LayerProgram& program) const;

  /// What the host takes to launch the piece's kernels and collectives, ahead of the device: those take no
  /// less together. Zero where it waits for each of them, and is part of their time, or launches none.
  virtual std::array<PieceSeconds, 3> launching_s(profiler::Piece, const models::LayerProgram&) const {
    return {};
  }

  /// Compute of one piece for one micro-batch on one tensor-parallel rank, without its collectives. `program`
  /// is what the piece is made of under `layout`. A backward includes what the layout recomputes.
  virtual double piece_s(profiler::Piece piece, profiler::Phase phase, const Layout& layout,
                         const models::LayerProgram& program) const = 0;
  /// One operator in Phase::forward, input_gradient or weight_gradient.
  virtual double operator_s(const models::OperatorShape& shape, profiler::Phase phase) const = 0;
  /// `bytes` is the whole message.
  virtual double collective_s(models::CollectiveKind kind, int64_t bytes, const GroupPlace& group) const = 0;
  /// An all-to-all of tokens, of whose copies each rank gets one at most (planner::exchange_s).
  virtual double exchange_s(int64_t bytes, const models::CopyRoute& route, const GroupPlace& group) const {
    const double sent = double(bytes) * sent_once_share(group.ranks, route);
    return collective_s(models::CollectiveKind::all_to_all, int64_t(sent), group);
  }
  /// `bytes` of one rank to all others of the group.
  virtual double broadcast_s(int64_t bytes, const GroupPlace& group) const {
    return collective_s(models::CollectiveKind::all_gather, bytes, group);
  }
  /// One message between ranks that lie somewhere within `first` to `last`, `senders` of which send at once.
  virtual double transfer_s(int64_t bytes, int64_t first, int64_t last, int64_t senders) const = 0;
  /// Of a collective's time, what compute beside it loses.
  virtual double overlap_share(const GroupPlace&) const { return kOverlapShare; }
  /// The same of a tensor-parallel collective that runs in pieces beside its own product.
  virtual double pipelined_overlap_share() const { return kOverlapShare; }
  /// Of the rate of other collectives over the group, what gathers and scatters of sharded weights reach.
  virtual double sharded_rate(const GroupPlace&) const { return 1.0; }
  virtual double optimizer_s(int64_t parameters) const = 0;
  /// With its state in the host's memory: gradients go there and updated weights come back.
  virtual double offloaded_optimizer_s(int64_t parameters) const = 0;
  virtual double gradient_norm_s(int64_t parameters) const = 0;
  /// Launching one instruction.
  virtual double dispatch_s() const = 0;
  /// Speed of each of n ranks computing at once; empty where ranks share nothing.
  virtual std::vector<double> rate_by_active_ranks() const = 0;
  virtual CostOrigin origin() const = 0;
};

/// What an update of a rank's `parameters` with its state in the host's memory takes: gradients down, updated
/// weights up, and beside that the update itself, all ranks of a host at once.
double host_update_s(const ClusterSpec& cluster, int64_t parameters);

/// Measured by mpt-profile, on CPU ranks or on a GPU: exact at measured sizes, between them interpolated in
/// work per second. A model whose layers were not timed is priced by the measured rates of its operators;
/// links that were not measured as make_device_cost() prices them. Throws UserError if the profile cannot
/// price the model.
std::unique_ptr<CostSource> make_profile_cost(const profiler::Profile& profile, const ModelSpec& model,
                                              const Workload& workload, Precision precision,
                                              const ClusterSpec& cluster);

/// Measured kernel times of the cluster's device (profiler/hardware/kernels), and what cost/calibration.h
/// adds for the rest. Nothing where there are none for the device.
/// `own`: what the user measured, which overrides them; may be null.
std::unique_ptr<CostSource> make_kernel_cost(const ClusterSpec& cluster, const Execution& execution,
                                             const Calibration& calibration = kCalibration,
                                             std::shared_ptr<const profiler::KernelTables> own = nullptr);

/// The best source for a cluster without a profile: measured kernel times of its device, else the roofline.
std::unique_ptr<CostSource> make_device_cost(const ClusterSpec& cluster, const Execution& execution,
                                             std::shared_ptr<const profiler::KernelTables> own = nullptr);

/// Peak rates of the catalog with the efficiencies of cost/roofline.cpp: the coarsest source.
std::unique_ptr<CostSource> make_roofline_cost(const ClusterSpec& cluster);

}  // namespace mpt::planner
