// SPDX-License-Identifier: Apache-2.0
#pragma once

// Stage: the layers and buffers of one virtual stage on one rank. It computes one micro-batch's forward or
// backward on request. The StepProgram decides the order.
//
// Sizes: b = micro-batch, s = sequence, h = hidden. A boundary tensor is [b, s, h], contiguous. With sequence
// parallelism it has only the rank's own tokens.

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "core/layout.h"
#include "core/model_spec.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"
#include "runtime/nn/decoder_layer.h"
#include "runtime/nn/parameters.h"

namespace mpt::runtime {

struct StageOptions {
  ModelSpec model;
  Layout layout;
  int64_t sequence = 0;  // of whole sequences; context ranks hold parts
  DataType type = DataType::float32;
  // A weight's start value depends only on seed, name and global index, so it is the same in any layout.
  // Empty: none is drawn, for all are set before use.
  std::optional<uint64_t> seed = 0;
  double next_token_weight = 0.1;           // factor on next-token modules' mean loss
  const std::atomic<bool>* stop = nullptr;  // once true, drawing ends, for no step follows
};

/// The communication groups of a stage's layers; they must outlive it.
struct StageGroups {
  LayerGroups layers;
  Sharding sharding;  // below ZeRO 2 only its sizes and ranks are used
};

inline constexpr int64_t kNoOverflow = std::numeric_limits<int64_t>::max();

class Stage {
 public:
  /// Virtual stage `index` of the layout, which holds `content`. `device` must outlive it.
  Stage(const StageOptions& options, size_t index, const StageContent& content, Device& device,
        const StageGroups& groups);
  ~Stage();
  Stage(Stage&&) noexcept;

  /// The factor on the gradient of the summed loss: 1 / tokens of the global batch, times the scale that
  /// keeps small gradients in range.
  void set_loss_scale(double scale);

  /// Forward of one micro-batch. `tokens` is [b, s] (first stage only). `targets` is [1 + next-token modules,
  /// b, s], each shifted by one more token (last stage only). `input` is the boundary (not on the first
  /// stage), `output` the boundary (not on the last). `keep`: keeps the data for backward, and runs
  /// next-token modules.
  void forward(int micro_batch, const int32_t* tokens, const int32_t* targets, const void* input,
               void* output, bool keep = true);
  /// Returns the probability of each token to follow token `position`, and ends the micro-batch. Its forward
  /// has kept its data and had token 0 as the target there. For one rank on a CPU in fp32, with loss scale 1.
  std::vector<float> take_probabilities(int micro_batch, int64_t position);
  /// Input and weight gradient. `output_gradient` is null on the last stage, `input_gradient` on the first.
  void backward(int micro_batch, const void* output_gradient, void* input_gradient);
  /// The two parts separately; backward_weight frees the data that backward_input kept.
  void backward_input(int micro_batch, const void* output_gradient, void* input_gradient);
  void backward_weight(int micro_batch);

  /// From now on `call` gets each piece once its weight gradients of a micro-batch are complete; null: no
  /// calls.
  void on_gradients(std::function<void(size_t piece)> call);

  /// Sum of the token losses (natural log) since the last call of reset_loss; 0 except on the last stage.
  /// Waits for the calling thread's work on the device, which must include the reset.
  double loss_sum() const;
  /// The same for next-token modules: the mean over them, without their weight.
  double next_token_loss_sum() const;
  void reset_loss();

  /// From now on every forward searches for the first piece with an output that is not finite.
  void watch_for_overflow();
  /// The layer's number, -1 for the embedding, the number of layers for the head, or kNoOverflow.
  int64_t first_overflow() const;

  /// For each layer with spread experts: the copies that they got in each forward pass since the last call,
  /// as a ratio to an even share.
  std::vector<std::vector<double>> take_expert_loads();

  Parameters& parameters();
  int64_t boundary_bytes() const;
  /// The token table, if both the first and the last stage use it (tied, or read by next-token modules) and
  /// this stage has it. Else null.
  const Parameter* shared_embedding() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mpt::runtime
