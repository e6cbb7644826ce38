// SPDX-License-Identifier: Apache-2.0
#include "models/zoo.h"

#include <cstdlib>
#include <filesystem>

#include "base/json.h"

namespace mpt::models {

const std::vector<std::pair<std::string_view, std::string_view>>& zoo_files();  // generated

namespace {

constexpr int64_t kMaxModelFileBytes = int64_t{1} << 20;
constexpr int64_t kMostQuantisedBytes = int64_t{16} << 20;  // with the names of all quantised matrices

std::string stem(std::string_view file) { return std::string(file.substr(0, file.rfind('.'))); }

ZooModel read_zoo(const Json& json, const std::string& where) {
  auto file = from_json<ZooModel>(json, where);
  validate_model(file.model, where);
  return file;
}

std::string without_owner(const std::string& id) { return lower_case(id.substr(id.find('/') + 1)); }

using Words = std::vector<std::string>;

// "owner/Qwen2.5-32B-FP8" as qwen, 2.5, 32b and fp8.
Words words_of_name(const std::string& id) {
  static const Words formats{"bf", "fp", "mxfp", "nvfp"};
  Words words;
  char last = ' ';
  for (const char c : without_owner(id)) {
    const bool digit = c >= '0' && c <= '9', letter = c >= 'a' && c <= 'z';
    if (last == ' ' || (last >= 'a' && digit && !contains(formats, words.back()))) words.emplace_back();
    last = digit || letter || c == '.' ? c : ' ';
    if (last != ' ') words.back() += c;
  }
  return words;
}

// Frameworks train such weights only beneath adapters, or not.
const Words kStorage{"bnb", "4bit", "8bit", "awq", "gptq", "fp8", "mxfp4", "nvfp4"};

// The words without marks of fine-tuning and of storage formats.
Words sizes_in_name(const std::string& id) {
  static const Words marks{"", "instruct", "base", "chat", "it", "pt", "hf", "bf16"};
  Words words = words_of_name(id);
  std::erase_if(words, [](const auto& word) { return contains(marks, word) || contains(kStorage, word); });
  return words;
}

// The zoo's names of the same family that share the most words with `asked`. Sizes count most.
std::vector<std::string> nearest_of_family(const std::string& asked) {
  const Words words = words_of_name(asked);
  std::vector<std::string> best;
  int best_score = 1;
  for (const std::string& name : zoo_names()) {
    const Words own = words_of_name(name);
    int score = 0;
    for (const std::string& word : own) score += !contains(words, word) ? 0 : word.ends_with('b') ? 3 : 2;
    if (!contains(words, own.front()) || score < best_score) continue;
    if (score > best_score) best.clear();
    best.push_back(name);
    best_score = score;
  }
  return best;
}

// Whether it is "owner/name", as on Hugging Face, and no path of a file.
bool looks_like_id(const std::string& name) {
  const size_t slash = name.find('/');
  return slash != std::string::npos && slash > 0 && slash + 1 < name.size() && name[0] != '.' &&
         name[0] != '~' && name.find('/', slash + 1) == std::string::npos && !name.ends_with(".json");
}

// Python's json module writes bare NaN and Infinity, which JSON lacks. They occur in keys that are not read.
std::string without_python_numbers(const std::string& text) {
  std::string out;
  bool quoted = false, escaped = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"' && !escaped) quoted = !quoted;
    escaped = text[i] == '\\' && !escaped;
    size_t skip = 0;
    for (const std::string_view word : {"-Infinity", "Infinity", "NaN"})
      if (skip == 0 && !quoted && text.compare(i, word.size(), word) == 0) skip = word.size();
    out += skip > 0 ? "null" : std::string(1, text[i]);
    if (skip > 0) i += skip - 1;
  }
  return out;
}

// Files of quantised models name each matrix. The names say nothing about the model, and do not count for the
// size limit.
Json without_quantised_names(Json json, const std::string& file) {
  if (!json.is_object()) return json;
  for (const char* key : {"quantization_config", "compression_config"}) json.erase(key);
  if (int64_t(json.dump().size()) > kMaxModelFileBytes)
    refuse_input(file, "larger than 1 MiB", "a smaller file");
  return json;
}

ZooModel zoo_model(std::string_view file, std::string_view text) {
  const std::string where = "zoo/" + std::string(file);
  ZooModel model = read_zoo(parse_json(std::string(text), where), where);
  model.name = stem(file);
  return model;
}

ImportedModel load_path(std::filesystem::path path, const std::string& as) {
  if (finds_folder(path)) path /= "config.json";
  return read_model(parse_json(without_python_numbers(read_file(path, kMostQuantisedBytes)), path.string()),
                    path.string(), as);
}

// The config.json that Hugging Face's libraries have downloaded (huggingface_hub/constants.py); nothing if
// there is none, or it may not be read.
std::optional<std::filesystem::path> cached_config(std::string id) {
  std::filesystem::path hub;
  for (const auto& [variable, below] :
       {std::pair{"HOME", ".cache/huggingface/hub"}, {"HF_HOME", "hub"}, {"HF_HUB_CACHE", ""}})
    if (const char* const value = std::getenv(variable); value != nullptr && *value != '\0')
      hub = std::filesystem::path(value) / below;
  const auto folder = hub / ("models--" + id.replace(id.find('/'), 1, "--"));
  if (!finds_file(folder / "refs" / "main")) return std::nullopt;
  std::string revision = read_file(folder / "refs" / "main", 200);
  revision.erase(std::min(revision.find_first_of("\n/"), revision.size()));
  const auto config = folder / "snapshots" / revision / "config.json";
  return finds_file(config) ? std::optional(config) : std::nullopt;
}

}  // namespace

ImportedModel read_model(Json whole, const std::string& file, const std::string& as) {
  const bool in_4_bits = whole.is_object() && whole.dump().find("bitsandbytes") < std::string::npos;
  const Json json = without_quantised_names(std::move(whole), file);
  const bool hugging_face =
      json.is_object() && (json.contains("model_type") || json.contains("architectures"));
  if (hugging_face || !as.empty()) {
    ImportedModel read = read_hugging_face(json, file, as);
    if (in_4_bits) read.notes.emplace_back("quantization_config is not read: weights are taken in 16 bits");
    return read;
  }
  return {read_zoo(json, file).model, {}, {}};
}

std::vector<std::string> zoo_names() {
  return mapped<std::string>(zoo_files(), [](const auto& file) { return stem(file.first); });
}

const std::vector<ZooModel>& zoo_models() {
  static const std::vector<ZooModel> all = [] {
    std::vector<ZooModel> models;
    for (const auto& [file, text] : zoo_files()) models.push_back(zoo_model(file, text));
    return models;
  }();
  return all;
}

ModelSpec load_model(const std::string& name_or_path) { return load_imported_model(name_or_path).model; }

std::optional<ImportedModel> model_of_id(const std::string& id, const std::string& as) {
  const bool whole = looks_like_id(id);
  const auto known = [](const ZooModel& zoo, const std::string& hub_id) {
    ImportedModel read{zoo.model, {}, {}};
    read.model.hub_id = hub_id;
    add_towers(zoo.towers, read);
    return read;
  };
  for (const auto& [file, text] : zoo_files()) {
    if (stem(file) != id) continue;
    const ZooModel zoo = zoo_model(file, text);  // all others take as long as a small plan
    return known(zoo, zoo.aliases.empty() ? "" : zoo.aliases.front());
  }
  for (const ZooModel& zoo : zoo_models()) {
    // An id such as "meta-llama/Llama-3.1-8B", or without its owner.
    for (const std::string& alias : zoo.aliases)
      if (lower_case(id) == lower_case(alias) || lower_case(id) == without_owner(alias))
        return known(zoo, alias);
  }
  if (const auto path = whole ? cached_config(id) : std::nullopt) {
    ImportedModel read = load_path(*path, as);
    read.model.name = cut_text(id.substr(id.find('/') + 1), 80);
    read.model.hub_id = id;
    return read;
  }
  const Words sizes = sizes_in_name(id);
  const auto is_copy = [&](const std::string& other) { return sizes_in_name(other) == sizes; };
  for (const ZooModel& zoo : zoo_models()) {
    if (sizes.empty() ||
        (!is_copy(zoo.name) && !any_of(zoo.aliases, is_copy) && !any_of(zoo.same_sizes, is_copy)))
      continue;
    const bool narrow = any_of(words_of_name(id), [](const auto& word) { return contains(kStorage, word); });
    ImportedModel read = known(zoo, narrow && !zoo.aliases.empty() ? zoo.aliases.front() : whole ? id : "");
    read.notes.push_back(fmt::format(
        "{} is taken to have the sizes of {}{}; for its own settings, such as its "
        "longest sequence, name its config.json",
        cut_text(id, 80), zoo.name, narrow ? ", and the unquantised weights of " + read.model.hub_id : ""));
    return read;
  }
  return std::nullopt;
}

ImportedModel load_imported_model(const std::string& name_or_path, const std::string& as) {
  if (contains(zoo_names(), name_or_path)) return *model_of_id(name_or_path);
  if (finds_file(name_or_path) || finds_folder(name_or_path)) return load_path(name_or_path, as);
  const bool id = looks_like_id(name_or_path);
  if (!id && (name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json")))
    return load_path(name_or_path, as);
  if (auto model = model_of_id(name_or_path, as)) return *model;
  const std::vector<std::string> family = nearest_of_family(name_or_path);
  const std::string last = lower_case(name_or_path.substr(id ? name_or_path.find('/') + 1 : 0));
  std::string hint = did_you_mean(last, family.empty() ? zoo_names() : family);
  if (hint.empty() && !family.empty()) hint = fmt::format("; did you mean \"{}\"?", family.front());
  refuse_input(
      "--model", fmt::format("unknown model \"{}\"{}", name_or_path.substr(0, 80), hint),
      fmt::format("one of the {} names of mpt-plan model list, or the path of a model file or Hugging Face "
                  "config.json",
                  zoo_names().size()),
      id ? fmt::format("download https://huggingface.co/{}/resolve/main/config.json and name its path: "
                       "--model path/to/config.json",
                       name_or_path.substr(0, 80))
         : "mpt-plan model list shows them; for any other model, name the path of its config.json");
}

}  // namespace mpt::models
