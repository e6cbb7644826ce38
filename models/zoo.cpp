// SPDX-License-Identifier: Apache-2.0
#include "models/zoo.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "base/json.h"
#include "base/text.h"
#include "models/hf_config.h"

namespace mpt::models {

const std::vector<std::pair<std::string_view, std::string_view>>& zoo_files();  // generated

namespace {

constexpr int64_t kMaxModelFileBytes = int64_t{1} << 20;
constexpr int64_t kMostQuantisedBytes = int64_t{16} << 20;  // with the names of all quantised matrices

std::string stem(std::string_view file) { return std::string(file.substr(0, file.rfind('.'))); }

// A model file that may also list ids of the model, and where its sizes are from.
struct ZooFile {
  ModelSpec model;
  std::vector<std::string> aliases;
  std::string source;

  template <class V>
  static void describe(V& v) {
    describe_part(v, &ZooFile::model);
    v.field("aliases", &ZooFile::aliases, "its ids on the Hugging Face hub", rare_field());
    v.field("source", &ZooFile::source, "where its sizes are from", rare_field(long_text()));
  }
};
ZooFile read_zoo(const Json& json, const std::string& where) {
  auto file = from_json<ZooFile>(json, where);
  validate_model(file.model, where);
  return file;
}
ZooFile read_zoo(std::string_view file, std::string_view text) {
  const std::string where = "zoo/" + std::string(file);
  return read_zoo(parse_json(std::string(text), where), where);
}

// "meta-llama/Llama-3.1-8B", or the part behind its owner.
bool is_called(const std::string& alias, const std::string& name) {
  const std::string wanted = lower_case(name), id = lower_case(alias);
  return wanted == id || wanted == id.substr(id.find('/') + 1);
}

std::optional<std::string> alias_of(const ZooFile& file, const std::string& name) {
  const auto found = std::find_if(file.aliases.begin(), file.aliases.end(),
                                  [&](const std::string& alias) { return is_called(alias, name); });
  return found == file.aliases.end() ? std::nullopt : std::optional(*found);
}

// "owner/name", as Hugging Face has them; no path of a file.
bool looks_like_id(const std::string& name) {
  const size_t slash = name.find('/');
  return slash != std::string::npos && slash > 0 && slash + 1 < name.size() && name[0] != '.' &&
         name[0] != '~' && name.find('/', slash + 1) == std::string::npos && !name.ends_with(".json");
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

// Files of quantised models name each matrix, which says nothing about the model and does not count as its
// size.
Json without_quantised_names(Json json, const std::string& file) {
  if (!json.is_object()) return json;
  for (const char* key : {"quantization_config", "compression_config"}) json.erase(key);
  if (int64_t(json.dump().size()) > kMaxModelFileBytes)
    throw UserError(Problem{file, "larger than 1 MiB", "a smaller file", ""});
  return json;
}

ImportedModel load_path(std::filesystem::path path, const std::string& as) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) path /= "config.json";
  return read_model(parse_json(without_python_numbers(read_file(path, kMostQuantisedBytes)), path.string()),
                    path.string(), as);
}

}  // namespace

ImportedModel read_model(Json whole, const std::string& file, const std::string& as) {
  const Json json = without_quantised_names(std::move(whole), file);
  const bool hugging_face =
      json.is_object() && (json.contains("model_type") || json.contains("architectures"));
  if (hugging_face || !as.empty()) return read_hugging_face(json, file, as);
  return {read_zoo(json, file).model, {}, {}};
}

std::vector<std::string> zoo_names() {
  std::vector<std::string> names;
  for (const auto& [file, text] : zoo_files()) names.push_back(stem(file));
  return names;
}

std::vector<ZooModel> zoo_models() {
  std::vector<ZooModel> models;
  for (const auto& [file, text] : zoo_files()) {
    const ZooFile read = read_zoo(file, text);
    models.push_back({stem(file), read.aliases, read.source});
  }
  return models;
}

ModelSpec load_model(const std::string& name_or_path) { return load_imported_model(name_or_path).model; }

ImportedModel load_imported_model(const std::string& name_or_path, const std::string& as) {
  // A model that was asked for by an id is exported by it.
  const auto named = [&](ZooFile read) -> ImportedModel {
    if (!read.aliases.empty())
      read.model.hub_id = alias_of(read, name_or_path).value_or(read.aliases.front());
    return {read.model, {}, {}};
  };
  for (const auto& [file, text] : zoo_files()) {
    if (stem(file) == name_or_path) return named(read_zoo(file, text));
  }
  std::error_code error;
  if (std::filesystem::exists(name_or_path, error)) return load_path(name_or_path, as);
  for (const auto& [file, text] : zoo_files()) {
    const ZooFile read = read_zoo(file, text);
    if (alias_of(read, name_or_path)) return named(read);
  }
  const bool id = looks_like_id(name_or_path);
  if (!id && (name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json")))
    return load_path(name_or_path, as);
  const std::string last = name_or_path.substr(id ? name_or_path.find('/') + 1 : 0);
  throw UserError(Problem{
      "--model",
      fmt::format("unknown model \"{}\"{}", name_or_path.substr(0, 80), did_you_mean(last, zoo_names())),
      fmt::format("one of the {} names of mpt-plan model list, or the path of a model file or Hugging Face "
                  "config.json",
                  zoo_names().size()),
      id ? fmt::format(
               "download https://huggingface.co/{}/resolve/main/config.json and name its path: --model "
               "path/to/config.json",
               name_or_path.substr(0, 80))
         : "mpt-plan model list shows them; for any other model, name the path of its config.json"});
}

}  // namespace mpt::models
