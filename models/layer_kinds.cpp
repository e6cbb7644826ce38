// SPDX-License-Identifier: Apache-2.0
#include "models/layer_kinds.h"

namespace mpt::models {
namespace {

// The kind without properties that change neither parameters nor kept bytes.
LayerKind as_in_memory(LayerKind kind) {
  if (!kind.attention) return kind;
  kind.attention->window.reset();
  kind.attention->chunk.reset();
  if (kind.attention->rotary) kind.attention->rotary = Rotary{};
  return kind;
}

size_t index_of(std::vector<LayerKind>& known, const LayerKind& kind) {
  const auto index = size_t(std::find(known.begin(), known.end(), kind) - known.begin());
  if (index == known.size()) known.push_back(kind);
  return index;
}

}  // namespace

LayerKinds::LayerKinds(const ModelSpec& model) {
  std::map<std::string, size_t> by_name;
  std::vector<LayerKind> in_memory;  // equal ones at the same index
  for (const LayerRun& run : model.layers.runs) {
    std::vector<uint16_t> block;
    for (const std::string& name : run.of) {
      const auto [entry, is_new] = by_name.try_emplace(name, 0);
      if (is_new) {
        const LayerKind& kind = model.layers.kinds.at(name);
        entry->second = index_of(kinds_, kind);
        if (kinds_.size() > names_.size()) {
          names_.push_back(name);
          const LayerKind bytes = as_in_memory(kind);
          const auto first = std::find(in_memory.begin(), in_memory.end(), bytes);
          first_in_memory_.push_back(size_t(first - in_memory.begin()));
          in_memory.push_back(bytes);
        }
      }
      block.push_back(uint16_t(entry->second));
    }
    for (int64_t r = 0; r < run.repeat; ++r) of_layer_.insert(of_layer_.end(), block.begin(), block.end());
  }
  for (const uint16_t kind : of_layer_) memory_of_layer_.push_back(uint16_t(first_in_memory_[kind]));
  all_ = count(0, int64_t(of_layer_.size()));
}

KindCounts LayerKinds::count(int64_t first, int64_t end) const {
  KindCounts counts(kinds_.size());
  if (kinds_.size() == 1) {
    counts[0] = int32_t(end - first);
    return counts;
  }
  for (int64_t l = first; l < end; ++l) ++counts[of_layer_[size_t(l)]];
  return counts;
}

int64_t LayerKinds::first_layer(size_t kind) const {
  return std::find(of_layer_.begin(), of_layer_.end(), kind) - of_layer_.begin();
}

bool LayerKinds::alike(int64_t a, int64_t b, int64_t layers) const {
  const auto at = memory_of_layer_.begin();
  return a == b || std::equal(at + a, at + a + layers, at + b);
}

std::string LayerKinds::title(size_t kind) const {
  return kinds_.size() == 1 ? "decoder layer" : "decoder layer " + names_[kind];
}

}  // namespace mpt::models
