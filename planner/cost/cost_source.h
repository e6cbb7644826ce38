// SPDX-License-Identifier: Apache-2.0
#pragma once

// CostSource: seconds of the pieces of a step, and the origin of the numbers. It knows no schedule; StepCost
// adds its pieces up to instructions.

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

  /// The constants of the cost model that the prices use.
  const Calibration& constants() const { return c_; }

  /// A piece under each recompute, by Recompute; the layout's recompute is ignored.
  virtual std::array<PieceSeconds, 3> pieces_s(profiler::Piece piece, const Layout& layout,
                                               const models::LayerProgram& program) const;

  /// Time of the host to launch the piece's kernels and collectives, ahead of the device: a lower limit on
  /// their total. Zero if the host waits for each of them, which includes it in their time, or launches none.
  virtual std::array<PieceSeconds, 3> launching_s(profiler::Piece, const models::LayerProgram&) const {
    return {};
  }

  /// Compute of one piece for one micro-batch on one tensor-parallel rank, without its collectives.
  /// `program`: the piece's program under `layout`. A backward includes the layout's recompute.
  virtual double piece_s(profiler::Piece piece, profiler::Phase phase, const Layout& layout,
                         const models::LayerProgram& program) const = 0;
  /// One operator in Phase::forward, input_gradient or weight_gradient.
  virtual double operator_s(const models::OperatorShape& shape, profiler::Phase phase) const = 0;
  /// `bytes` is the whole message.
  virtual double collective_s(models::CollectiveKind kind, int64_t bytes, const GroupPlace& group) const = 0;
  /// An all-to-all of tokens, in which each rank gets at most one copy of a token (planner::exchange_s).
  virtual double exchange_s(int64_t bytes, const models::CopyRoute& route, const GroupPlace& group) const {
    const double sent = double(bytes) * sent_once_share(group.ranks, route);
    return collective_s(models::CollectiveKind::all_to_all, int64_t(sent), group);
  }
  /// One message between ranks somewhere within `first` to `last`; `senders` of them send at once.
  virtual double transfer_s(int64_t bytes, int64_t first, int64_t last, int64_t senders) const = 0;
  /// The compute time that a concurrent collective costs, as a share of the collective's time.
  virtual double overlap_share(const GroupPlace&) const { return c_.collective_overlap_share; }
  /// The same for a tensor-parallel collective that runs in pieces, concurrently with its product.
  virtual double pipelined_overlap_share() const { return c_.collective_overlap_share; }
  /// Rate of gathers and scatters of sharded weights, relative to other collectives of the group.
  virtual double sharded_rate(const GroupPlace&) const { return 1.0; }
  virtual double optimizer_s(int64_t parameters) const = 0;
  /// Update with the state in host memory: gradients go there and updated weights come back.
  virtual double offloaded_optimizer_s(int64_t parameters) const = 0;
  virtual double gradient_norm_s(int64_t parameters) const = 0;
  /// A copy between a device and its host's memory, in one direction.
  virtual double host_copy_s(int64_t) const { return 0.0; }
  /// Time to launch one instruction.
  virtual double dispatch_s() const = 0;
  /// Speed of each of n ranks that compute at once; empty if ranks share nothing.
  virtual std::vector<double> rate_by_active_ranks() const = 0;
  virtual CostOrigin origin() const = 0;

 protected:
  const Calibration c_;
};

/// Time of an update of a rank's `parameters` with the state in host memory: gradients go down and updated
/// weights up, while the update itself runs on all ranks of a host at once.
double host_update_s(const ClusterSpec& cluster, int64_t parameters, const Calibration& constants);

/// Measured by mpt-profile, on CPU ranks or on a GPU: exact at measured sizes, interpolated
/// in work per second between them. A model without timed layers is priced by the measured
/// rates of its operators, and unmeasured links as by make_device_cost(). Throws UserError
/// if the profile cannot price the model.
std::unique_ptr<CostSource> make_profile_cost(const profiler::Profile& profile, const ModelSpec& model,
                                              const Workload& workload, Precision precision,
                                              const ClusterSpec& cluster,
                                              const Calibration& constants = shipped_calibration());

/// Measured kernel times of the cluster's device (profiler/hardware/kernels), with cost/calibration.json for
/// the rest. Nothing if there are none for the device. `own`: the user's measurements, which override them;
/// may be null.
std::unique_ptr<CostSource> make_kernel_cost(const ClusterSpec& cluster, const Execution& execution,
                                             const Calibration& constants = shipped_calibration(),
                                             std::shared_ptr<const profiler::KernelTables> own = nullptr);

/// The best source for a cluster without a profile: measured kernel times of its device, else the roofline.
std::unique_ptr<CostSource> make_device_cost(const ClusterSpec& cluster, const Execution& execution,
                                             const Calibration& constants = shipped_calibration(),
                                             std::shared_ptr<const profiler::KernelTables> own = nullptr);

/// Shares of the catalog's peak rates: the coarsest source. Only the framework's attention matters.
std::unique_ptr<CostSource> make_roofline_cost(const ClusterSpec& cluster,
                                               const Calibration& constants = shipped_calibration(),
                                               const Execution& execution = {});

}  // namespace mpt::planner
