// SPDX-License-Identifier: Apache-2.0
#include "core/ties.h"

#include <array>
#include <numeric>

namespace mpt {
namespace {

// Shares of the layers in which the selected modules recompute, and in which the rest does; and whether the
// optimizer is offloaded.
std::array<double, 3> extra_work(const Layout& l) {
  double full = l.recompute == Recompute::full ? 1.0 : 0.0;
  const auto sum = [](const std::vector<int64_t>& layers) {
    return double(std::accumulate(layers.begin(), layers.end(), int64_t{0}));
  };
  if (full > 0.0 && !l.recomputed_layers.empty()) full = sum(l.recomputed_layers) / sum(l.layers_per_stage);
  return {l.recompute == Recompute::selective ? 1.0 : full, full, l.offload_optimizer ? 1.0 : 0.0};
}

}  // namespace

int kinds_of_parallelism(const Degrees& d, int64_t expert) {
  return int(d.tensor > 1) + int(d.context > 1) + int(d.pipeline > 1) + int(d.data > 1) + int(expert > 1);
}

bool does_more(const Layout& one, const Layout& other) {
  const auto a = extra_work(one), b = extra_work(other);
  bool more = false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] < b[i]) return false;
    more = more || a[i] > b[i];
  }
  return more;
}

}  // namespace mpt
