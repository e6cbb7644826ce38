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

/// Compute of one piece for one micro-batch, without its collectives.
struct PieceSeconds {
  double forward_s = 0.0, backward_s = 0.0, input_gradient_s = 0.0, weight_gradient_s = 0.0;
};

class CostSource {
 public:
  explicit CostSource(const Calibration& constants = shipped_calibration()) : c_(constants) {}
  virtual ~CostSource() = default;

  /// The constants of the cost model that prices rest on.
  const Calibration& constants() const { return c_; }

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
  /// One message between ranks that lie somewhere within `first` to `last`, `senders` of which send at once.
  virtual double transfer_s(int64_t bytes, int64_t first, int64_t last, int64_t senders) const = 0;
  /// Of a collective's time, what compute beside it loses.
  virtual double overlap_share(const GroupPlace&) const { return c_.collective_overlap_share; }
  /// The same of a tensor-parallel collective that runs in pieces beside its own product.
  virtual double pipelined_overlap_share() const { return c_.collective_overlap_share; }
  /// Of the rate of other collectives over the group, what gathers and scatters of sharded weights reach.
  virtual double sharded_rate(const GroupPlace&) const { return 1.0; }
  virtual double optimizer_s(int64_t parameters) const = 0;
  /// With its state in the host's memory: gradients go there and updated weights come back.
  virtual double offloaded_optimizer_s(int64_t parameters) const = 0;
  virtual double gradient_norm_s(int64_t parameters) const = 0;
  /// A copy between a device and its host's memory, one way.
  virtual double host_copy_s(int64_t) const { return 0.0; }
  /// Launching one instruction.
  virtual double dispatch_s() const = 0;
  /// Speed of each of n ranks computing at once; empty where ranks share nothing.
  virtual std::vector<double> rate_by_active_ranks() const = 0;
  virtual CostOrigin origin() const = 0;

 protected:
  const Calibration c_;
};

/// What an update of a rank's `parameters` with its state in the host's memory takes: gradients down, updated
/// weights up, and beside that the update itself, all ranks of a host at once.
double host_update_s(const ClusterSpec& cluster, int64_t parameters, const Calibration& constants);

/// Measured by mpt-profile, on CPU ranks or on a GPU: exact at measured sizes, between them interpolated in
/// work per second. A model whose layers were not timed is priced by the measured rates of its operators;
/// links that were not measured as make_device_cost() prices them. Throws UserError if the profile cannot
/// price the model.
std::unique_ptr<CostSource> make_profile_cost(const profiler::Profile& profile, const ModelSpec& model,
                                              const Workload& workload, Precision precision,
                                              const ClusterSpec& cluster,
                                              const Calibration& constants = shipped_calibration());

/// Measured kernel times of the cluster's device (profiler/hardware/kernels), and what cost/calibration.json
/// adds for the rest. Nothing where there are none for the device.
/// `own`: what the user measured, which overrides them; may be null.
std::unique_ptr<CostSource> make_kernel_cost(const ClusterSpec& cluster, const Execution& execution,
                                             const Calibration& constants = shipped_calibration(),
                                             std::shared_ptr<const profiler::KernelTables> own = nullptr);

/// The best source for a cluster without a profile: measured kernel times of its device, else the roofline.
std::unique_ptr<CostSource> make_device_cost(const ClusterSpec& cluster, const Execution& execution,
                                             const Calibration& constants = shipped_calibration(),
                                             std::shared_ptr<const profiler::KernelTables> own = nullptr);

/// Shares of the catalog's peak rates: the coarsest source. Of the framework only its attention counts.
std::unique_ptr<CostSource> make_roofline_cost(const ClusterSpec& cluster,
                                               const Calibration& constants = shipped_calibration(),
                                               const Execution& execution = {});

}  // namespace mpt::planner
