// SPDX-License-Identifier: Apache-2.0
#include "base/words.h"

#include <cmath>

namespace mpt::detail {

std::string range_words(const FieldRule& rule) {
  if (!std::isfinite(rule.minimum)) return "as the field has them";
  if (!std::isfinite(rule.maximum)) return fmt::format("from {:.15g}", rule.minimum);
  return fmt::format("from {:.15g} to {:.15g}", rule.minimum, rule.maximum);
}

void refuse_word(const std::string& option, const std::string& word, const std::string& expected,
                 const std::vector<std::string>& known) {
  const std::string shown = "\"" + word.substr(0, 40) + "\"";
  refuse_input(option, known.empty() ? shown : "unknown " + shown + did_you_mean(word, known), expected);
}

}  // namespace mpt::detail
