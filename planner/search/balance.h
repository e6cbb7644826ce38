// SPDX-License-Identifier: Apache-2.0
#pragma once

// Division of layers into stages by their work.

#include <cstdint>
#include <span>
#include <vector>

namespace mpt::planner {

/// Contiguous stages of at least one layer each whose slowest is as fast as can be. `before_s` is work of the
/// first stage beside its layers (the embedding), `after_s` of the last (the head). Where several divisions
/// are equally fast, early stages hold fewer layers, since they keep the most micro-batches.
/// `layer_s` must have at least `stages` entries.
/// `slowness`: how many times longer each stage takes for the same work; empty where all are alike.
std::vector<int64_t> balanced_stages(std::span<const double> layer_s, double before_s, double after_s,
                                     int64_t stages, std::span<const double> slowness = {});

}  // namespace mpt::planner
