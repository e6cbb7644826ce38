// SPDX-License-Identifier: Apache-2.0
#include "models/piece_programs.h"

#include <utility>

namespace mpt::models {

LayerKinds::LayerKinds(const ModelSpec& model) {
  Counts seen{};
  below_.reserve(size_t(model.layers) + 1);
  below_.push_back(seen);
  for (int64_t l = 0; l < model.layers; ++l) {
    const size_t kind = of(model, l);
    if (seen[kind]++ == 0) first_[kind] = l;
    below_.push_back(seen);
  }
}

size_t LayerKinds::of(const ModelSpec& model, int64_t layer) {
  const bool windowed = model.sliding_window && layer % model.sliding_window_interval == 0;
  return size_t(layer_has_experts(model, layer) ? 1 : 0) + size_t(windowed ? 2 : 0);
}

std::optional<size_t> LayerKinds::first_with(bool experts) const {
  std::optional<size_t> lowest;
  for (size_t kind = 0; kind < kCount; ++kind) {
    if (has_experts(kind) != experts || all()[kind] == 0) continue;
    if (!lowest || first_[kind] < first_[*lowest]) lowest = kind;
  }
  return lowest;
}

PiecePrograms::PiecePrograms(const ModelSpec& model, const Layout& layout, int64_t sequence,
                             std::shared_ptr<const LayerKinds> kinds)
    : model_(model),
      layout_(layout),
      sequence_(sequence),
      kinds_(kinds != nullptr ? std::move(kinds) : std::make_shared<const LayerKinds>(model)) {}

const LayerProgram& PiecePrograms::embedding() {
  if (!embedding_) embedding_ = embedding_program(model_, layout_, sequence_);
  return *embedding_;
}

const LayerProgram& PiecePrograms::last_stage() {
  if (!last_stage_) {
    const LayerProgram* const behind =
        model_.next_token_layers > 0 ? &layer(LayerKinds::of(model_, model_.layers - 1)) : nullptr;
    last_stage_ = last_stage_program(model_, layout_, sequence_, behind);
  }
  return *last_stage_;
}

const LayerProgram& PiecePrograms::layer(size_t kind) {
  std::optional<LayerProgram>& program = layers_[kind];
  if (!program) program = layer_program(model_, kinds_->first(kind), layout_, sequence_);
  return *program;
}

void PiecePrograms::forget() {
  embedding_.reset();
  last_stage_.reset();
  for (std::optional<LayerProgram>& program : layers_) program.reset();
}

}  // namespace mpt::models
