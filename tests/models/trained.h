// SPDX-License-Identifier: Apache-2.0
#pragma once

// Models on one rank, with adapters or without, for tests of what is trained.

#include "models/footprint.h"
#include "models/zoo.h"

namespace mpt::models::trained {

inline Layout one_rank(const ModelSpec& model) {
  Layout l;
  l.precision = Precision::bf16;
  l.layers_per_stage = {model.layers.count()};
  return l;
}

inline Training lora(int64_t rank, FrozenFormat format = FrozenFormat::bf16) {
  Training t;
  t.adapter_rank = rank;
  t.adapter_targets = {AdapterTarget::qkv, AdapterTarget::output, AdapterTarget::up, AdapterTarget::down};
  t.frozen_format = format;
  return t;
}

inline StageFootprint footprint_of(const ModelSpec& model, const Layout& layout, int64_t sequence = 2048) {
  return stage_footprints(model, layout, {1, sequence}).front();
}

inline ParameterShare share_of(const ModelSpec& model, const Layout& layout) {
  return StagePieces(model, layout, 128).parameters(StageContent{0, model.layers.count(), true, true});
}

}  // namespace mpt::models::trained
