// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reads the short form that layout_name() writes (docs/notation.md).

#include <optional>
#include <string>
#include <vector>

#include "core/plan_request.h"

namespace mpt {

/// The values of a short form. Values that it leaves out are open.
struct ShortForm {
  SearchBounds bounds;  // one value each
  std::vector<std::string> recompute_modules;
  int64_t shard = 0;                         // ranks of hybrid sharding; 0: all replicas
  std::optional<int64_t> recomputed_layers;  // in each stage

  /// The layout, completed by the values that bounds cannot express.
  Layout complete(Layout layout) const;
};

/// "tp4+sp pp4 dp4 zero1 mbs1 interleaved x3 recompute=1/stage"; parts in any order. Throws UserError that
/// names `where` and the part.
ShortForm parse_short_form(const std::string& text, const std::string& where);
/// Whether a text begins like a short form.
bool is_short_form(const std::string& text);
/// The text with its parts in a fixed order, for comparison.
std::string sorted_parts(const std::string& text);

}  // namespace mpt
