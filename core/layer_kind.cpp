// SPDX-License-Identifier: Apache-2.0
#include "core/layer_kind.h"

#include <cmath>

namespace mpt {
namespace {

std::string mixer_name(const LayerKind& kind) {
  std::string name;
  if (kind.linear) name = enum_name(kind.linear->kind);
  if (kind.convolution) name = "convolution";
  if (!kind.attention) return name;
  const Attention& a = *kind.attention;
  const char* const attention = a.index        ? "sparse"
                                : a.compressed ? (a.compressed->ratio > 0 ? "compressed" : "window")
                                : a.window     ? "window"
                                : a.chunk      ? "chunk"
                                : a.latent     ? "latent"
                                               : "attention";
  return name.empty() ? attention : name + "_" + attention;
}

}  // namespace

double yarn_growth(double factor, double scale) {
  return factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

const RotaryScaling* scaling_of(const Attention& a) {
  return a.rotary && a.rotary->scaling ? &*a.rotary->scaling : nullptr;
}

double score_scale_of(const Attention& a) {
  const double scale = a.score_scale.value_or(0.0);
  const RotaryScaling* const s = scaling_of(a);
  if (!a.latent || s == nullptr || s->kind != RotaryScalingKind::yarn || s->mscale_all_dim == 0.0)
    return scale;
  const double growth = yarn_growth(s->factor, s->mscale_all_dim);
  return (scale == 0.0 ? 1.0 / std::sqrt(double(a.head_dim)) : scale) * growth * growth;
}

std::string kind_name(const LayerKind& kind) {
  std::string name = mixer_name(kind);
  if (kind.mlp) name += name.empty() ? "mlp" : "_mlp";
  if (kind.moe) name += name.empty() ? "experts" : "_experts";
  return name.empty() ? "empty" : name;
}

}  // namespace mpt
