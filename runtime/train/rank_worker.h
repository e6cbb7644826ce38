// SPDX-License-Identifier: Apache-2.0
#pragma once

// RankWorker: executes instructions on one rank. It has the rank's stages, transfer slots, communicators and
// optimizer state. The executor decides the order: the program's.

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "core/plan.h"
#include "core/rank_grid.h"
#include "core/step_program.h"
#include "models/rank_groups.h"
#include "reports/run_result.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/timed.h"
#include "runtime/comm/world.h"
#include "runtime/data/dataset.h"
#include "runtime/device/call_meter.h"
#include "runtime/device/side_stream.h"
#include "runtime/execute/executor.h"
#include "runtime/nn/stage.h"
#include "runtime/train/optimizer.h"
#include "runtime/train/optimizer_options.h"

namespace mpt::runtime {

/// The most micro-batches with kept activations at a time, for each virtual stage.
std::vector<size_t> in_flight_of_stages(const StepProgram& program);

/// Copies that a layer's experts got, as a ratio to an even share: one entry per forward pass, in order.
using LayerLoads = std::vector<double>;

/// One load for all layers of a rank. If layers are recomputed `one_by_one`: the highest of any layer and
/// pass. Else a stage's load is the mean over its layers and over a window of consecutive passes, one per
/// micro-batch in flight, at its highest. The result is the mean over stages, weighted by layers. 0 if no
/// layer has spread experts.
struct StageLoads {
  std::vector<LayerLoads> layers;
  size_t in_flight = 1;
};
double expert_load(const std::vector<StageLoads>& stages, bool one_by_one);

/// A run's state across steps, apart from the weights: the same on every rank.
struct TrainingState {
  int64_t step = 0;             // steps done
  int64_t samples = 0;          // sequences seen by all ranks: the next one's number
  int64_t optimizer_steps = 0;  // steps among those that changed the weights
  double loss_scale = 1.0;      // differs from 1 only in fp16
  int64_t good_steps = 0;       // since the loss scale changed
  int64_t skipped_in_a_row = 0;
};

/// The environment of a rank. `control` carries host memory, `data` device memory; on CPUs they are the same.
/// All must outlive the worker. `on_failure` is called for failures in side streams. `host_threads` more
/// threads may do an offloaded optimizer's step; 0: the rank's own does.
struct RankPlace {
  int rank = 0;
  Device& device;
  World& control;
  World& data;
  SideStream::OnFailure on_failure;
  int host_threads = 0;
  bool draws_weights = true;                // false: load() follows
  const std::atomic<bool>* stop = nullptr;  // once true, no weights are drawn or loaded any more
};

class RankWorker final : public InstructionHandler {
 public:
  RankWorker(const Plan& plan, const StepProgram& program, const RankPlace& place,
             const TrainOptions& options, DataType type);

  /// Replaces the weights by those of `source`, and with `moments` the optimizer's state.
  void load(const TensorSource& source, bool moments);
  void set_state(const TrainingState& state) { state_ = state; }
  const TrainingState& state() const { return state_; }
  /// A copy of the state that this rank has to save; among replicas only the first one saves.
  RankSnapshot snapshot();

  /// Loads this rank's tokens of optimizer step state().step.
  void begin_step(const Dataset& data);
  /// Loads this rank's tokens of batch `number` for a pass without gradients.
  void begin_evaluation(const Dataset& data, int64_t number);
  /// How the current pass is handed over. It is in turn if kernels may be loaded or memory requested, because
  /// the driver may then wait for all work of the GPU, even transfers. That is so in a first pass, and always
  /// with experts: each micro-batch brings them other numbers of rows.
  Handing handing() const { return handing_; }
  void run(InstructionId id) override;
  /// Counts the step, and updates the loss scale.
  void end_step();

  /// Seconds in calls of each kind of communicator since the last call of take_record(), and memory.
  reports::RankRecord take_record();
  double loss() const { return loss_; }  // mean over the step's tokens, the same on every rank
  double next_token_loss() const { return next_token_loss_; }  // mean over next-token modules, too
  double validation_loss() const { return validation_loss_; }  // of the last pass without gradients
  double gradient_norm() const { return gradient_norm_; }      // before clipping
  /// Whether the step's loss and gradients are finite; if not, the weights stay as they were.
  bool is_finite() const;
  /// The first piece with an output that was not finite, numbered as in Stage. It is known from the second
  /// bad step in a row on; kNoOverflow before.
  int64_t first_overflow() const;

  int pipeline_rank() const { return int(at_.pipeline); }
  bool is_representative() const { return at_.tensor == 0 && at_.data == 0 && at_.context == 0; }
  int rank() const { return int(grid_.rank(at_)); }
  bool is_first_rank() const { return is_representative() && at_.pipeline == 0; }
  Device& device() const { return device_; }
  bool holds(int virtual_stage) const { return held_.count(virtual_stage) > 0; }

 private:
  struct HeldStage {
    std::unique_ptr<Stage> stage;
    std::unique_ptr<Optimizer> optimizer;
    InstructionId last_gradients = -1;  // of the step
    SideStream::Ticket reduced = SideStream::kNothing;
    std::vector<Buffer> receive_activation, send_activation, receive_gradient, send_gradient;
  };
  std::vector<double> start_values(const Parameter& parameter) const;
  /// For data on the device.
  enum class FirstCall { sum, ring, all_to_all, transfer };
  std::shared_ptr<Communicator> communicator(const RankPlace& place, const models::RankGroup& group,
                                             const char* name, FirstCall first);
  std::unique_ptr<Communicator> metered(std::shared_ptr<Communicator> group, CallTime& time);
  void make_groups(const RankPlace& place);
  Communicator* group(models::GroupUse use) const { return groups_[size_t(use)].get(); }
  bool reduces_early() const {
    return side_ && plan_.layout.overlap_gradient_reduce && plan_.layout.zero < 2;
  }
  void reduce_gradients(int virtual_stage);
  void gather_parameters(int virtual_stage);
  void add_stage(int virtual_stage, const StageContent& content, const RankPlace& place);
  HeldStage& held(int virtual_stage) { return held_.at(virtual_stage); }
  void begin(bool evaluating, const Dataset& data, int64_t first_sample);
  void load_tokens(const Dataset& data, int64_t first_sample);
  void forward(const Instruction& i);
  void backward(InstructionId id, const Instruction& i);
  void backward_input(HeldStage& h, const Instruction& i);
  void* output_place(const Instruction& i, std::vector<Buffer>& slots, int to);
  const void* input_place(const Instruction& i, std::vector<Buffer>& slots);
  void transfer(const Instruction& i);
  void reduce_tied_embedding();
  void reduce_norm();
  void optimizer_step(int virtual_stage);

  const Plan& plan_;
  const StepProgram& program_;
  const std::vector<size_t> in_flight_;  // by virtual stage
  RankGrid grid_;
  RankCoordinates at_;
  const TrainOptions& options_;
  DataType type_;
  Device& device_;
  const std::atomic<bool>* stop_;
  // Shared by the communicators below; must outlive them.
  struct CallTimes {
    CallTime tensor{0.0}, context{0.0}, expert{0.0}, sharding{0.0}, transfer{0.0}, gradients{0.0};
    CallTime gradients_beside{0.0}, gradients_waited{0.0};  // in the side stream, and for it
    CallTime beside{0.0};                                   // in the side stream, without anyone waiting
  };
  std::unique_ptr<CallTimes> times_ = std::make_unique<CallTimes>();
  std::vector<std::shared_ptr<MarkMeter>> meters_;  // of groups that lanes use
  // Shared by the groups below: several uses may have one communicator.
  std::map<models::RankGroup, std::shared_ptr<Communicator>> communicators_;
  std::array<std::unique_ptr<Communicator>, models::kGroupUses> groups_;
  std::array<std::unique_ptr<Communicator>, models::kGroupUses> lists_;  // of experts, in host memory
  // The two ranks of each transfer, sender first. A lane sends while another receives, and neither may wait
  // for the other. Also the two ends of the pipeline, if they share a token table.
  std::map<models::RankGroup, std::unique_ptr<Communicator>> pipeline_groups_;
  std::unique_ptr<Communicator> world_group_;
  std::unique_ptr<Device> host_;  // holds an offloaded optimizer's state
  std::map<int, HeldStage> held_;
  std::map<std::pair<int, int>, Buffer>
      handed_over_;  // boundary between two stages of this rank, by stage and micro-batch
  std::vector<int32_t> tokens_, targets_;  // [micro-batches, b, s], [micro-batches, 1 + modules, b, s]
  // Destroyed before the objects that their work uses. side_: communication between replicas, null if none of
  // it overlaps with compute. ring_: keys and values of context ranks. products_: communication between
  // tensor ranks during products. update_: an offloaded optimizer's step.
  std::unique_ptr<SideStream> side_, ring_, products_;
  std::vector<std::unique_ptr<SideStream>> update_;
  TrainingState state_;
  bool evaluating_ = false;
  Handing handing_ = Handing::at_once;
  std::array<bool, 2> has_begun_{};  // a training pass, an evaluation
  double loss_ = 0.0, next_token_loss_ = 0.0, validation_loss_ = 0.0, gradient_norm_ = 0.0;
};

}  // namespace mpt::runtime
