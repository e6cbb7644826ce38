// SPDX-License-Identifier: Apache-2.0
#pragma once

// Recipes as files, and what reading them gives.

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "base/error.h"
#include "frameworks/import.h"
#include "frameworks/registry.h"
#include "models/parameter_count.h"

namespace mpt::frameworks {

inline std::filesystem::path recipe_file(const std::string& name, const std::string& text) {
  std::filesystem::path file = std::filesystem::path(testing::TempDir()) / name;
  std::ofstream(file) << text;
  return file;
}
inline Imported read_any(const std::string& name, const std::string& text) {
  const std::filesystem::path file = recipe_file(name, text);
  return find_importer("", file.string()).importer.read(file);
}
inline bool has_note(const Imported& in, const std::string& words) {
  return fmt::format("{}", fmt::join(in.notes, "\n")).find(words) != std::string::npos;
}
inline double parameters_of(const Imported& in) {
  return double(models::count_parameters(in.model.value()).total);
}

inline constexpr const char* kFsdp =
    "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n"
    "  fsdp_reshard_after_forward: true\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n";

inline constexpr const char* kOf8B =
    " --model_name_or_path Qwen/Qwen3-8B --bf16 True --per_device_train_batch_size 2 ";

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
