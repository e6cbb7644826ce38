// SPDX-License-Identifier: Apache-2.0
#pragma once

// Command-line arguments, one on each line.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "core/plan.h"

namespace mpt::frameworks {

class Arguments {
 public:
  void flag(const std::string& name) { lines_.push_back("--" + name); }
  void flag_if(bool given, const std::string& name) {
    if (given) flag(name);
  }
  template <class T>
  void value(const std::string& name, const T& value) {
    lines_.push_back(fmt::format("--{} {}", name, value));
  }
  std::string text() const { return fmt::format("{}\n", fmt::join(lines_, "\n")); }

 private:
  std::vector<std::string> lines_;
};

}  // namespace mpt::frameworks
