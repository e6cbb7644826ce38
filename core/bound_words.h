// SPDX-License-Identifier: Apache-2.0
#pragma once

// The bounds of a search as words: what a user typed, and which of them a layout breaks.

#include <string>
#include <vector>

#include "core/plan_request.h"

namespace mpt {

/// One bound: "cp-method" and its values.
struct BoundWords {
  std::string name;
  std::vector<std::string> values;

  /// As it is typed: "--pp 1,2".
  std::string option() const;
};
/// The bounds that leave something out.
std::vector<BoundWords> bound_words(const SearchBounds& bounds);

/// Their options: "--tp 3 --zero 0,1".
std::string options_of(const std::vector<BoundWords>& words);

/// Those that `layout` breaks, as they are typed. What a layout cannot show (a context method on one context
/// rank) breaks nothing.
std::vector<std::string> broken_bounds(const SearchBounds& bounds, const Layout& layout);

/// What a layout says on the axis of a bound; empty: it has no such axis.
std::string axis_word(const std::string& name, const Layout& layout);

/// "tp=8,pp=4" as bounds; a key's values may stand in several words. Throws UserError that names `where`.
SearchBounds parse_bounds(const std::string& text, const std::string& where);

}  // namespace mpt
