// SPDX-License-Identifier: Apache-2.0
#pragma once

// Stage: the layers and buffers of one virtual stage on one rank. It computes one micro-batch's forward or
// backward when told to and orders nothing itself: order is the StepProgram's.
//
// Sizes: b = micro-batch, s = sequence, h = hidden. A boundary tensor is [b, s, h], contiguous.

#include <cstdint>
#include <memory>
#include <span>

#include "core/layout.h"
#include "core/model_spec.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"
#include "runtime/nn/parameters.h"

namespace mpt::runtime {

struct StageOptions {
  ModelSpec model;
  Layout layout;
  int64_t sequence = 0;
  DataType type = DataType::float32;
  uint64_t seed = 0;  // every weight depends on seed, name and global index alone: the same in any layout
  double loss_scale =
      1.0;  // gradient of the summed loss is multiplied by this (1 / tokens of the global batch)
};

class Stage {
 public:
  /// `tensor_group` is this rank's tensor-parallel group; it must outlive the stage, and so must `device`.
  Stage(const StageOptions& options, const StageContent& content, Device& device, Communicator& tensor_group);
  ~Stage();
  Stage(Stage&&) noexcept;

  /// Forward of one micro-batch. `tokens` is [b, s] (first stage only), `targets` [b, s] (last stage only),
  /// `input` the boundary (not first), `output` the boundary (not last). Keeps what backward needs.
  void forward(int micro_batch, const int32_t* tokens, const int32_t* targets, const void* input,
               void* output);
  /// Input and weight gradient. `output_gradient` is null on the last stage, `input_gradient` on the first.
  void backward(int micro_batch, const void* output_gradient, void* input_gradient);
  /// The two parts apart; backward_weight frees what backward_input kept.
  void backward_input(int micro_batch, const void* output_gradient, void* input_gradient);
  void backward_weight(int micro_batch);

  /// Sum of the token losses (natural log) since the last call of reset_loss; 0 except on the last stage.
  double loss_sum() const;
  void reset_loss();

  std::span<const Parameter> parameters() const;
  void* parameter_data();  // flat, element type options.type
  void* gradient_data();   // flat, accumulated over micro-batches until zero_gradients
  int64_t parameter_count() const;
  void zero_gradients();
  /// The tied embedding's part of the flat buffers; null if this stage holds none or the weight is not tied.
  const Parameter* tied_embedding() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mpt::runtime
