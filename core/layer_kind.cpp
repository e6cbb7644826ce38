// SPDX-License-Identifier: Apache-2.0
#include "core/layer_kind.h"

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
                                : a.chunk  ? "chunk"
                                : a.latent ? "latent"
                                           : "attention";
  return name.empty() ? attention : name + "_" + attention;
}

}  // namespace

std::string kind_name(const LayerKind& kind) {
  std::string name = mixer_name(kind);
  if (kind.mlp) name += name.empty() ? "mlp" : "_mlp";
  if (kind.moe) name += name.empty() ? "experts" : "_experts";
  return name.empty() ? "empty" : name;
}

}  // namespace mpt
