// SPDX-License-Identifier: Apache-2.0
#include "models/zoo.h"

#include <filesystem>
#include <string_view>

#include "core/json.h"
#include "models/hf_config.h"

namespace mpt::models {

const std::vector<std::pair<std::string_view, std::string_view>>& zoo_files();  // generated

namespace {

constexpr int64_t kMaxModelFileBytes = int64_t{1} << 20;

std::string stem(std::string_view file) { return std::string(file.substr(0, file.rfind('.'))); }

ModelSpec read_own(const Json& json, const std::string& where) {
  auto model = from_json<ModelSpec>(json, where);
  validate_model(model, where);
  return model;
}

// Python's json module writes NaN and Infinity bare; JSON has neither. They stand in keys we do not read.
std::string without_python_numbers(const std::string& text) {
  std::string out;
  bool quoted = false, escaped = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"' && !escaped) quoted = !quoted;
    escaped = text[i] == '\\' && !escaped;
    size_t skip = 0;
    for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
      if (skip == 0 && !quoted && text.compare(i, word.size(), word) == 0) skip = word.size();
    }
    out += skip > 0 ? "null" : std::string(1, text[i]);
    if (skip > 0) i += skip - 1;
  }
  return out;
}

ModelSpec load_path(std::filesystem::path path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) path /= "config.json";
  const Json json = parse_json(without_python_numbers(read_file(path, kMaxModelFileBytes)), path.string());
  const bool hugging_face =
      json.is_object() && (json.contains("model_type") || json.contains("architectures"));
  return hugging_face ? import_hugging_face(json, path.string()) : read_own(json, path.string());
}

}  // namespace

std::vector<std::string> zoo_names() {
  std::vector<std::string> names;
  for (const auto& [file, text] : zoo_files()) names.push_back(stem(file));
  return names;
}

ModelSpec load_model(const std::string& name_or_path) {
  for (const auto& [file, text] : zoo_files()) {
    if (stem(file) == name_or_path)
      return read_own(parse_json(std::string(text), "zoo/" + std::string(file)), "zoo/" + std::string(file));
  }
  std::error_code error;
  const bool looks_like_path = name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json");
  if (looks_like_path || std::filesystem::exists(name_or_path, error)) return load_path(name_or_path);
  std::string known;
  for (const std::string& name : zoo_names()) known += (known.empty() ? "" : ", ") + name;
  throw UserError(Problem{"--model",
                          fmt::format("unknown model \"{}\"{}", name_or_path.substr(0, 80),
                                      did_you_mean(name_or_path, zoo_names())),
                          "a name (" + known + ") or the path of a model file or Hugging Face config.json",
                          ""});
}

}  // namespace mpt::models
