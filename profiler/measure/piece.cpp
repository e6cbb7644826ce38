// SPDX-License-Identifier: Apache-2.0
#include "profiler/measure/piece.h"

#include "base/clock.h"

#include "runtime/comm/mover.h"
#include "runtime/nn/decoder_layer.h"
#include "runtime/nn/embedding.h"
#include "runtime/nn/head.h"

namespace mpt::profiler {

using runtime::Buffer;

namespace {

// Copies to and from the device: the device itself, or the host's mover if it works in host memory.
runtime::Mover& mover_of(runtime::Device& device) {
  auto* own = dynamic_cast<runtime::Mover*>(&device);
  return own == nullptr ? runtime::host_mover() : *own;
}

}  // namespace

struct PieceRunner::State {
  State(const ModelSpec& model, const Layout& layout, int64_t sequence, Piece piece, int64_t number,
        const Target& target)
      : device(target.make_device()),
        marks(device->make_marks(1)),
        group(runtime::make_single_communicator(mover_of(*device))),
        sizes(model, layout, sequence, target.type, 0),
        parameters(*device, sizes.type, {}),
        loss(*device, int64_t(sizeof(double))) {
    const runtime::LayerGroups groups{group.get(), group.get(), group.get()};
    const runtime::PartContext context{sizes, parameters, groups, *device};
    if (piece == Piece::embedding) embedding.emplace(context);
    if (piece == Piece::layer) layer.emplace(number, layout.recompute, context);
    if (piece == Piece::head) head.emplace("head.norm", -1, context);
    parameters.allocate(1);
    // Tokens spread over the rows of the table that this rank holds: one row alone would stay in the cache.
    for (int64_t t = 0; t < sizes.tokens; ++t) ids.push_back(int32_t(t * 7919 % sizes.vocab_used));
    boundary = Buffer(*device, sizes.token_bytes(sizes.hidden));
    fill(*device, sizes.type, boundary);
    *static_cast<double*>(loss.data()) = 0.0;
  }

  Buffer boundary_copy() {
    Buffer copy(*device, boundary.bytes());
    device->copy(copy.data(), boundary.data(), boundary.bytes());
    return copy;
  }

  std::unique_ptr<runtime::Device> device;
  std::unique_ptr<runtime::WorkMarks> marks;  // null: work is complete when a call returns
  std::unique_ptr<runtime::Communicator> group;
  runtime::RankSizes sizes;
  runtime::Parameters parameters;
  std::optional<runtime::Embedding> embedding;
  std::optional<runtime::DecoderLayer> layer;
  std::optional<runtime::Head> head;
  runtime::HostBuffer loss;
  std::vector<int32_t> ids;
  Buffer boundary;  // the neighbours' activations and gradients
  runtime::Embedding::Saved tokens;
  runtime::DecoderLayer::Saved layer_saved;
  runtime::Head::Saved head_saved;
};

PieceRunner::PieceRunner(const ModelSpec& model, const Layout& layout, int64_t sequence, Piece piece,
                         int64_t layer, const Target& target)
    : state_(std::make_unique<State>(model, layout, sequence, piece, layer, target)) {}
PieceRunner::~PieceRunner() = default;

void PieceRunner::forward() {
  State& s = *state_;
  if (s.embedding) s.embedding->forward(s.ids.data(), s.tokens);
  // As between two layers: the residual addition of a layer's end runs at the beginning of the next one.
  if (s.layer) {
    const bool left = s.layer->can_leave_residual();
    s.layer->forward(s.boundary_copy(), s.layer_saved, {left ? s.boundary.data() : nullptr, left});
  }
  if (s.head)
    s.head->forward(s.boundary_copy(), nullptr, s.ids.data(), 1e-4, s.head_saved,
                    static_cast<double*>(s.loss.data()));
}

void PieceRunner::backward_input() {
  State& s = *state_;
  if (s.layer) s.layer->backward_input(s.layer_saved, {}, s.boundary.data(), false);
  if (s.head) s.head->backward_input(s.head_saved, false);
}

void PieceRunner::backward_weight() {
  State& s = *state_;
  if (s.embedding) s.embedding->backward_weight(s.tokens, s.boundary.data());
  if (s.layer) s.layer->backward_weight(s.layer_saved, s.boundary.data());
  if (s.head) s.head->backward_weight(s.head_saved);
}

void PieceRunner::finish() {
  state_->tokens = {};
  state_->layer_saved = {};
  state_->head_saved = {};
}

void PieceRunner::synchronize() { state_->device->synchronize(); }

double PieceRunner::seconds_of(const std::function<void()>& work) {
  runtime::WorkMarks* const marks = state_->marks.get();
  if (marks == nullptr) {
    const double start = now_s();
    work();
    synchronize();
    return now_s() - start;
  }
  marks->begin_step();
  marks->start(0);
  work();
  marks->end(0);
  marks->finish();
  const auto [begin, end] = marks->time_s(0);
  return end - begin;
}

}  // namespace mpt::profiler
