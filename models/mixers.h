// SPDX-License-Identifier: Apache-2.0
#pragma once

// Mixers: the operators that mix the tokens of a layer, from the norm's output to the product behind the
// core. Used only by layer_program.cpp.

#include "models/layer_builder.h"

namespace mpt::models {

/// Adds all mixers of the builder's kind of layer, side by side.
void add_mixers(LayerBuilder& b);

/// FLOP of the core of a mixer of linear cost for one token and whole heads, in its chunked training form.
struct CoreFlop {
  int64_t forward = 0, backward = 0;
};
CoreFlop core_flop(const LinearMixer& mixer, int64_t heads);

}  // namespace mpt::models
