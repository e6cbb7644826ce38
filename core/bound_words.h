// SPDX-License-Identifier: Apache-2.0
#pragma once

// The bounds of a search as words: the words that a user typed, and the bounds that a layout breaks.

#include <string>
#include <vector>

#include "core/plan_request.h"

namespace mpt {

/// One bound: "cp-method" and its values.
struct BoundWords {
  std::string name;
  std::vector<std::string> values;

  /// The bound as typed: "--pp 1,2".
  std::string option() const;
};
/// The bounds that exclude some values.
std::vector<BoundWords> bound_words(const SearchBounds& bounds);

/// Options of the bounds: "--tp 3 --zero 0,1".
std::string options_of(const std::vector<BoundWords>& words);

/// The bounds that `layout` breaks, as typed. A bound on a property that the layout lacks (a context method
/// on one context rank) is not broken.
std::vector<std::string> broken_bounds(const SearchBounds& bounds, const Layout& layout);

/// The layout's word on the axis of a bound; empty: the layout has no such axis.
std::string axis_word(const std::string& name, const Layout& layout);

/// "tp=8,pp=4" as bounds; a repeated key adds values. Throws UserError that names `where`.
SearchBounds parse_bounds(const std::string& text, const std::string& where);

}  // namespace mpt
