// SPDX-License-Identifier: Apache-2.0
#pragma once

// Recipes as files, and what reading them gives.

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "base/error.h"
#include "frameworks/import.h"
#include "models/parameter_count.h"

namespace mpt::frameworks {

inline std::filesystem::path recipe_file(const std::string& name, const std::string& text) {
  std::filesystem::path file = std::filesystem::path(testing::TempDir()) / name;
  std::ofstream(file) << text;
  return file;
}
inline bool has_note(const Imported& in, const std::string& words) {
  return fmt::format("{}", fmt::join(in.notes, "\n")).find(words) != std::string::npos;
}
inline double parameters_of(const Imported& in) {
  return double(models::count_parameters(in.model.value()).total);
}

template <class Error = UserError>
std::string refused(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace mpt::frameworks
