// SPDX-License-Identifier: Apache-2.0

// Reads Megatron-Bridge: lines of Python such as "config.model.num_layers = 32", "model.num_layers=32" from a
// recipe's command line, the same in YAML, functions of its recipes that return a configuration, and NeMo's
// "recipe.trainer.strategy.tensor_model_parallel_size = 2". Its fields are Megatron-LM's flags under other
// names.

#include <array>
#include <cctype>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "frameworks/asked.h"
#include "frameworks/dialects.h"
#include "frameworks/export.h"
#include "frameworks/megatron-core/import.h"
#include "frameworks/readers/adapter_modules.h"
#include "frameworks/readers/python_file.h"
#include "frameworks/readers/settings.h"
#include "frameworks/readers/shell_state.h"
#include "frameworks/readers/yaml_file.h"
#include "frameworks/registry.h"
#include "frameworks/transformers/hugging_face.h"
#include "models/zoo.h"

namespace mpt::frameworks {
namespace {

// The zoo's model of the recipe that a file calls, llama3_8b_pretrain_config() or
// llm.llama3_8b.pretrain_recipe().

// "llama318b" of "Llama-3.1-8B" and of "llama31_8b".
std::string letters_and_digits(std::string name) {
  std::erase_if(name, [](unsigned char c) { return std::isalnum(c) == 0; });
  return lower_case(std::move(name));
}

// Whether a name of several words differs from another by at most two letters.
bool is_slip(const std::string& written, const std::string& name) {
  if (written.find('_') == std::string::npos || written.front() != name.front()) return false;
  std::array<int, 256> more{};
  for (const unsigned char c : letters_and_digits(written)) ++more[c];
  for (const unsigned char c : letters_and_digits(name)) --more[c];
  return sum_of<int>(more, [](int count) { return std::abs(count); }) <= 2;
}

// The model of a recipe that the text calls, and its kind: "pretrain", "sft", "peft" or "finetune".
std::optional<ModelSpec> model_of_recipe(const std::string& text, std::string& kind) {
  for (const std::string ending : {"_pretrain_config", "_sft_config", "_peft_config", "_finetune_config",
                                   ".pretrain_recipe", ".finetune_recipe", "_pretrain_", "_sft_", "_peft_"}) {
    kind = ending.substr(1, ending.find('_', 1) - 1);
    const size_t end = text.find(ending);
    size_t begin = end;
    while (end != std::string::npos && begin > 0 && is_name_part(text[begin - 1])) --begin;
    const std::string name = begin < end ? letters_and_digits(text.substr(begin, end - begin)) : "";
    for (const models::ZooModel& model : models::zoo_models()) {
      std::vector<std::string> names = model.aliases;
      names.push_back(model.name);
      for (const std::string& known : names)
        if (name == letters_and_digits(known.substr(known.rfind('/') + 1))) return model.model;
    }
  }
  return std::nullopt;
}

// Texts of a list one by one; any other value as one word.
std::vector<ShellWord> words_of_value(const Json& value, const std::string& text) {
  if (!value.is_array() || !any_of(value, [](const Json& j) { return j.is_string(); }))
    return {{value.is_string() ? value.get<std::string>() : text, {}, {}}};
  std::vector<ShellWord> words;
  for (const Json& word : value)
    if (word.is_string()) words.push_back({word.get<std::string>(), {}, {}});
  return words;
}

// [["embedding", "decoder"], ["decoder", "loss"]] as "Et|tL".
std::string stages_text(const Json& stages) {
  if (!stages.is_array()) return python_text(stages);
  std::string text;
  for (const Json& stage : stages) {
    if (&stage != &stages.front()) text += '|';
    for (const Json& layer : stage)
      text += layer == "decoder" ? 't' : layer == "embedding" ? 'E' : layer == "mtp" ? 'm' : 'L';
  }
  return text;
}

// The call that begins a chain of methods.
const Json& first_call(const Json& made) {
  const Json* first = &made;
  while (first->is_object() && first->contains(kOfKey)) first = &first->at(kOfKey);
  return *first;
}

// The id or folder from which AutoBridge makes the model; null if it is made in another way.
Json id_of_checkpoint(const Json& model) {
  Json made = first_call(model);
  if (text_at(made, kCallKey).ends_with("from_hf_config")) made = Json(first_call(first_argument(made)));
  const std::string call = text_at(made, kCallKey);
  const bool loads = call.ends_with("from_hf_pretrained") || call.ends_with("AutoConfig.from_pretrained");
  return loads ? first_argument(made) : Json();
}

std::optional<ModelSpec> model_of_checkpoint(const Json& id, const std::filesystem::path& file) {
  Imported known;
  if (id.is_string()) set_hugging_face_model(known, id, file.parent_path());
  return std::move(known.model);
}

// Those of the fields that a checkpoint sets in a provider which decide a layout.
std::optional<Json> fact_of_checkpoint(const Json& model, const std::string& field,
                                       const std::filesystem::path& file) {
  const auto known = field == "num_layers" || field == "mtp_num_layers"
                         ? model_of_checkpoint(id_of_checkpoint(model), file)
                         : std::nullopt;
  if (!known) return std::nullopt;
  return field == "num_layers" ? known->layers.count() : known->next_token_layers;
}

class BridgeFields {
 public:
  explicit BridgeFields(const std::filesystem::path& file)
      : flags_(file.string()), budget_(file.string(), kMostImportedBytes) {
    const std::string text = read_file(file, kMostImportedBytes);
    const bool is_yaml = file.extension() == ".yaml" || file.extension() == ".yml";
    if (!says_sizes(text)) take_model_of_recipe(text);
    if (is_yaml) {
      take_map("", read_yaml(file));
    } else {
      const PythonFile python = read_python(file);
      take_names(python.values);
      for (const PythonFunction& function : python.functions) {
        for (const PythonUnread& unread : function.unread)
          notes_.push_back(unread.text + " was not understood");
        take_names(function.names);
        take_names(Json::array({function.result}));
        all_read_ = all_read_ && function.unread.empty();
      }
    }
    if (!model_ && !flags_.has("num-layers"))
      refuse_input(file.string(), "no config.model.num_layers, and no recipe of a model that is known",
                   "lines that set fields of a configuration, as mpt-plan export writes them",
                   "set the model's sizes in a copy of the file");
    finish();
  }

  BridgeFields(const std::filesystem::path& file, const PythonFunction& recipe)
      : flags_(file.string()), budget_(file.string(), kMostImportedBytes) {
    const std::string place = file.string() + " at " + recipe.name;
    Json fields = defaults_of(recipe.result), model = defaults_of(recipe.result.at("model"));
    fields.merge_patch(recipe.result);
    if (recipe.result.at("model").is_object()) model.update(recipe.result.at("model"));
    refuse_other_parts(fields, place);
    take_model(model, place);
    if (model_ || model.contains("vocab_size")) fields.erase("tokenizer");  // its vocabulary is known
    model.erase("zoo");
    fields["model"] = std::move(model);
    for (auto* part : {"checkpoint", "logger", "validation", "scheduler", "env_vars"}) fields.erase(part);
    take_map("", fields);
    for (const PythonUnread& unread : recipe.unread) notes_.push_back(unread.text + " was not understood");
    all_read_ = recipe.unread.empty();
    finish();
  }

  Imported imported() const;

 private:
  // The reason of Bridge's own rules, if the file states all that they need.
  std::optional<Problem> refusal(const ModelSpec& model) const {
    if (!all_read_) return std::nullopt;
    auto given = given_;
    given.try_emplace("model.num_moe_experts", model.moe() == nullptr ? Json() : Json(model.moe()->experts));
    return asked_.refusal(given, false, flags_.file());
  }

  void finish() {
    set_precision();
    // config.py, runtime_config_update: either section turns both on.
    for (const std::string name : {"use_distributed_optimizer", "overlap_param_gather"})
      for (const char* section : {"ddp.", "optimizer."})
        if (const auto* given = find_value(given_, section + name); given != nullptr && *given == Json(true))
          set(name, "True", true);
    if (called_) refuse_unknown_recipe();
    // src/megatron/bridge/models/transformer_config.py, _set_moe_expert_tensor_parallel_default()
    if (!flags_.has("expert-tensor-parallel-size") && flags_.find("expert-model-parallel-size") != "1" &&
        flags_.has("expert-model-parallel-size"))
      flags_.set("expert-tensor-parallel-size", "1");
    if (chunks_ && !overlaps_) flags_.set("no-overlap-p2p-communication", std::vector<ShellWord>{});
    // Bridges of checkpoints set both to 0 (models/llama/llama_bridge.py and others).
    for (const char* dropout : {"attention-dropout", "hidden-dropout"})
      if (model_ && !flags_.has(dropout)) flags_.set(dropout, "0");
  }

  // These fields freeze or feed encoders of images or sound, and their projections.
  static void refuse_other_parts(const Json& fields, const std::string& place) {
    static constexpr const char* kOthers[][2] = {
#include "generated/OtherParts.inc"
    };
    for (const auto& [part, field] : kOthers) {
      const auto found = fields.find(part);
      if (found != fields.end() && found->is_object() && found->contains(field))
        throw NotJudged(place,
                        fmt::format("{}.{}: an encoder of images or sound beside the decoder", part, field),
                        "a decoder alone", "plan its decoder with --model");
    }
  }

  // The defaults of a function or class of Bridge.
  static Json defaults_of(const Json& made) {
    const Json known = parse_json(template_text("common.json"), "frameworks/megatron-bridge/common.json");
    const auto found = known.find(text_at(made, kCallKey));
    return found != known.end() && found->is_object() ? *found : Json::object();
  }

  // The model of a provider's class that sets more than its fields: the one with the sizes that these state.
  static std::optional<ModelSpec> model_of_class(const Json& provider) {
    for (const Json& name : provider.value("zoo", Json::array())) {
      ModelSpec model = models::load_model(name);
      if (provider.value("num_layers", Json(model.layers.count())) == model.layers.count() &&
          provider.value("hidden_size", Json(model.hidden)) == model.hidden)
        return model;
    }
    return std::nullopt;
  }

  // AutoBridge.from_hf_pretrained("id").to_megatron_provider(): the model comes from the checkpoint.
  void take_model(const Json& model, const std::string& place) {
    if ((model_ = model_of_class(model))) return;
    const Json id = id_of_checkpoint(model);
    if (id.is_null() && model.contains("num_layers")) return;  // a provider with its sizes
    if (id.is_null())
      refuse_input(place, fmt::format("a model made by {}()", cut_text(text_at(model, kCallKey), 60)),
                   "a provider with its sizes, or AutoBridge.from_hf_pretrained() of an id");
    model_ = model_of_checkpoint(id, flags_.file());
    if (!model_)
      refuse_input(place, fmt::format("model {}, which is not known", cut_text(python_text(id), 60)),
                   "one of `mpt-plan model list`", "plan with --model and its config.json");
    const auto depths = model.find("mtp_num_layers");
    if (depths != model.end() && (depths->is_null() || *depths == 0)) model_->next_token_layers = 0;
    if (model.contains("num_layers") || model.contains("hidden_size"))
      refuse_input(place, "sizes of another model than the checkpoint's", "the checkpoint's own");
  }

  static bool says_sizes(const std::string& text) {
    for (size_t at = text.find("num_layers"); at < text.size(); at = text.find("num_layers", at + 1)) {
      const char next = text[std::min(text.find_first_not_of(' ', at + 10), text.size() - 1)];
      if ((next == '=' || next == ':') && (at == 0 || !is_name_part(text[at - 1]))) return true;
    }
    return false;
  }

  // Takes configurations, and checkpoints of the Hugging Face hub, from the values that a file names.
  void take_names(const Json& names) {
    for (const auto& [name, value] : names.items()) {
      if (auto taken = flags_.has("num-layers") ? std::nullopt
                                                : model_of_checkpoint(id_of_checkpoint(value), flags_.file()))
        model_ = std::move(taken);
      const bool is_configuration =
          value.is_object() && (value.contains("model") || value.contains("trainer") ||
                                value.contains("train") || value.contains("peft"));
      if (is_configuration) take_map("", value);
    }
  }

  void take_map(const std::string& prefix, const Json& map) {
    for (const auto& [key, value] : map.items()) {
      if (key == kCallKey || key == kArgumentsKey || key == kOfKey || key == kNameKey) continue;  // the call
      std::string path = prefix;
      if (!path.empty()) path += '.';
      path += key;
      // NeMo's plugins are the precision.
      if (path.starts_with("trainer.plugins")) path = "mixed_precision" + path.substr(15);
      budget_.spend(path.size());
      if (path == "peft" && value.is_object()) {
        peft_ = value;
        if (!value.contains(kCallKey)) peft_[kCallKey] = value.value("_target_", "LoRA");
      } else if (value.is_object() && value.contains(kNameKey) && value.size() == 1) {
        take(path, text_at(value, kNameKey), value);
      } else if (value.is_object()) {
        if (path == "mixed_precision" && value.contains(kCallKey)) take(path, "", value);
        take_map(path, value);
      } else {
        take(path, path.ends_with("pipeline_model_parallel_layout") ? stages_text(value) : python_text(value),
             value);
      }
    }
  }

  // Sizes of the model only. The recipe's other settings are in its source, which is not read.
  void take_model_of_recipe(const std::string& text) {
    std::string kind;
    model_ = model_of_recipe(text, kind);
    if (!model_) return;
    notes_.push_back(fmt::format(
        "the recipe of {} is not beside the file: what neither the file nor Bridge's common recipes "
        "set is taken as off, or 1",
        model_->name));
    called_ = true;
    Json common = defaults_of({{kCallKey, fmt::format("_{}_common", kind == "finetune" ? "sft" : kind)}});
    for (const char* own : {"train", "dataset", "tokenizer"}) common.erase(own);  // other recipes set others
    take_map("", common);
  }

  // Refuses a recipe from another file that is missing, unless this file sets length and batch.
  void refuse_unknown_recipe() const {
    const bool length = flags_.has("seq-length");
    if (length && (flags_.has("micro-batch-size") || flags_.has("global-batch-size"))) return;
    throw NotJudged(
        flags_.file(),
        fmt::format("a recipe of {} is called, and not beside the file: its {} is not known", model_->name,
                    length ? "batch" : "length"),
        "a file that sets both",
        "set seq_length, micro_batch_size and global_batch_size in a copy, or read what it builds: "
        "python -m mpt.capture");
  }

  // `text`: the value as Python.
  void take(std::string path, const std::string& text, const Json& value) {
    for (const std::string_view prefix : {"config.", "cfg."})
      if (path.starts_with(prefix)) path = path.substr(prefix.size());
    const size_t dot = path.rfind('.');
    if (path == "mixed_precision") return take_precision(value);
    if (path.starts_with("mixed_precision.")) {
      precision_[path.substr(16)] = value;
      return;
    }
    given_[path] = value.is_object() ? std::nullopt : std::optional(value);
    if (path == "peft") {
      peft_ = value;
    } else if (path.starts_with("peft.") && peft_.is_object()) {
      budget_.spend(peft_.size());
      peft_[path.substr(5)] = value;
    } else if (dot != std::string::npos && !text.empty()) {
      check_spelling(path, path.substr(dot + 1));
      set(path.substr(dot + 1), text, value);
    }
  }

  // The fields of a recipe of a precision, by its name or by the call that makes it.
  void take_precision(const Json& value) {
    given_["mixed_precision"] = value.is_object() ? Json(kCallKey) : value;
    if (value.is_null()) return;
    const Json first = first_argument(value);  // of get_mixed_precision_config()
    const std::string name = value.is_string()   ? value.get<std::string>()
                             : first.is_string() ? first.get<std::string>()
                                                 : text_at(value, kCallKey) + text_at(value, kNameKey);
    const Json& presets = asked_.presets;
    const auto found = presets.find(replaced(name.substr(name.rfind('.') + 1), '-', '_'));
    if (found != presets.end()) {
      precision_ = *found;
    } else if (value.is_string()) {
      throw FrameworkRefusal(flags_.file() + " at mixed_precision", fmt::format("\"{}\"", cut_text(name, 60)),
                             "a recipe of " + asked_.registries.front().package);
    } else {
      precision_ = presets.at("bf16_mixed");
      given_["mixed_precision"] = std::nullopt;
      notes_.push_back(fmt::format("mixed_precision {}: taken as bf16_mixed", cut_text(name, 60)));
    }
  }

  void set_precision() {
    const auto field = [&](const char* name) { return precision_.value(name, Json()); };
    for (const auto& [name, value] : precision_.items()) given_["mixed_precision." + name] = value;
    wide_gradients_ = field("grad_reduce_in_fp32") != false;
    for (const char* type : {"fp16", "bf16"})
      if (field(type) == true) flags_.set(type, std::vector<ShellWord>{});
    if (wide_gradients_) flags_.set("accumulate-allreduce-grads-in-fp32", std::vector<ShellWord>{});
    for (const auto& [name, flag] :
         {std::pair{"fp4", "fp4-format"}, {"fp8", "fp8-format"}, {"fp8_recipe", "fp8-recipe"}})
      if (field(name).is_string()) flags_.set(flag, field(name).get<std::string>());
  }

  // Refuses a misspelt field: dataclasses of Bridge raise an error for it, or ignore it. Its fields are named
  // like Megatron-LM's flags.
  void check_spelling(const std::string& path, const std::string& field) const {
    static const std::vector<std::string> known = [] {
      std::vector<std::string> names;
      for (const auto& [kind, flags] : asked_of(framework_named("megatron-core", ""))->keys)
        for (const std::string& flag : flags) names.push_back(replaced(flag, '-', '_'));
      for (const auto& [name, word] : dialect_of("megatron-bridge").fields) names.push_back(name);
      return names;
    }();
    const bool section = any_of(std::array{"model.", "train.", "ddp.", "optimizer."},
                                [&](const char* name) { return path.starts_with(name); });
    if (!section || contains(known, field)) return;
    const auto near = find_if(known, [&](const std::string& name) { return is_slip(field, name); });
    if (near == known.end()) return;
    throw FrameworkRefusal(
        fmt::format("{} at {}", flags_.file(), path),
        fmt::format("no field of {}; did you mean \"{}\"?", asked_.registries.front().package, *near), "");
  }

  void set(const std::string& field, const std::string& text, const Json& value) {
    const bool no = text == "False", none = text == "None";
    const std::string word = models::word_of(dialect_of("megatron-bridge"), field);
    if (field == "overlap_p2p_comm") {
      overlaps_ = !no;
    } else if (word.starts_with('!')) {
      if (no) flags_.set(word.substr(1), std::vector<ShellWord>{});
    } else if (field == "activation_func" && text.find("squared_relu") != std::string::npos) {
      flags_.set(word, "megatron.core.activations.squared_relu");  // from whichever module
    } else if (no || none) {
      flags_.drop(word);  // of a recipe that was read before
    } else {
      chunks_ = chunks_ || field == "virtual_pipeline_model_parallel_size";
      flags_.set(word, text == "True" ? std::vector<ShellWord>{} : words_of_value(value, text));
    }
  }

  MegatronFlags flags_;
  WorkBudget budget_;
  const Asked& asked_ = *asked_of(framework_named("megatron-bridge", ""));
  std::map<std::string, std::optional<Json>> given_;  // by path
  Json precision_ = Json::object();                   // fields of MixedPrecisionConfig
  std::optional<ModelSpec> model_;
  std::vector<std::string> notes_;
  Json peft_;
  bool called_ = false, chunks_ = false, overlaps_ = true, wide_gradients_ = true, all_read_ = true;
};

// The adapters of a configuration's `peft`: null, a name, or a call as the reader of Python returns it
// (src/megatron/bridge/peft/lora.py and module_matcher.py).

// Of "LoRA(...)", "lora.LoRA(...)", "lora", or a name that the file does not explain.
std::string kind_of(const Json& peft) {
  auto name = peft.is_string() ? peft.get<std::string>() : text_at(peft, kCallKey) + text_at(peft, kNameKey);
  if (name.empty()) name = "something else";
  name = name.substr(name.rfind('.') + 1);
  // default_peft_config("lora") of src/megatron/bridge/recipes/utils/dataset_utils.py
  const Json first = name == "default_peft_config" ? first_argument(peft) : Json();
  return first.is_null() ? name : kind_of(first);
}

AdapterModules names_of(const ModelSpec& model, bool /*fused*/) { return megatron_modules(model); }

void set_bridge_adapters(const Json& peft, const std::string& file, Imported& in) {
  if (peft.is_null()) return;
  if (const std::string kind = kind_of(peft); kind != "LoRA" && kind != "lora") {
    in.notes.push_back(fmt::format("peft {}: full training is priced", cut_text(kind, 40)));
    return;
  }
  const Settings said({{"peft", peft}}, file);
  in.layout.training.edit().adapter_rank = said.number("peft.dim", rule_of(&Training::adapter_rank), 32);
  for (const char* key : {"peft.target_modules", "peft.exclude_modules"})
    if (said.has(key) && !said.find(key)->is_array())
      refuse_input(said.at(key), detail::describe_json(*said.find(key)), "a list of names");
  std::vector<std::string> patterns = said.texts("peft.target_modules");
  const bool excludes = said.has("peft.target_modules") && patterns.empty();
  if (excludes) patterns = said.texts("peft.exclude_modules");
  if (!said.has("peft.target_modules")) patterns = {"linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"};
  set_adapter_targets(match_recipe(in, names_of, patterns, excludes), patterns, said.at("peft"), in);
}

// Its recipes are functions that return a configuration with its model.
bool is_bridge_recipe(const PythonFunction& function) {
  return function.name.ends_with("_config") && !function.name.starts_with('_') &&
         function.result.is_object() && function.result.contains("model");
}

Imported BridgeFields::imported() const {
  Imported in = megatron_import(flags_, "megatron-bridge", model_);
  if (!wide_gradients_) {
    in.execution.emplace_back("gradient_bytes=2");
    in.execution.emplace_back("reduced_bytes=2");
  }
  // Megatron-LM's own program requires that number of positions; rotary ones are computed.
  if (in.model->position == PositionKind::rotary)
    in.model->max_positions = std::max(in.model->max_positions, in.workload.sequence);
  in.refused = refusal(*in.model);
  set_bridge_adapters(peft_, flags_.file(), in);
  in.notes.insert(in.notes.begin(), notes_.begin(), notes_.end());
  return in;
}

}  // namespace

std::vector<std::string> megatron_bridge_recipes(const std::filesystem::path& file) {
  auto names = mapped_if<std::string>(read_python(file).functions, is_bridge_recipe, &PythonFunction::name);
  if (names.empty()) names.emplace_back();  // the file itself
  return names;
}

Imported import_megatron_bridge_recipe(const std::filesystem::path& file, const std::string& name) {
  const PythonFacts facts = [&](const Json& made, const std::string& field) {
    return fact_of_checkpoint(made, field, file);
  };
  for (const PythonFunction& function : read_python(file, name, facts).functions)
    if (is_bridge_recipe(function) && function.name == name) return BridgeFields(file, function).imported();
  refuse_input(file.string(), fmt::format("no recipe \"{}\"", cut_text(name, 60)),
               one_of(megatron_bridge_recipes(file)));
}

Imported import_megatron_bridge(const std::filesystem::path& file) {
  const auto names = file.extension() == ".py" ? megatron_bridge_recipes(file) : std::vector<std::string>{""};
  if (names.size() > 1)
    refuse_input(file.string(), fmt::format("{} recipes", names.size()), "one of them",
                 fmt::format("name it, such as --config {}", names.back()));
  const std::filesystem::path layout = file.parent_path() / "mpt_layout.py";  // beside MPT's own trial
  if (file.filename() == "mpt_bridge_trial.py" && finds_file(layout)) return BridgeFields(layout).imported();
  return names.front().empty() ? BridgeFields(file).imported()
                               : import_megatron_bridge_recipe(file, names.front());
}

}  // namespace mpt::frameworks
