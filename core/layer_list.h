// SPDX-License-Identifier: Apache-2.0
#pragma once

// LayerList: the decoder layers of a model, in order: their kinds by name, and runs of these names.

#include <map>
#include <string>
#include <vector>

#include "base/ranges.h"
#include "core/layer_kind.h"

namespace mpt {

/// A run of layers: the kinds in `of`, repeated `repeat` times.
struct LayerRun {
#include "generated/LayerRun.inc"
};

class LayerList {
 public:
  LayerList() = default;
  LayerList(int64_t count, const LayerKind& kind) {
    assign(std::vector<LayerKind>{kind}, std::vector<size_t>(size_t(count), 0));
  }
  /// Layer l is of the kind that `kind_of(l)` gives.
  template <class F>
  static LayerList of(int64_t count, F&& kind_of) {
    LayerList list;
    std::vector<LayerKind> kinds;
    std::vector<size_t> order;
    for (int64_t l = 0; l < count; ++l) {
      const LayerKind kind = kind_of(l);
      size_t k = 0;
      while (k < kinds.size() && !(kinds[k] == kind)) ++k;
      if (k == kinds.size()) kinds.push_back(kind);
      order.push_back(k);
    }
    list.assign(kinds, order);
    return list;
  }

  int64_t count() const;
  /// Layer `layer` (0-based), which the list must have.
  const LayerKind& operator[](int64_t layer) const { return kinds.at(name_of(layer)); }
  const std::string& name_of(int64_t layer) const;
  /// The kind of the lowest layer for which `wanted` is true, or null.
  template <class F>
  const LayerKind* first(F&& wanted) const {
    const LayerKind* only = nullptr;
    size_t found = 0;
    for (const auto& [name, kind] : kinds) {
      if (!wanted(kind)) continue;
      only = &kind;
      ++found;
    }
    if (found < 2) return only;
    for (const LayerRun& run : runs)
      for (const std::string& name : run.of) {
        if (const auto* const kind = find_value(kinds, name); kind != nullptr && wanted(*kind)) return kind;
      }
    return nullptr;
  }
  template <class F>
  bool any(F&& wanted) const {
    return any_of(kinds, [&](const auto& kind) { return wanted(kind.second); });
  }
  template <class F>
  void change(F&& f) {
    for (auto& [name, kind] : kinds) f(kind);
  }

  std::map<std::string, LayerKind> kinds;
  std::vector<LayerRun> runs;

  /// Whether the lists are equal layer by layer. Names of kinds and the division into runs do not count.
  bool operator==(const LayerList& other) const;

  static void describe(auto& v) {
    v.field("kinds", &LayerList::kinds, "kinds of layers, by name");
    v.field("order", &LayerList::runs, "the layers, lowest first");
  }

 private:
  void assign(const std::vector<LayerKind>& kinds, const std::vector<size_t>& order);
};

/// The names as runs, in the shortest form that repeated blocks allow.
std::vector<LayerRun> runs_of(const std::vector<std::string>& names);

}  // namespace mpt
