// SPDX-License-Identifier: Apache-2.0
#pragma once

// The programs of a model's pieces under one split, for all that read them: memory and price.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "models/layer_program.h"

namespace mpt::models {

/// Decoder layers by what their programs can differ in: experts or not, x windowed or not.
class LayerKinds {
 public:
  static constexpr size_t kCount = 4;
  using Counts = std::array<int32_t, kCount>;

  explicit LayerKinds(const ModelSpec& model);
  static size_t of(const ModelSpec& model, int64_t layer);
  static bool has_experts(size_t kind) { return kind % 2 == 1; }

  /// How many layers of each kind lie below `layer`; of all layers, below their number.
  const Counts& below(int64_t layer) const { return below_[size_t(layer)]; }
  const Counts& all() const { return below_.back(); }
  /// Of the lowest layer with experts, or without; nothing where there is none.
  std::optional<size_t> first_with(bool experts) const;
  /// The lowest layer of a kind that the model has.
  int64_t first(size_t kind) const { return first_[kind]; }

 private:
  std::vector<Counts> below_;
  std::array<int64_t, kCount> first_{};
};

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
  std::array<std::optional<LayerProgram>, LayerKinds::kCount> layers_;
};

}  // namespace mpt::models
