// SPDX-License-Identifier: Apache-2.0
#pragma once

// RankWorker: what one rank does for each instruction: its stages, transfer slots, communicators and
// optimizer state. It orders nothing; the executor calls it in the program's order.

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "core/plan.h"
#include "core/rank_grid.h"
#include "runtime/comm/threads/thread_world.h"
#include "runtime/data/text_corpus.h"
#include "runtime/execute/executor.h"
#include "runtime/nn/stage.h"
#include "runtime/train/optimizer_options.h"

namespace mpt::runtime {

class RankWorker final : public InstructionHandler {
 public:
  RankWorker(const Plan& plan, const StepProgram& program, int rank, ThreadWorld& world,
             const TrainOptions& options, DataType type);

  /// Loads this rank's tokens of optimizer step `step` (from 0).
  void begin_step(int64_t step, const TextCorpus& corpus);
  void run(InstructionId id) override;

  double loss() const { return loss_; }  // mean over the step's tokens, the same on every rank
  double gradient_norm() const { return gradient_norm_; }  // before clipping
  int pipeline_rank() const { return int(at_.pipeline); }
  bool is_representative() const { return at_.tensor == 0 && at_.data == 0; }
  const Device& device() const { return *device_; }
  Stage& stage(int virtual_stage) { return held(virtual_stage).stage; }
  bool holds(int virtual_stage) const { return held_.count(virtual_stage) > 0; }

 private:
  struct HeldStage {
    explicit HeldStage(Stage made) : stage(std::move(made)) {}
    Stage stage;
    std::vector<Buffer> receive_activation, send_activation, receive_gradient, send_gradient;
    Buffer first_moment, second_moment;
    std::unique_ptr<Communicator> data_group;
  };

  void add_stage(int virtual_stage, const StageContent& content, const StageOptions& options);
  HeldStage& held(int virtual_stage) { return held_.at(virtual_stage); }
  void forward(const Instruction& i);
  void backward(const Instruction& i);
  void* output_place(const Instruction& i, std::vector<Buffer>& slots, int to);
  const void* input_place(const Instruction& i, std::vector<Buffer>& slots);
  void transfer(const Instruction& i);
  void reduce_tied_embedding();
  void reduce_norm();
  void optimizer_step(int virtual_stage);
  double squared_norm();

  const Plan& plan_;
  const StepProgram& program_;
  RankGrid grid_;
  RankCoordinates at_;
  const TrainOptions& options_;
  DataType type_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Communicator> tensor_group_, activation_group_, gradient_group_, embedding_group_,
      world_group_;
  std::map<int, HeldStage> held_;
  std::map<std::pair<int, int>, Buffer>
      handed_over_;  // boundary between two stages of this rank, by stage and micro-batch
  std::vector<int32_t> tokens_, targets_;  // [micro-batches, b, s]
  int64_t step_ = 0;
  double loss_ = 0.0, gradient_norm_ = 0.0;
};

}  // namespace mpt::runtime
