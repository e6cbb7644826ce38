// SPDX-License-Identifier: Apache-2.0
#include "models/hf_config.h"

#include <initializer_list>
#include <set>

#include "base/json.h"
#include "base/quantity.h"
#include "models/family_files.h"
#include "models/value_map.h"

namespace mpt::models {
namespace {

// The name that people know: the last part of _name_or_path, or the folder, or the type.
std::string model_name(const Json& config, const std::string& file, const std::string& type) {
  std::string name = text_at(config, "_name_or_path");
  if (name.empty()) name = std::filesystem::path(file).stem().string();
  if (name == "config") name = std::filesystem::path(file).parent_path().filename().string();
  name = name.substr(name.rfind('/') + 1).substr(0, 80);
  // A folder's name may have any bytes, and the cut may split a character; plans are UTF-8.
  for (char& letter : name)
    if (letter < ' ' || letter > '~') letter = '_';
  return name.empty() ? type : name;
}

// The digits of a text, which tell versions of a family apart.
std::string digits_of(std::string text) {
  std::erase_if(text, [](char c) { return c < '0' || c > '9'; });
  return text;
}

// The known type that a misspelt one means. Another version is not corrected: its layers may differ.
std::string meant_type(const std::string& type) {
  std::vector<std::string> types = family_types();
  std::erase_if(types, [&](const std::string& known) { return digits_of(known) != digits_of(type); });
  return did_you_mean(type, types);
}

[[noreturn]] void refuse_type(const std::string& type, const std::string& where) {
  std::vector<std::string> types = family_types();
  std::sort(types.begin(), types.end());
  refuse_input(
      where,
      type.empty() ? "missing" : fmt::format("unknown type \"{}\"{}", type.substr(0, 80), meant_type(type)),
      one_of(types),
      "read it as one of these with mpt-plan model FILE --as TYPE, or describe the model in MPT's own "
      "format (docs/file_formats.md)");
}

// The part of a file that describes the language model, and its place.
struct TextPart {
  Json json;
  std::string pointer;
};

TextPart text_part(const Json& config) {
  const bool nested = config.contains("text_config") && config["text_config"].is_object();
  TextPart part{nested ? config["text_config"] : config, nested ? "/text_config" : ""};
  // The whole model decides whether the head is tied (transformers 5.24.0).
  if (nested && config.contains("tie_word_embeddings"))
    part.json["tie_word_embeddings"] = config["tie_word_embeddings"];
  return part;
}

// The type of the text part, or else of the whole model, without "_vl" at its end. Recipes may name only the
// class.
std::string type_of(const Json& config, const Json& text) {
  for (const Json* json : {&text, &config}) {
    const auto found = json->find("model_type");
    if (found == json->end() || !found->is_string()) continue;
    std::string type = found->get<std::string>();
    if (json == &config && type.ends_with("_vl")) type = type.substr(0, type.size() - 3);
    return type;
  }
  const auto classes = config.find("architectures");
  for (const std::string& type : family_types())
    if (classes != config.end() && *classes == Json::array({find_family(type)->architecture})) return type;
  return "";
}

// Keys without effect on layers: history of the file, settings of a tokenizer or of training.
bool says_nothing(const std::string& key) {
  static const std::set<std::string> known{
#include "generated/KeysWithoutEffect.inc"
  };
  return known.contains(key) || key.starts_with("_") || key.ends_with("_token_id") ||
         key.ends_with("_token_index") || key.ends_with("_dropout") || key.ends_with("_pdrop") ||
         key.ends_with("dtype");
}

// Keys with a value that no reader used: of the text part, and other parts that are no towers.
std::vector<std::string> unread_keys(const Json& config, const TextPart& text, const ConfigLog& log) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : text.json.items())
    if (!value.is_null() && !says_nothing(key) && !log.read.contains(text.pointer + "/" + key))
      keys.push_back(key);
  if (text.pointer.empty()) return keys;
  const std::vector<Tower> towers = towers_of(config);
  for (const auto& [key, value] : config.items()) {
    const auto is_this = [&, name = key](const Tower& tower) { return tower.key == name; };
    if (key.ends_with("_config") && key != "text_config" && key != "quantization_config" &&
        value.is_object() && !any_of(towers, is_this))
      keys.push_back(key);
  }
  return keys;
}

// Drops a window that is not shorter than the longest sequence.
void drop_long_window(FamilyReader& reader, ModelDraft& draft) {
  auto& window = draft.window.window;
  if (reader.says(Value::max_positions) && window && *window >= draft.model.max_positions) window.reset();
}

constexpr int64_t kMostOfASize = 1 << 18;  // products of four stay below 2^63 with kMostTowerLayers
constexpr int64_t kMostTowerLayers = 1 << 12;

// The first of the keys with a whole number in the allowed range; 0 if there is none.
int64_t size_of(const Json& tower, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto found = tower.find(key);
    if (found == tower.end() || !found->is_number_integer()) continue;
    const double value = found->get<double>();
    if (value >= 1 && value <= kMostOfASize) return found->get<int64_t>();
  }
  return 0;
}

// MLPs of three matrices: classes of these types in transformers 5.24.
bool is_gated(const Json& tower) {
  static const std::set<std::string> gated{"gemma4_vision", "pixtral", "qwen2_5_vl", "qwen2_5_vl_vision"};
  return gated.contains(text_at(tower, "model_type"));
}

Tower tower_of(const std::string& key, const Json& json) {
  Tower tower{key, size_of(json, {"depth", "num_hidden_layers", "vt_num_hidden_layers", "encoder_layers"}),
              size_of(json, {"hidden_size", "vt_hidden_size", "d_model"}), 0};
  const int64_t mlp = size_of(json, {"intermediate_size", "vt_intermediate_size", "encoder_ffn_dim"});
  tower.layers = std::min(tower.layers, kMostTowerLayers);
  if (tower.layers == 0 || tower.width == 0 || mlp == 0) return tower;
  const int64_t heads = size_of(json, {"num_attention_heads", "num_heads", "vt_num_attention_heads"});
  const int64_t given = size_of(json, {"qkv_hidden_size"}), of_head = size_of(json, {"head_dim"});
  const int64_t attention = given > 0 ? given : heads > 0 && of_head > 0 ? heads * of_head : tower.width;
  tower.parameters = tower.layers * tower.width * (4 * attention + (is_gated(json) ? 3 : 2) * mlp);
  return tower;
}

}  // namespace

ImportedModel read_hugging_face(const Json& config, const std::string& file, const std::string& as) {
  if (!config.is_object()) refuse_input(file, "not an object", "a Hugging Face config.json");
  const TextPart text = text_part(config);
  const std::string type = as.empty() ? type_of(config, text.json) : as;
  const Family* const family = find_family(type);
  if (family == nullptr)
    refuse_type(type, as.empty() ? file + " at " + text.pointer + "/model_type" : "--as");
  JsonProblems problems(file);
  ConfigLog log{problems, {}, {}, {}};
  Config top(text.json, text.pointer, log);
  ModelDraft draft;
  FamilyReader reader(*family, top, draft);
  visit_values(reader, draft);
  drop_long_window(reader, draft);
  for (const auto& [key, why] : family->refuse) {
    const bool wanted = key.starts_with('!');
    const char* const name = key.c_str() + (wanted ? 1 : 0);
    if (top.is_flag(name) && top.flag_or(name, wanted) != wanted) top.refuse(name, why);
  }
  const FamilyCode code = family_code(*family);
  if (code.read != nullptr) code.read(reader, draft);
  problems.throw_if_any();
  ImportedModel read;
  read.model = model_of(draft);
  read.model.name = model_name(config, file, type);
  read.model.type = type;
  read.ignored = unread_keys(config, text, log);
  read.notes = log.notes;
  if (!text.pointer.empty()) add_towers(towers_of(config), read);
  // Read through the reader of this project's format, so that ranges are checked in one place.
  const std::string own_format = file + ", read as a model file,";
  read.model = from_json<ModelSpec>(to_json(read.model), own_format);
  validate_model(read.model, own_format);
  return read;
}

ModelSpec import_hugging_face(const Json& config, const std::string& file) {
  return read_hugging_face(config, file).model;
}

Json write_hugging_face(const ModelSpec& model, const std::string& type) {
  const Family* const family = find_family(type);
  MPT_CHECK(family != nullptr, "no type {}", type);
  ModelDraft draft = draft_of(model);
  FamilyWriter writer(*family, model, draft);
  const FamilyCode code = family_code(*family);
  if (code.write != nullptr) code.write(writer, draft);
  visit_values(writer, draft);
  Json config{{"architectures", Json::array({family->architecture})}, {"model_type", type}};
  if (family->architecture.empty()) config.erase("architectures");
  config.update(writer.take());
  return config;
}

ModelSpec with_usual_training(ModelSpec model) {
  model.layers.change([](LayerKind& kind) {
    if (!kind.moe) return;
    kind.moe->balance_loss = MixtureOfExperts{}.balance_loss;
    kind.moe->bias_rate = MixtureOfExperts{}.bias_rate;
  });
  return model;
}

std::optional<Value> difference_of_type(const ModelSpec& model, const std::string& type) {
  try {
    return first_difference(model, import_hugging_face(write_hugging_face(model, type), "config.json"));
  } catch (const UserError&) {
    return Value::unequal_layers;  // its sizes fit no such file
  }
}

std::string written_type(const ModelSpec& model, const std::vector<std::string>& types) {
  const auto comes_back = [&](const std::string& type) { return !difference_of_type(model, type); };
  if (contains(types, model.type) && comes_back(model.type)) return model.type;
  const auto found = find_if(types, comes_back);
  return found == types.end() ? "" : *found;
}

Value unwritten_value(const ModelSpec& model) {
  const bool known = find_family(model.type) != nullptr;
  return difference_of_type(model, known ? model.type : "llama").value_or(Value::unequal_layers);
}

std::vector<Tower> towers_of(const Json& config) {
  std::vector<Tower> towers;
  if (!config.is_object()) return towers;
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_config") || key == "text_config" || !value.is_object()) continue;
    const Tower tower = tower_of(key, value);
    if (tower.layers > 0 && tower.width > 0) towers.push_back(tower);
  }
  return towers;
}

void add_towers(const std::vector<Tower>& towers, ImportedModel& read) {
  for (const Tower& tower : towers)
    read.notes.push_back("plans leave out memory and time of " + tower_text(tower));
  read.towers = towers;
}

std::string tower_text(const Tower& tower) {
  if (tower.layers == 0) return tower.key;
  return fmt::format(
      "{}, {} layers of width {}{}", cut_text(tower.key, 40), tower.layers, format_count(tower.width),
      tower.parameters > 0 ? fmt::format(" with {} parameters", format_magnitude(double(tower.parameters)))
                           : "");
}

}  // namespace mpt::models
