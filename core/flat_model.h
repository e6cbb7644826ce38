// SPDX-License-Identifier: Apache-2.0
#pragma once

// The form that models had up to version 0.1: sizes that all layers share, and intervals. Files that took long
// to make (checkpoints, profiles, plans) hold models in it.

#include <nlohmann/json_fwd.hpp>

namespace mpt {

/// Rewrites a model of that form as one with a list of layers; leaves anything else alone.
void list_layers(nlohmann::ordered_json& model);

}  // namespace mpt
