// SPDX-License-Identifier: Apache-2.0
#pragma once

// The programs of a model's pieces under one split. Memory model and prices read them.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "models/layer_kinds.h"
#include "models/layer_program.h"

namespace mpt::models {

/// Each program is made at its first use. For one thread.
class PiecePrograms {
 public:
  /// `model` must outlive it. `kinds`: the model's; null if the caller has none.
  PiecePrograms(const ModelSpec& model, const Layout& layout, int64_t sequence,
                std::shared_ptr<const LayerKinds> kinds = nullptr);

  const ModelSpec& model() const { return model_; }
  const Layout& layout() const { return layout_; }
  int64_t sequence() const { return sequence_; }
  const std::shared_ptr<const LayerKinds>& kinds() const { return kinds_; }

  const LayerProgram& embedding();
  const LayerProgram& last_stage();
  const LayerProgram& layer(size_t kind);
  /// Frees the programs; they are made again at the next use.
  void forget();

 private:
  const ModelSpec& model_;
  const Layout layout_;
  const int64_t sequence_;
  const std::shared_ptr<const LayerKinds> kinds_;
  std::optional<LayerProgram> embedding_, last_stage_;
  std::vector<std::optional<LayerProgram>> layers_;  // by kind
};

}  // namespace mpt::models
