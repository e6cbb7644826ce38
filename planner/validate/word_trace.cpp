// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/word_trace.h"

#include <algorithm>

namespace mpt::planner {

void WordTrace::add(const std::string& found, const std::source_location& reader) {
  std::string name = reader.function_name();  // with its result, namespace and arguments
  name.resize(std::min(name.find('('), name.size()));
  name.erase(0, name.find_last_of(": ") + 1);
  std::pair entry{std::move(name), found};
  if (std::find(words_.begin(), words_.end(), entry) == words_.end()) words_.push_back(std::move(entry));
}

}  // namespace mpt::planner
