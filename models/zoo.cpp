// SPDX-License-Identifier: Apache-2.0
#include "models/zoo.h"

#include <algorithm>
#include <cstdlib>
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
  std::vector<std::string> aliases, same_sizes;
  std::string source;

  template <class V>
  static void describe(V& v) {
    describe_part(v, &ZooFile::model);
    v.field("aliases", &ZooFile::aliases, "its ids on the Hugging Face hub", rare_field());
    v.field("same_sizes", &ZooFile::same_sizes,
            "ids of models of the same sizes, whose settings beside them may differ", rare_field());
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

std::string without_owner(const std::string& id) { return lower_case(id.substr(id.find('/') + 1)); }

// "meta-llama/Llama-3.1-8B", or the part behind its owner.
std::optional<std::string> alias_of(const ZooFile& file, const std::string& name) {
  const auto found = std::find_if(file.aliases.begin(), file.aliases.end(), [&](const std::string& id) {
    return lower_case(name) == lower_case(id) || lower_case(name) == without_owner(id);
  });
  return found == file.aliases.end() ? std::nullopt : std::optional(*found);
}

using Words = std::vector<std::string>;

bool has(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// "owner/Qwen2.5-32B" as qwen, 2.5 and 32b.
Words words_of_name(const std::string& id) {
  Words words;
  char last = ' ';
  for (const char c : without_owner(id)) {
    const bool digit = c >= '0' && c <= '9', letter = c >= 'a' && c <= 'z';
    if (last == ' ' || (last >= 'a' && digit)) words.emplace_back();
    last = digit || letter || c == '.' ? c : ' ';
    if (last != ' ') words.back() += c;
  }
  return words;
}

// Without marks of what a model was trained further for and of how a copy is stored.
Words sizes_in_name(const std::string& id) {
  static const Words marks{"",   "instruct", "base", "chat", "it",  "pt",
                           "hf", "bnb",      "4bit", "8bit", "awq", "gptq"};
  Words words = words_of_name(id);
  std::erase_if(words, [](const std::string& word) { return has(marks, word); });
  return words;
}

bool has_sizes_of(const std::string& id, ZooFile file, const std::string& name) {
  file.aliases.push_back(name);
  file.aliases.insert(file.aliases.end(), file.same_sizes.begin(), file.same_sizes.end());
  return std::any_of(file.aliases.begin(), file.aliases.end(),
                     [words = sizes_in_name(id)](const auto& known) {
                       return !words.empty() && sizes_in_name(known) == words;
                     });
}

// The zoo's name that shares most with what was asked for: of its family, whose version counts more than the
// size, and that more than the rest. Empty: there is none of its family.
std::string nearest_of_family(const std::string& asked) {
  const Words words = words_of_name(asked);
  std::string best;
  int best_score = 0;
  for (const std::string& name : zoo_names()) {
    const Words own = words_of_name(name);
    int score = 0;
    for (const std::string& word : own) {
      const bool number = !word.empty() && word.front() <= '9', size = number && word.back() > '9';
      score += !has(words, word) ? -1 : size ? 3 : number ? 4 : 1;
    }
    if (!has(words, own.front()) || score <= best_score) continue;
    best = name;
    best_score = score;
  }
  return best;
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

// The config.json that Hugging Face's libraries have downloaded (huggingface_hub/constants.py); nothing where
// they have not.
std::optional<std::filesystem::path> cached_config(std::string id) {
  std::filesystem::path hub;
  for (const auto& [variable, below] : {std::pair{"HOME", ".cache/huggingface/hub"},
                                        {"XDG_CACHE_HOME", "huggingface/hub"},
                                        {"HF_HOME", "hub"},
                                        {"HF_HUB_CACHE", ""}}) {
    if (const char* const value = std::getenv(variable); value != nullptr && *value != '\0')
      hub = std::filesystem::path(value) / below;
  }
  const auto folder = hub / ("models--" + id.replace(id.find('/'), 1, "--"));
  std::error_code error;
  if (!std::filesystem::is_regular_file(folder / "refs" / "main", error)) return std::nullopt;
  const std::filesystem::path revision = read_file(folder / "refs" / "main", 200);
  const auto config = folder / "snapshots" / revision.filename() / "config.json";
  return std::filesystem::is_regular_file(config, error) ? std::optional(config) : std::nullopt;
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

std::optional<ImportedModel> model_of_id(const std::string& id, const std::string& as) {
  const bool whole = looks_like_id(id);
  std::optional<ImportedModel> like;
  for (const auto& [file, text] : zoo_files()) {
    ZooFile read = read_zoo(file, text);
    const auto alias = alias_of(read, id);
    if (!alias && (like || !has_sizes_of(id, read, stem(file)))) continue;
    read.model.hub_id = alias ? *alias : whole ? id : "";
    if (alias) return ImportedModel{read.model, {}, {}};
    like = {read.model,
            {},
            {},
            {fmt::format("{} is taken to have the sizes of {}; for its own settings, such as its longest "
                         "sequence, name its config.json",
                         cut_text(id, 80), stem(file))}};
  }
  const auto path = whole ? cached_config(id) : std::nullopt;
  if (!path) return like;
  ImportedModel read = load_path(*path, as);
  read.model.name = cut_text(id.substr(id.find('/') + 1), 80);
  read.model.hub_id = id;
  return read;
}

ImportedModel load_imported_model(const std::string& name_or_path, const std::string& as) {
  for (const auto& [file, text] : zoo_files()) {
    if (stem(file) != name_or_path) continue;
    ZooFile read = read_zoo(file, text);
    // A model that was asked for by an id is exported by it.
    if (!read.aliases.empty())
      read.model.hub_id = alias_of(read, name_or_path).value_or(read.aliases.front());
    return {read.model, {}, {}};
  }
  std::error_code error;
  if (std::filesystem::exists(name_or_path, error)) return load_path(name_or_path, as);
  const bool id = looks_like_id(name_or_path);
  if (!id && (name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json")))
    return load_path(name_or_path, as);
  if (auto model = model_of_id(name_or_path, as)) return *model;
  const std::string family = nearest_of_family(name_or_path);
  const std::string last = name_or_path.substr(id ? name_or_path.find('/') + 1 : 0);
  throw UserError(Problem{
      "--model",
      fmt::format(
          "unknown model \"{}\"{}", name_or_path.substr(0, 80),
          family.empty() ? did_you_mean(last, zoo_names()) : fmt::format("; did you mean \"{}\"?", family)),
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
