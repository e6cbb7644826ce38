// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/stage.h"

#include <map>
#include <optional>
#include <vector>

#include "core/error.h"
#include "runtime/nn/decoder_layer.h"
#include "runtime/nn/embedding.h"
#include "runtime/nn/head.h"

namespace mpt::runtime {

struct Stage::State {
  // Everything one micro-batch keeps between its forward and the end of its backward.
  struct InFlight {
    Buffer tokens;
    std::vector<DecoderLayer::Saved> layers;
    Head::Saved head;
    Buffer d_embedding;  // kept from backward_input to backward_weight on the first stage
  };

  State(const StageOptions& o, const StageContent& c, Device& d, Communicator& group)
      : options(o),
        content(c),
        device(d),
        sizes(o.model, o.layout, o.sequence, o.type, group.rank()),
        parameters(d, o.type) {
    check_supported(o.model, o.layout);
    if (content.has_embedding) embedding.emplace(sizes, parameters, group, device);
    for (int64_t l = 0; l < content.layer_count; ++l) {
      layers.emplace_back(content.first_layer + l, sizes, parameters, group, device);
    }
    if (content.has_head) {
      const bool tied = o.model.tied_embeddings;
      table = embedding ? embedding->table() : tied ? add_token_table(sizes, parameters, true) : -1;
      head.emplace(tied ? table : -1, sizes, parameters, group, device);
    } else if (embedding) {
      table = embedding->table();
    }
    parameters.allocate(o.seed);
  }

  InFlight& find(int micro_batch) {
    const auto found = in_flight.find(micro_batch);
    MPT_CHECK(found != in_flight.end(), "backward of micro-batch {} without its forward", micro_batch);
    return found->second;
  }

  // The gradient that enters the top piece: the loss's own, or what the next stage sent.
  Buffer top_gradient(InFlight& flight, const void*& data) {
    if (!head) return {};
    Buffer gradient = head->backward_input(flight.head);
    data = gradient.data();
    return gradient;
  }

  int64_t boundary_bytes() const { return sizes.token_bytes(sizes.hidden); }

  StageOptions options;
  StageContent content;
  Device& device;
  RankSizes sizes;
  Parameters parameters;
  std::optional<Embedding> embedding;
  std::vector<DecoderLayer> layers;
  std::optional<Head> head;
  int table = -1;
  std::map<int, InFlight> in_flight;
  double loss = 0.0;
};

Stage::Stage(const StageOptions& options, const StageContent& content, Device& device,
             Communicator& tensor_group)
    : state_(std::make_unique<State>(options, content, device, tensor_group)) {}
Stage::~Stage() = default;
Stage::Stage(Stage&&) noexcept = default;

void Stage::forward(int micro_batch, const int32_t* tokens, const int32_t* targets, const void* input,
                    void* output) {
  State& s = *state_;
  State::InFlight& flight = s.in_flight[micro_batch];
  flight.layers.resize(s.layers.size());
  Buffer x;
  if (s.embedding) {
    x = s.embedding->forward(tokens, flight.tokens);
  } else {
    x = Buffer(s.device, s.boundary_bytes());
    s.device.copy(x.data(), input, x.bytes());
  }
  for (size_t l = 0; l < s.layers.size(); ++l) x = s.layers[l].forward(std::move(x), flight.layers[l]);
  if (s.head) {
    s.loss += s.head->forward(std::move(x), targets, s.options.loss_scale, flight.head);
  } else {
    s.device.copy(output, x.data(), x.bytes());
  }
}

void Stage::backward(int micro_batch, const void* output_gradient, void* input_gradient) {
  State& s = *state_;
  State::InFlight& flight = s.find(micro_batch);
  const void* gradient = output_gradient;
  Buffer owned = s.top_gradient(flight, gradient);
  if (s.head) {
    s.head->backward_weight(flight.head);
    flight.head = {};
  }
  for (size_t l = s.layers.size(); l-- > 0;) {
    DecoderLayer::Saved& saved = flight.layers[l];
    Buffer below = s.layers[l].backward_input(saved, std::move(owned), gradient);
    s.layers[l].backward_weight(saved, gradient);
    saved = {};
    owned = std::move(below);
    gradient = owned.data();
  }
  if (s.embedding) {
    s.embedding->backward_weight(flight.tokens, gradient);
  } else {
    s.device.copy(input_gradient, gradient, s.boundary_bytes());
  }
  s.in_flight.erase(micro_batch);
}

void Stage::backward_input(int micro_batch, const void* output_gradient, void* input_gradient) {
  State& s = *state_;
  State::InFlight& flight = s.find(micro_batch);
  const void* gradient = output_gradient;
  Buffer owned = s.top_gradient(flight, gradient);
  if (!s.head) {  // the slot is filled again before the weight gradients run: keep a copy
    owned = Buffer(s.device, s.boundary_bytes());
    s.device.copy(owned.data(), gradient, owned.bytes());
    gradient = owned.data();
  }
  for (size_t l = s.layers.size(); l-- > 0;) {
    Buffer below = s.layers[l].backward_input(flight.layers[l], std::move(owned), gradient);
    owned = std::move(below);
    gradient = owned.data();
  }
  if (s.embedding) {
    flight.d_embedding = std::move(owned);
  } else {
    s.device.copy(input_gradient, gradient, s.boundary_bytes());
  }
}

void Stage::backward_weight(int micro_batch) {
  State& s = *state_;
  State::InFlight& flight = s.find(micro_batch);
  if (s.head) s.head->backward_weight(flight.head);
  for (size_t l = s.layers.size(); l-- > 0;) {
    s.layers[l].backward_weight(flight.layers[l], flight.layers[l].d_output.data());
  }
  if (s.embedding) s.embedding->backward_weight(flight.tokens, flight.d_embedding.data());
  s.in_flight.erase(micro_batch);
}

double Stage::loss_sum() const { return state_->loss; }
void Stage::reset_loss() { state_->loss = 0.0; }
std::span<const Parameter> Stage::parameters() const { return state_->parameters.list(); }
void* Stage::parameter_data() { return state_->parameters.values(); }
void* Stage::gradient_data() { return state_->parameters.gradients(); }
int64_t Stage::parameter_count() const { return state_->parameters.count(); }
void Stage::zero_gradients() { state_->parameters.zero_gradients(); }

const Parameter* Stage::tied_embedding() const {
  if (!state_->options.model.tied_embeddings || state_->table < 0) return nullptr;
  return &state_->parameters.list()[size_t(state_->table)];
}

}  // namespace mpt::runtime
