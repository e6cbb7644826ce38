// SPDX-License-Identifier: Apache-2.0
#pragma once

// Lines of Python that set fields of a configuration.

#include <fmt/format.h>

#include <string>

#include "core/plan.h"

namespace mpt::frameworks {

inline std::string quoted(const std::string& text) { return fmt::format("\"{}\"", text); }

class Assignments {
 public:
  /// A Python expression.
  void set(const std::string& field, const std::string& value) {
    text_ += fmt::format("    config.{} = {}\n", field, value);
  }
  void set(const std::string& field, const char* value) { set(field, std::string(value)); }
  void set(const std::string& field, int64_t value) { set(field, std::to_string(value)); }
  void set(const std::string& field, double value) { set(field, fmt::format("{}", value)); }
  void set(const std::string& field, bool value) { set(field, std::string(value ? "True" : "False")); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// The fields of config.model that describe the model.
void set_model_fields(const Plan& plan, Assignments& assignments);

}  // namespace mpt::frameworks
