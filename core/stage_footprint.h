// SPDX-License-Identifier: Apache-2.0
#pragma once

// StageFootprint: the plain bytes of one virtual stage on one rank. Filled by models/footprint.h from the
// model's operators, read by lower(), simulator and runtime. Holds no times.

#include <cstdint>

#include "base/fields.h"

namespace mpt {

struct StageFootprint {
  int64_t parameter_bytes = 0;  // weights this rank computes with
  int64_t gradient_bytes = 0;   // accumulated gradients
  int64_t optimizer_bytes = 0;  // moments and master weights
  int64_t boundary_bytes = 0;   // one micro-batch's activation at the stage's edge
  int64_t saved_bytes = 0;      // kept per micro-batch from forward to backward
  int64_t saved_for_weight_bytes =
      0;  // of those, and of gradients: kept from input gradient to weight gradient
  int64_t forward_workspace_bytes = 0;   // needed during one forward, beyond what it saves
  int64_t backward_workspace_bytes = 0;  // needed during one backward, beyond what was saved
  // Where the two parts of backward are apart: beyond what is held before and after, whichever is more.
  int64_t input_gradient_workspace_bytes = 0;
  int64_t weight_gradient_workspace_bytes = 0;
  int64_t tied_embedding_bytes = 0;  // gradient that first and last stage add up; 0 unless tied and apart
  bool receives_in_place = false;    // what arrives is what the stage keeps: no transfer slots

  int64_t static_bytes() const { return parameter_bytes + gradient_bytes + optimizer_bytes; }
  int64_t slot_bytes() const { return receives_in_place ? 0 : boundary_bytes; }
  bool operator==(const StageFootprint&) const = default;

  static void describe(auto& v) {
    using T = StageFootprint;
    constexpr double kMax = 9e15;
    v.field("parameter_bytes", &T::parameter_bytes, "weights", between(0, kMax));
    v.field("gradient_bytes", &T::gradient_bytes, "accumulated gradients", between(0, kMax));
    v.field("optimizer_bytes", &T::optimizer_bytes, "moments and master weights", between(0, kMax));
    v.field("boundary_bytes", &T::boundary_bytes, "activation at the stage's edge, per micro-batch",
            between(0, kMax));
    v.field("saved_bytes", &T::saved_bytes, "activations kept per micro-batch", between(0, kMax));
    v.field("saved_for_weight_bytes", &T::saved_for_weight_bytes, "kept from input to weight gradient",
            between(0, kMax));
    v.field("forward_workspace_bytes", &T::forward_workspace_bytes, "during one forward", between(0, kMax));
    v.field("backward_workspace_bytes", &T::backward_workspace_bytes, "during one backward",
            between(0, kMax));
    v.field("input_gradient_workspace_bytes", &T::input_gradient_workspace_bytes,
            "during an input gradient that is apart", optional_field(between(0, kMax)));
    v.field("weight_gradient_workspace_bytes", &T::weight_gradient_workspace_bytes,
            "during a weight gradient that is apart", optional_field(between(0, kMax)));
    v.field("tied_embedding_bytes", &T::tied_embedding_bytes, "gradient shared by first and last stage",
            between(0, kMax));
    v.field("receives_in_place", &T::receives_in_place, "what arrives is kept as it is: no transfer slots",
            optional_field());
  }
};

}  // namespace mpt
