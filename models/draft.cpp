// SPDX-License-Identifier: Apache-2.0
#include "models/draft.h"

namespace mpt::models {
namespace {

std::string mixer_of(const LayerKind& k) {
  if (k.linear) return k.attention ? "both" : "linear";
  if (k.convolution) return "convolution";
  if (!k.attention) return "none";
  if (k.attention->window) return "window";
  if (k.attention->chunk) return "chunk";
  return k.attention->index ? k.attention->index->shared ? "sparse_shared" : "sparse" : "full";
}

std::string mlp_of(const LayerKind& k) { return k.moe ? "experts" : k.mlp ? "dense" : "none"; }

// Attention of a full layer, without the parts that select keys; the draft has these.
Attention plain(Attention a) {
  a.chunk.reset();
  a.index.reset();
  a.borrows_keys = false;
  return a;
}

template <class T>
void take_first(std::optional<T>& known, const std::optional<T>& part) {
  if (!known) known = part;
}

void take_attention(const ModelSpec& m, ModelDraft& d) {
  const auto is_window = [](const LayerKind& k) { return k.attention && k.attention->window; };
  const LayerKind* const window = m.layers.first(is_window);
  const auto* const full = m.layers.first([&](const LayerKind& k) { return k.attention && !is_window(k); });
  if (full != nullptr) d.full = plain(*full->attention);
  if (window != nullptr) d.window = plain(*window->attention);
  if (full == nullptr && window != nullptr) {
    d.full = d.window;
    d.full.window.reset();
  }
  // Files have a number of heads even for models without attention.
  if (full == nullptr && window == nullptr) {
    d.full.heads = d.full.kv_heads = 1;
    d.full.head_dim = m.hidden;
  }
  if (window == nullptr) d.window = d.full;
}

// Layers without positions, if other layers have rotary ones.
void take_positions(const ModelSpec& m, ModelDraft& d) {
  const auto rotated = [](const LayerKind& k) { return k.attention && k.attention->rotary; };
  const LayerKind* const other = m.layers.first(rotated);
  const bool some_without =
      m.layers.any([&](const LayerKind& k) { return k.attention && !rotated(k) && mixer_of(k) == "full"; });
  d.full_without_rotary = other != nullptr && some_without;
  if (!d.full_without_rotary) return;
  d.full.rotary = other->attention->rotary;
  if (!d.has_mixer("window")) d.window = d.full;
  for (size_t l = 0; l < d.mixers.size(); ++l)
    if (d.mixers[l] == "full" && rotated(m.layers[int64_t(l)])) d.mixers[l] = "rotary";
}

void take_borrowers(const ModelSpec& m, ModelDraft& d) {
  const int64_t layers = m.layers.count();
  const auto borrows = [&](int64_t l) {
    return m.layers[l].attention && m.layers[l].attention->borrows_keys;
  };
  while (d.borrowers < layers && borrows(layers - d.borrowers - 1)) ++d.borrowers;
  const LayerKind& last = m.layers[layers - 1];
  d.borrowers_are_wide =
      d.borrowers > 0 && last.mlp && d.mlp && last.mlp->ffn_hidden == 2 * d.mlp->ffn_hidden;
}

}  // namespace

bool ModelDraft::has_mixer(const std::string& name) const { return contains(mixers, name); }
bool ModelDraft::has_mlp(const std::string& name) const { return contains(mlps, name); }

LayerKind kind_of(const ModelDraft& d, int64_t l) {
  const std::string &mixer = d.mixers[size_t(l)], &mlp = d.mlps[size_t(l)];
  LayerKind kind;
  if (mixer == "linear" || mixer == "both") kind.linear = d.linear;
  if (mixer == "convolution") kind.convolution = d.convolution;
  if (mixer == "window") kind.attention = d.window;
  if (contains(std::vector<std::string>{"full", "rotary", "chunk", "sparse", "sparse_shared", "both"}, mixer))
    kind.attention = d.full;
  if (mixer == "full" && d.full_without_rotary) kind.attention->rotary.reset();
  if (mixer == "chunk") kind.attention->chunk = d.chunk;
  if (mixer == "sparse" || mixer == "sparse_shared") {
    kind.attention->index = d.index;
    if (kind.attention->index) kind.attention->index->shared = mixer == "sparse_shared";
  }
  if (mlp == "dense" || (mlp == "experts" && d.dense_beside_experts)) kind.mlp = d.mlp;
  if (mlp == "experts") kind.moe = d.moe;
  if (l + d.borrowers < int64_t(d.mixers.size())) return kind;
  if (kind.attention) kind.attention->borrows_keys = true;
  if (kind.mlp && d.borrowers_are_wide) kind.mlp->ffn_hidden *= 2;
  return kind;
}

ModelSpec model_of(const ModelDraft& d) {
  ModelSpec m = d.model;
  m.layers =
      d.made ? *d.made : LayerList::of(int64_t(d.mixers.size()), [&](int64_t l) { return kind_of(d, l); });
  const auto rotates = [](const LayerKind& kind) { return kind.attention && kind.attention->rotary; };
  if (m.position == PositionKind::rotary && !m.layers.any(rotates)) m.position = PositionKind::none;
  return m;
}

ModelDraft draft_of(const ModelSpec& m) {
  ModelDraft d;
  d.model = m;
  d.model.layers = {};
  for (int64_t l = 0; l < m.layers.count(); ++l) {
    const LayerKind& kind = m.layers[l];
    d.mixers.push_back(mixer_of(kind));
    d.mlps.push_back(mlp_of(kind));
    d.dense_beside_experts = d.dense_beside_experts || (kind.mlp && kind.moe);
    if (kind.attention) {
      take_first(d.chunk, kind.attention->chunk);
      take_first(d.index, kind.attention->index);
    }
    take_first(d.linear, kind.linear);
    take_first(d.convolution, kind.convolution);
    take_first(d.mlp, kind.mlp);
    take_first(d.moe, kind.moe);
  }
  if (d.index) d.index->shared = false;
  if (!d.mlp && d.moe) d.mlp = d.moe->expert;
  take_attention(m, d);
  take_positions(m, d);
  take_borrowers(m, d);
  if (!(model_of(d).layers == m.layers)) d.made = m.layers;
  return d;
}

}  // namespace mpt::models
