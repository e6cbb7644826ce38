// SPDX-License-Identifier: Apache-2.0
#pragma once

// LayerKinds: the kinds of a model's decoder layers by number, for counting and pricing layers by kind.

#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "core/model_spec.h"

namespace mpt::models {

/// A number for each kind. Few kinds need no heap memory, because searches make millions of these.
class KindCounts {
 public:
  KindCounts() = default;
  explicit KindCounts(size_t kinds) : size_(kinds) {
    if (kinds > kFew) many_.assign(kinds, 0);
  }
  size_t size() const { return size_; }
  int32_t& operator[](size_t kind) { return many_.empty() ? few_[kind] : many_[kind]; }
  int32_t operator[](size_t kind) const { return many_.empty() ? few_[kind] : many_[kind]; }
  int64_t sum() const {
    int64_t sum = 0;
    for (size_t k = 0; k < size_; ++k) sum += (*this)[k];
    return sum;
  }
  bool operator==(const KindCounts&) const = default;
  bool operator<(const KindCounts& o) const {
    return std::tie(size_, few_, many_) < std::tie(o.size_, o.few_, o.many_);
  }

 private:
  static constexpr size_t kFew = 4;
  size_t size_ = 0;
  std::array<int32_t, kFew> few_{};
  std::vector<int32_t> many_;
};

/// Kinds in the order of their lowest layers.
class LayerKinds {
 public:
  explicit LayerKinds(const ModelSpec& model);

  size_t size() const { return kinds_.size(); }
  size_t of(int64_t layer) const { return of_layer_[size_t(layer)]; }
  const LayerKind& kind(size_t kind) const { return kinds_[kind]; }
  /// The lowest layer of the kind.
  int64_t first_layer(size_t kind) const;
  bool has_experts(size_t kind) const { return kinds_[kind].moe.has_value(); }
  /// The number of layers of each kind, from `first` to the one before `end`.
  KindCounts count(int64_t first, int64_t end) const;
  const KindCounts& all() const { return all_; }
  /// Whether the layers from `a` on and from `b` on have equal parameters and keep equal bytes, in order.
  bool alike(int64_t a, int64_t b, int64_t layers) const;
  /// The first kind with layers of the same parameters and kept bytes as `kind`.
  size_t first_in_memory(size_t kind) const { return first_in_memory_[kind]; }
  const std::string& name(size_t kind) const { return names_[kind]; }
  /// Title for people: "decoder layer", with the kind's name if there are several.
  std::string title(size_t kind) const;

 private:
  std::vector<LayerKind> kinds_;
  std::vector<std::string> names_;
  std::vector<size_t> first_in_memory_;               // by kind
  std::vector<uint16_t> of_layer_, memory_of_layer_;  // by layer: the kind, and its first_in_memory()
  KindCounts all_;
};

}  // namespace mpt::models
