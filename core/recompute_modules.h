// SPDX-License-Identifier: Apache-2.0
#pragma once

// The modules of a layer that selective recompute can run again, by the names that Megatron-LM gives them
// (recompute_modules in megatron/core/transformer/transformer_config.py).

#include <span>
#include <string>
#include <vector>

#include "core/layout.h"

namespace mpt {

struct RecomputeModule {
  const char* name;
  bool SelectiveRecompute::*flag;
};
std::span<const RecomputeModule> recompute_modules();

/// Selective recompute runs the named modules again and no others; names that are none count for nothing.
void set_recompute_modules(const std::vector<std::string>& names, SelectiveRecompute& selective);
std::vector<std::string> recompute_modules_of(const SelectiveRecompute& selective);

}  // namespace mpt
