// SPDX-License-Identifier: Apache-2.0
#pragma once

// Stage: the layers and buffers of one virtual stage on one rank. It computes one micro-batch's forward or
// backward when told to and orders nothing itself: order is the StepProgram's.
//
// Sizes: b = micro-batch, s = sequence, h = hidden. A boundary tensor is [b, s, h], contiguous; with sequence
// parallelism the rank's own tokens of it.

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
  int64_t sequence = 0;  // of whole sequences, of which context ranks hold parts
  DataType type = DataType::float32;
  // Every weight depends on seed, name and global index alone: the same in any layout. Empty: none is drawn,
  // for all are set before use.
  std::optional<uint64_t> seed = 0;
  double next_token_weight = 0.1;           // of the mean loss of next-token modules, beside the model's own
  const std::atomic<bool>* stop = nullptr;  // once it is true nothing more is drawn, for no step follows
};

/// The groups that a stage's layers talk in; they must outlive it.
struct StageGroups {
  LayerGroups layers;
  Sharding sharding;  // below ZeRO 2 asked for its sizes and ranks alone
};

inline constexpr int64_t kNoOverflow = std::numeric_limits<int64_t>::max();

class Stage {
 public:
  /// Virtual stage `index` of the layout, which holds `content`. `device` must outlive it.
  Stage(const StageOptions& options, size_t index, const StageContent& content, Device& device,
        const StageGroups& groups);
  ~Stage();
  Stage(Stage&&) noexcept;

  /// The gradient of the summed loss is multiplied by this: 1 / tokens of the global batch, and what keeps
  /// small gradients in range.
  void set_loss_scale(double scale);

  /// Forward of one micro-batch. `tokens` is [b, s] (first stage only), `targets` [1 + next-token modules,
  /// b, s], each one token later (last stage only), `input` the boundary (not first), `output` the boundary
  /// (not last). With `keep` it keeps what backward needs, and next-token modules run.
  void forward(int micro_batch, const int32_t* tokens, const int32_t* targets, const void* input,
               void* output, bool keep = true);
  /// Input and weight gradient. `output_gradient` is null on the last stage, `input_gradient` on the first.
  void backward(int micro_batch, const void* output_gradient, void* input_gradient);
  /// The two parts apart; backward_weight frees what backward_input kept.
  void backward_input(int micro_batch, const void* output_gradient, void* input_gradient);
  void backward_weight(int micro_batch);

  /// From now on `call` is told each piece whose weight gradients of a micro-batch are there; null: nobody.
  void on_gradients(std::function<void(size_t piece)> call);

  /// Sum of the token losses (natural log) since the last call of reset_loss; 0 except on the last stage.
  /// Waits for what the calling thread asked the device for, and the reset must come behind it.
  double loss_sum() const;
  /// The same of next-token modules: their mean, without their weight.
  double next_token_loss_sum() const;
  void reset_loss();

  /// From now on every forward looks for the first piece whose output is not finite.
  void watch_for_overflow();
  /// The layer's number, -1 for the embedding, the number of layers for the head, or kNoOverflow.
  int64_t first_overflow() const;

  /// Of each layer with spread experts, what they got in each forward pass since the last call, over an even
  /// share.
  std::vector<std::vector<double>> take_expert_loads();

  Parameters& parameters();
  int64_t boundary_bytes() const;
  /// The token table, where the first and the last stage use it: tied, or read by next-token modules. Else
  /// null, as on a stage without it.
  const Parameter* shared_embedding() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mpt::runtime
