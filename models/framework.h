// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is known of training frameworks, by name: models/frameworks/*.json, built in.

#include <string>
#include <vector>

#include "core/execution.h"

namespace mpt::models {

/// "mpt", this project's own runtime, or one of models/frameworks/. Throws UserError that names `where`
/// otherwise.
Execution load_framework(const std::string& name, const std::string& where);
std::vector<std::string> framework_names();

/// Tokens go once to a device that holds several of their experts, as HybridEP sends them, whose kernels
/// leave the room that products in fp8 take.
inline void send_tokens_once(Execution& execution) {
  execution.deduplicates_dispatch = true;
  execution.pads_expert_rows = false;
}

}  // namespace mpt::models
