// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/stage.h"

#include "base/error.h"
#include "runtime/nn/embedding.h"
#include "runtime/nn/head.h"
#include "runtime/nn/next_token.h"

namespace mpt::runtime {

struct Stage::State {
  // All data that one micro-batch keeps between its forward and the end of its backward.
  struct InFlight {
    Embedding::Saved tokens;
    std::vector<DecoderLayer::Saved> layers;
    Head::Saved head;
    std::vector<NextToken::Saved> next_tokens;
    Buffer d_embedding;  // kept from backward_input to backward_weight on the first stage
  };

  State(const StageOptions& o, size_t index, const StageContent& c, Device& d, const StageGroups& groups)
      : options(o),
        content(c),
        device(d),
        sizes(o.model, o.layout, o.sequence, o.type, groups.layers.tensor->rank(),
              groups.layers.context->rank()),
        parameters(d, o.type, groups.sharding) {
    const PartContext context{sizes, parameters, groups.layers, device};
    if (content.has_embedding) embedding.emplace(context);
    const int64_t full = recomputed_layers(o.layout, index, content.layer_count);
    for (int64_t l = 0; l < content.layer_count; ++l) {
      const Recompute recompute =
          o.layout.recompute == Recompute::full && l >= full ? Recompute::none : o.layout.recompute;
      layers.emplace_back(content.first_layer + l, recompute,
                          context.of(sizes_of_layer(content.first_layer + l)));
    }
    if (embedding) table = embedding->table();
    if (content.has_head) add_head(context);
    parameters.allocate(o.seed, o.stop);
    if (head) {
      loss.emplace(device, int64_t(2 * sizeof(double)));
      reset_loss();
    }
  }

  void add_head(const PartContext& context) {
    const ModelSpec& model = options.model;
    if (shares_table() && !embedding) {
      parameters.begin_piece(false);
      table = add_vocabulary_table("embedding.weight", sizes, parameters, true);
    }
    head.emplace("head.norm", model.tied_embeddings ? table : -1, context);
    for (int64_t depth = 0; depth < model.next_token_layers; ++depth)
      next_tokens.emplace_back(depth, table, head->weight(), context,
                               sizes_of_layer(model.layers.count() - 1));
  }

  bool shares_table() const { return options.model.tied_embeddings || options.model.next_token_layers > 0; }
  double& loss_sum() { return *static_cast<double*>(loss->data()); }
  double& next_token_loss_sum() { return static_cast<double*>(loss->data())[1]; }
  void reset_loss() { loss_sum() = next_token_loss_sum() = 0.0; }
  // Layers keep a reference to the result.
  const RankSizes& sizes_of_layer(int64_t layer) {
    const LayerList& list = options.model.layers;
    return kinds.try_emplace(list.name_of(layer), sizes.of(list[layer])).first->second;
  }

  InFlight& find(int micro_batch) {
    const auto found = in_flight.find(micro_batch);
    MPT_CHECK(found != in_flight.end(), "backward of micro-batch {} without its forward", micro_batch);
    return found->second;
  }

  void forward_next_tokens(InFlight& flight, const int32_t* targets) {
    const void* hidden = flight.head.norm_out.data();
    flight.next_tokens.resize(next_tokens.size());
    for (size_t m = 0; m < next_tokens.size(); ++m) {
      NextToken& module = next_tokens[m];
      NextToken::Saved& saved = flight.next_tokens[m];
      const int32_t* const tokens = targets + int64_t(m) * sizes.tokens;
      parameters.gather(module.input.piece(), Toward::up);
      Buffer x = module.input.forward(tokens, hidden, saved.input);
      parameters.gather(module.layer.piece(), Toward::up);
      const bool left = !watching && module.layer.can_leave_residual();
      x = module.layer.forward(std::move(x), saved.layer, {nullptr, left});
      parameters.gather(module.head.piece(), Toward::up);
      module.head.forward(std::move(x), left ? saved.layer.middle.data() : nullptr, tokens + sizes.tokens,
                          loss_scale * options.next_token_weight / double(next_tokens.size()), saved.head,
                          &next_token_loss_sum());
      hidden = saved.head.norm_out.data();
    }
  }

  // The input of next-token module `m`, apart from the tokens.
  static const void* hidden_before(const InFlight& flight, size_t m) {
    return (m == 0 ? flight.head : flight.next_tokens[m - 1].head).norm_out.data();
  }

  // Returns the gradient of a head's input. `weights`: also computes its weight gradients.
  Buffer backward_head(Head& of, Head::Saved& saved, const Buffer& beside, bool weights) {
    parameters.gather(of.piece(), Toward::down);
    Buffer gradient = of.backward_input(saved, weights && weights_beside(), beside.data());
    if (!weights) return gradient;
    with_gradients(of.piece(), [&] { of.backward_weight(saved); });
    saved = {};
    return gradient;
  }

  // Returns the gradient of a layer's input. `owned` may be empty, as in DecoderLayer::backward_input().
  Buffer backward_layer(DecoderLayer& layer, DecoderLayer::Saved& saved, Buffer owned, const void* gradient,
                        bool weights) {
    parameters.gather(layer.piece(), Toward::down);
    Buffer below = layer.backward_input(saved, std::move(owned), gradient, weights && layer_weights_beside());
    if (!weights) return below;
    with_gradients(layer.piece(), [&] { layer.backward_weight(saved, gradient); });
    saved = {};
    return below;
  }

  // Returns the gradient that the lowest module adds to the input of the head's product; empty without
  // modules.
  Buffer backward_next_tokens(InFlight& flight, bool weights) {
    Buffer beside;
    for (size_t m = next_tokens.size(); m-- > 0;) {
      NextToken& module = next_tokens[m];
      NextToken::Saved& saved = flight.next_tokens[m];
      const void* const hidden = hidden_before(flight, m);
      Buffer gradient = backward_head(module.head, saved.head, beside, weights);
      const void* const data = gradient.data();
      Buffer below = backward_layer(module.layer, saved.layer, std::move(gradient), data, weights);
      parameters.gather(module.input.piece(), Toward::down);
      beside = module.input.backward_input(saved.input, hidden, std::move(below));
      if (!weights) continue;
      with_gradients(module.input.piece(), [&] { module.input.backward_weight(saved.input, hidden); });
      saved.input = {};
    }
    return beside;
  }

  // The gradient at the top layer's output: the loss's own, or the one that the next stage sent.
  Buffer top_gradient(InFlight& flight, const void*& data, bool weights) {
    if (!head) return {};
    const Buffer beside = backward_next_tokens(flight, weights);
    Buffer gradient = backward_head(*head, flight.head, beside, weights);
    data = gradient.data();
    return gradient;
  }

  // From the gradient of the stage's output to that of its input. `weights`: also computes the weight
  // gradients.
  void backward(InFlight& flight, const void* gradient, void* input_gradient, bool weights) {
    Buffer owned = top_gradient(flight, gradient, weights);
    if (!weights && !head) {  // the slot is refilled before the weight gradients run, so keep a copy
      owned = Buffer(device, boundary_bytes());
      device.copy(owned.data(), gradient, owned.bytes());
      gradient = owned.data();
    }
    for (size_t l = layers.size(); l-- > 0;) {
      owned = backward_layer(layers[l], flight.layers[l], std::move(owned), gradient, weights);
      gradient = owned.data();
    }
    if (!embedding) return device.copy(input_gradient, gradient, boundary_bytes());
    if (weights)
      with_gradients(embedding->piece(), [&] { embedding->backward_weight(flight.tokens, gradient); });
    else
      flight.d_embedding = std::move(owned);
  }

  // The weight gradients of the head and of the next-token modules, for a split backward.
  void backward_head_weights(InFlight& flight) {
    for (size_t m = next_tokens.size(); m-- > 0;) {
      NextToken& module = next_tokens[m];
      NextToken::Saved& saved = flight.next_tokens[m];
      with_gradients(module.head.piece(), [&] { module.head.backward_weight(saved.head); });
      with_gradients(module.layer.piece(),
                     [&] { module.layer.backward_weight(saved.layer, saved.layer.d_output.data()); });
      with_gradients(module.input.piece(),
                     [&] { module.input.backward_weight(saved.input, hidden_before(flight, m)); });
    }
    with_gradients(head->piece(), [&] { head->backward_weight(flight.head); });
  }

  // Whether weight gradients are computed together with the input gradients, overlapped with the latter's
  // sums. With ZeRO 2 and 3 they are not: scattered gradients wait for free memory, and input gradients need
  // not.
  bool weights_beside() const { return sizes.overlaps_tensor && parameters.zero() < 2; }
  // The same for layers; their products of 8 bits then narrow the gradient of their output only once.
  bool layer_weights_beside() const {
    return (sizes.overlaps_tensor || sizes.weights_with_inputs) && parameters.zero() < 2;
  }

  // Computes the weight gradients of one piece between begin_gradients() and end_gradients().
  template <class F>
  void with_gradients(size_t piece, F&& body) {
    parameters.begin_gradients(piece);
    body();
    parameters.end_gradients(piece);
    if (on_gradients) on_gradients(piece);
  }

  void look_at(const Buffer& output, int64_t piece) {
    if (!watching || overflow != kNoOverflow) return;
    const int64_t count = output.bytes() / size_of(sizes.type);
    if (!std::isfinite(device.sum_of_squares(sizes.type, count, output.data()))) overflow = piece;
  }

  void look_at_loss() {
    if (!watching || overflow != kNoOverflow) return;
    device.synchronize();
    if (!std::isfinite(loss_sum() + next_token_loss_sum())) overflow = options.model.layers.count();
  }

  int64_t boundary_bytes() const { return sizes.local_bytes(sizes.hidden); }

  StageOptions options;
  StageContent content;
  Device& device;
  RankSizes sizes;
  std::map<std::string, RankSizes> kinds;  // of layers, by the kind's name
  Parameters parameters;
  std::optional<Embedding> embedding;
  std::vector<DecoderLayer> layers;
  std::optional<Head> head;
  std::vector<NextToken> next_tokens;
  int table = -1;
  std::map<int, InFlight> in_flight;
  std::optional<HostBuffer> loss;  // with the head, two sums: its loss, and that of next-token modules
  double loss_scale = 1.0;
  std::function<void(size_t)> on_gradients;
  bool watching = false;
  int64_t overflow = kNoOverflow;
};

Stage::Stage(const StageOptions& options, size_t index, const StageContent& content, Device& device,
             const StageGroups& groups)
    : state_(std::make_unique<State>(options, index, content, device, groups)) {}
Stage::~Stage() = default;
Stage::Stage(Stage&&) noexcept = default;

void Stage::forward(int micro_batch, const int32_t* tokens, const int32_t* targets, const void* input,
                    void* output, bool keep) {
  State& s = *state_;
  State::InFlight& flight = s.in_flight[micro_batch];
  flight.layers.resize(s.layers.size());
  Buffer x;
  if (s.embedding) {
    s.parameters.gather(s.embedding->piece(), Toward::up);
    x = s.embedding->forward(tokens, flight.tokens);
    s.look_at(x, -1);
  } else {
    x = Buffer(s.device, s.boundary_bytes());
    s.device.copy(x.data(), input, x.bytes());
  }
  const void* lacking = nullptr;  // still to be added to x by the next norm
  for (size_t l = 0; l < s.layers.size(); ++l) {
    DecoderLayer& layer = s.layers[l];
    DecoderLayer::Saved& saved = flight.layers[l];
    s.parameters.gather(layer.piece(), Toward::up);
    const bool left =
        keep && !s.watching && layer.can_leave_residual() && (l + 1 < s.layers.size() || s.head);
    x = layer.forward(std::move(x), saved, {lacking, left});
    lacking = left ? saved.middle.data() : nullptr;
    if (!keep) saved = {};
    s.look_at(x, s.content.first_layer + int64_t(l));
  }
  if (s.head) {
    s.parameters.gather(s.head->piece(), Toward::up);
    s.head->forward(std::move(x), lacking, targets, s.loss_scale, flight.head, &s.loss_sum());
    if (keep) s.forward_next_tokens(flight, targets);
    s.look_at_loss();
  } else {
    s.device.copy(output, x.data(), x.bytes());
  }
  if (!keep) s.in_flight.erase(micro_batch);
}

// The gradient of the loss in the logits is the probability, less one for the target.
std::vector<float> Stage::take_probabilities(int micro_batch, int64_t position) {
  State& s = *state_;
  const auto* rows = static_cast<const float*>(s.find(micro_batch).head.d_logits.data());
  const float* row = rows + position * s.sizes.vocab_rows;
  std::vector<float> probabilities(row, row + s.options.model.vocab);
  probabilities.front() += 1.0F;
  s.in_flight.erase(micro_batch);
  return probabilities;
}

void Stage::backward(int micro_batch, const void* output_gradient, void* input_gradient) {
  state_->backward(state_->find(micro_batch), output_gradient, input_gradient, true);
  state_->in_flight.erase(micro_batch);
}

void Stage::backward_input(int micro_batch, const void* output_gradient, void* input_gradient) {
  state_->backward(state_->find(micro_batch), output_gradient, input_gradient, false);
}

void Stage::backward_weight(int micro_batch) {
  State& s = *state_;
  State::InFlight& flight = s.find(micro_batch);
  if (s.head) s.backward_head_weights(flight);
  for (size_t l = s.layers.size(); l-- > 0;) {
    DecoderLayer::Saved& saved = flight.layers[l];
    s.with_gradients(s.layers[l].piece(), [&] { s.layers[l].backward_weight(saved, saved.d_output.data()); });
  }
  if (s.embedding)
    s.with_gradients(s.embedding->piece(),
                     [&] { s.embedding->backward_weight(flight.tokens, flight.d_embedding.data()); });
  s.in_flight.erase(micro_batch);
}

void Stage::on_gradients(std::function<void(size_t piece)> call) { state_->on_gradients = std::move(call); }
void Stage::set_loss_scale(double scale) {
  state_->loss_scale = scale;
  for (DecoderLayer& layer : state_->layers) layer.set_loss_scale(scale);
  for (NextToken& module : state_->next_tokens) module.layer.set_loss_scale(scale);
}
double Stage::loss_sum() const {
  if (!state_->head) return 0.0;
  state_->device.synchronize();
  return state_->loss_sum();
}
double Stage::next_token_loss_sum() const {
  if (state_->next_tokens.empty()) return 0.0;
  state_->device.synchronize();
  return state_->next_token_loss_sum() / double(state_->next_tokens.size());
}
void Stage::reset_loss() {
  if (state_->head) state_->reset_loss();
}
void Stage::watch_for_overflow() { state_->watching = true; }
std::vector<std::vector<double>> Stage::take_expert_loads() {
  std::vector<std::vector<double>> loads;
  const auto take = [&](DecoderLayer& layer) {
    if (std::vector<double> of_layer = layer.take_expert_loads(); !of_layer.empty())
      loads.push_back(std::move(of_layer));
  };
  for (DecoderLayer& layer : state_->layers) take(layer);
  for (NextToken& module : state_->next_tokens) take(module.layer);
  return loads;
}

int64_t Stage::first_overflow() const { return state_->overflow; }
Parameters& Stage::parameters() { return state_->parameters; }
int64_t Stage::boundary_bytes() const { return state_->boundary_bytes(); }

const Parameter* Stage::shared_embedding() const {
  if (!state_->shares_table() || state_->table < 0) return nullptr;
  return &state_->parameters.list()[size_t(state_->table)];
}

}  // namespace mpt::runtime
