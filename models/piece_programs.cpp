// SPDX-License-Identifier: Apache-2.0
#include "models/piece_programs.h"

namespace mpt::models {

PiecePrograms::PiecePrograms(const ModelSpec& model, const Layout& layout, int64_t sequence,
                             std::shared_ptr<const LayerKinds> kinds)
    : model_(model),
      layout_(layout),
      sequence_(sequence),
      kinds_(kinds != nullptr ? std::move(kinds) : std::make_shared<const LayerKinds>(model)),
      layers_(kinds_->size()) {}

const LayerProgram& PiecePrograms::embedding() {
  if (!embedding_) embedding_ = embedding_program(model_, layout_, sequence_);
  return *embedding_;
}

const LayerProgram& PiecePrograms::last_stage() {
  if (!last_stage_) {
    const LayerProgram* const behind =
        model_.next_token_layers > 0 ? &layer(kinds_->of(model_.layers.count() - 1)) : nullptr;
    last_stage_ = last_stage_program(model_, layout_, sequence_, behind);
  }
  return *last_stage_;
}

const LayerProgram& PiecePrograms::layer(size_t kind) {
  std::optional<LayerProgram>& program = layers_[kind];
  if (!program) {
    program = layer_program(model_, kinds_->kind(kind), layout_, sequence_);
    program->kind = kind;
  }
  return *program;
}

void PiecePrograms::forget() {
  embedding_.reset();
  last_stage_.reset();
  for (std::optional<LayerProgram>& program : layers_) program.reset();
}

}  // namespace mpt::models
