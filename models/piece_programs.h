// SPDX-License-Identifier: Apache-2.0
#pragma once

// The programs of a model's pieces under one split, for all that read them: memory and price.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "models/layer_kinds.h"
#include "models/layer_program.h"

namespace mpt::models {

/// Each is made when it is first asked for. For one thread.
class PiecePrograms {
 public:
  /// `model` must outlive it. `kinds`: of the model; null where nobody else has them.
  PiecePrograms(const ModelSpec& model, const Layout& layout, int64_t sequence,
                std::shared_ptr<const LayerKinds> kinds = nullptr);

  const ModelSpec& model() const { return model_; }
  const Layout& layout() const { return layout_; }
  int64_t sequence() const { return sequence_; }
  const std::shared_ptr<const LayerKinds>& kinds() const { return kinds_; }

  const LayerProgram& embedding();
  const LayerProgram& last_stage();
  const LayerProgram& layer(size_t kind);
  /// Gives their memory back; they are made again where they are asked for again.
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
