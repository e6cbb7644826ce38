// SPDX-License-Identifier: Apache-2.0
#pragma once

// Experts: the mixture of experts that replaces a dense MLP (Fedus et al. 2021, arXiv:2101.03961; Jiang et
// al. 2024, arXiv:2401.04088). A router picks experts for each token. Copies of the token go through them,
// and their weighted outputs are added.
//
// Without expert parallelism every rank of the tensor group holds its share of every expert's width and sees
// all tokens. With it a rank holds whole experts, works on its own tokens, and sends copies to the experts'
// ranks and back (Lepikhin et al. 2020, arXiv:2006.16668). If experts are also split by width, each part acts
// like another expert: a copy goes to every part, and the outputs of the parts are added. A copy's weight
// multiplies the input of the second product, so its gradient does not need kept outputs.
//
// The load-balancing loss of each sequence, coefficient x experts x sum of f_e P_e (arXiv:2101.03961, eq. 4,
// over one sequence as in arXiv:2405.04434, section 2.1.4), acts through its gradient alone. Per sequence it
// does not depend on the layout.
//
// A bias that changes only the choice has no gradient (arXiv:2408.15664). Its gradient buffer holds the load
// of each expert minus the mean, and a step moves the bias by a fixed amount against it.

#include <optional>
#include <utility>
#include <vector>

#include "runtime/nn/shared_experts.h"

namespace mpt::runtime {

class Experts : private Part {
 public:
  /// Rows for one expert from one sending rank.
  struct Chunk {
    int64_t expert = 0;  // of this rank's
    int64_t first = 0, rows = 0;
  };
  /// The destinations of the copies of a micro-batch's tokens.
  struct Routing {
    std::vector<int32_t> chosen;          // [tokens, top]; experts by token
    std::vector<int32_t> source;          // token of each copy, copies sorted by expert
    std::vector<int32_t> place;           // [tokens, top, parts of an expert]: the copy
    std::vector<int64_t> sent, received;  // copies to and from each rank of the expert group
    std::vector<Chunk> chunks;
    int64_t copies = 0, rows = 0;  // sent in total; to work on
  };
  struct Saved {
    Routing routing;
    Buffer probabilities, copies, weights, up, activated;
    Buffer d_logits, d_copies_out, d_up;  // from backward_input to backward_weight
    SharedExperts::Saved shared;
  };

  Experts(const std::string& name, const PartContext& context);

  /// x and y [local tokens, hidden]. Without `y` it stops once the kept activations exist.
  void forward(const void* x, void* y, Saved& saved, const TokenRoom& room);
  /// `loss_scale` is the scale of the loss's gradient. dx is written.
  void backward_input(const void* dy, void* dx, double loss_scale, Saved& saved, const TokenRoom& room);
  /// `all`: memory for the gathered input of the shared experts.
  void backward_weight(const void* dy, const void* x, Saved& saved, const Buffer& all);

  /// For each forward pass since the last call: copies that this rank's experts got, as a ratio to an even
  /// share. Empty if experts are not spread.
  std::vector<double> take_loads() { return std::exchange(loads_, {}); }

 private:
  bool spreads() const { return expert_group_.size() > 1; }
  bool gathers() const { return !spreads() && splits_tokens(); }
  int64_t source_tokens() const { return gathers() ? sizes_.tokens : sizes_.local_tokens; }
  int64_t width_bytes(int64_t rows, int64_t columns) const { return rows * columns * sizes_.unit(); }
  char* row_at(const Buffer& rows, int64_t row, int64_t columns) const {
    return beyond(rows.data(), width_bytes(row, columns));
  }
  /// A weight or bias from element `first` on; null if there is none.
  const void* weights_at(int index, int64_t first) const {
    return index < 0 ? nullptr : beyond(parameters_.value(index), first * sizes_.unit());
  }
  const MixtureOfExperts& moe() const { return *sizes_.kind.moe; }
  ActivationShape activation(int64_t rows) const;
  RouterShape router_shape() const;
  /// Whether this rank adds the bias of a down-projection: parts of one expert share the bias.
  bool adds_down_bias() const;
  void add_weights(const std::string& name);
  void add_bias_of_choice(const std::string& name);
  void forward_routed(const void* x, void* y, Saved& saved);
  void backward_routed(const void* dy, void* dx, double loss_scale, Saved& saved);
  void backward_routed_weight(const void* x, Saved& saved);
  void backward_down_bias(const Chunk& chunk, const Saved& saved, void* dbias, void* dfactors);
  void count_load(const Routing& routing);
  void route_backward(const Buffer& d_weights, void* dx, double loss_scale, Saved& saved);
  void route(const void* x, Saved& saved, Buffer& weights);
  void plan_copies(Routing& routing);
  void exchange_counts(Routing& routing, const std::vector<int64_t>& copies_of);
  Buffer to_experts(const Routing& routing, const Buffer& copies, int64_t columns, DataType type);
  Buffer from_experts(const Routing& routing, const Buffer& rows, int64_t columns, DataType type);
  Buffer dispatch(const Routing& routing, const void* tokens);
  void combine(const Routing& routing, const Buffer& rows, void* y);
  Buffer weighted_rows(const Saved& saved) const;
  Buffer balance_gradient(const Routing& routing, double scale) const;
  template <class F>
  void for_each_chunk(const Routing& routing, int64_t columns, int64_t inner, F&& body);

  Communicator& expert_group_;
  const ListGroups lists_;  // for host memory
  int64_t experts_, top_;
  int64_t parts_, held_;      // copies of a token per expert; experts or parts held
  int64_t width_, up_width_;  // of an expert's MLP on this rank
  Linear router_;
  std::optional<SharedExperts> shared_;
  int up_ = -1, down_ = -1, up_bias_ = -1, down_bias_ = -1, choice_bias_ = -1;
  std::vector<double> loads_;
};

}  // namespace mpt::runtime
