// SPDX-License-Identifier: Apache-2.0

// Launch lines of programs that train by Hugging Face's Trainer, as people start them: "accelerate launch
// sft.py --learning_rate 1e-4", "deepspeed train.py --deepspeed ds.json", "trl sft --config sft.yaml",
// "axolotl train recipe.yaml", "llamafactory-cli train recipe.yaml".

#include "base/error.h"
#include "base/ranges.h"
#include "base/text.h"
#include "frameworks/framework.h"
#include "frameworks/megatron-core/import.h"
#include "frameworks/readers/adapter_modules.h"
#include "frameworks/readers/yaml_file.h"
#include "frameworks/transformers/hugging_face.h"
#include "frameworks/transformers/trainer.h"

namespace mpt::frameworks {
namespace {

// LLaMA-Factory's program, by its module or by a command that prints where it lies.
bool names_launcher(const std::string& word) {
  return word.find("llamafactory.launcher") != std::string::npos;
}

// Options of the launcher and of the script, under the names that the Trainer's arguments have.
struct LaunchLine {
  std::vector<std::string> plain;  // words that are no options, and no values of options
  Json options = Json::object();

  /// Whether a plain word ends like this; "/" begins the last part of a path, also of a name alone.
  bool names(const char* program) const {
    return any_of(plain, [&](const std::string& w) { return ("/" + w).ends_with(program); });
  }
  /// Whether it starts a training by a tuner's own program, also through torchrun or accelerate.
  bool starts_tuner() const {
    return ((names("/axolotl") || names("/llamafactory-cli")) && names("/train")) ||
           names("/axolotl.cli.train") || any_of(plain, names_launcher);
  }
};

const Json& launch_words(const char* table) { return tuner_table("launch").at(table); }

// "cutoff_len=8192" of LLaMA-Factory, which comes before its recipe, and variables of its launcher.
bool names_setting(const std::string& name) {
  return lower_case(name) == name || contains(launch_words("variables"), Json(name));
}

LaunchLine line_of(const ShellCommand& command) {
  LaunchLine line;
  std::string key;
  for (const ShellWord& word : command) {
    if (word.text.starts_with("--") && word.text.size() > 2) {
      const size_t equals = word.text.find('=');
      key = replaced(word.text.substr(2, std::max<size_t>(equals, 2) - 2), '-', '_');
      line.options[key] =
          equals == std::string::npos ? Json(true) : plain_scalar(word.text.substr(equals + 1));
      if (equals != std::string::npos) key.clear();
      continue;
    }
    // A launcher's switch before its script takes no value.
    const bool starts = word.text == "-m" || word.text.ends_with(".py") || names_launcher(word.text);
    if (key.empty() || word.text == "--" || starts) {
      const std::string name = word.text.substr(0, word.text.find('='));
      if (name.size() < word.text.size() && names_setting(name))
        line.options[lower_case(name)] = plain_scalar(word.text.substr(name.size() + 1));
      else
        line.plain.push_back(word.text);
      key.clear();
      continue;
    }
    Json value = word.unknown.empty() ? plain_scalar(word.text) : Json(word.text);
    Json& known = line.options[key];
    // What the script does not state follows a value: "--output_dir out $@".
    const bool more = known != true || word.text.find_first_of("@*") != std::string::npos;
    if (more && word.unknown.contains(word.text)) continue;
    if (known == true)
      known = std::move(value);
    else
      known = known.is_array() ? known : Json::array({known}), known.push_back(std::move(value));
  }
  return line;
}

// The file that an option or a word names, beside the script. "$(dirname $0)/ds.json" is there, too.
std::filesystem::path file_named(const std::string& name, const std::string& option,
                                 const std::filesystem::path& script) {
  const size_t known = name.starts_with('$') ? name.rfind('/') + 1 : 0;
  std::filesystem::path path = script.parent_path() / name.substr(known);
  if (finds_file(path)) return path;
  if (finds_file(name)) return std::filesystem::absolute(name);  // it counts from the working folder
  throw NotJudged(script.string() + " at " + option,
                  fmt::format("{} is not beside the script", cut_text(name, 60)),
                  "the file that the line starts with", "put it there, or give that file to the command");
}

void put(Json& config, const std::string& section, const std::string& key, const Json& value) {
  Json& into = section.empty() ? config : config[section];
  if (!into.is_object()) into = Json::object();
  into[key] = value;
}

// transformers/training_args.py, _process_fsdp_args
void put_fsdp_of_trainer(const Json& options, const std::filesystem::path& script, Json& config) {
  Json given = options.value("fsdp_config", Json());
  config["distributed_type"] = "FSDP";
  put(config, "fsdp_config", "fsdp_version", 2);
  put(config, "fsdp_config", "fsdp_cpu_ram_efficient_loading", false);
  put(config, "fsdp_config", "fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP");
  if (const std::string text = text_at(options, "fsdp_config"); text.starts_with('{'))
    given = parse_json(text, "--fsdp_config");
  else if (!text.empty())
    given = read_yaml(file_named(text, "--fsdp_config", script));
  config["fsdp_config"].update(fsdp_of_trainer(options.at("fsdp"), given));
}

// GPUs that "0,1" of CUDA_VISIBLE_DEVICES or "localhost:0,1" of DeepSpeed's --include names; 0: not stated.
int64_t visible_devices(const Json& options) {
  const bool hosts = options.contains("include");
  const Json value = options.value(hosts ? "include" : "cuda_visible_devices", Json("$"));
  const std::string list = value.is_string() ? value.get<std::string>() : value.dump();
  if (list.find('$') < list.size() || (hosts && list.find(':') == std::string::npos)) return 0;
  return 1 + std::count_if(list.begin(), list.end(), [](char c) { return c == ',' || c == '@'; });
}

// accelerate's configuration: the file that is named, and options of the line, which come before it.
Json accelerate_settings(const LaunchLine& line, const std::filesystem::path& script) {
  const Json& o = line.options;
  Json made{{"distributed_type", "MULTI_GPU"}};
  for (const char* key : {"config_file", "accelerate_config"})
    if (const std::string name = text_at(o, key); launch_words("configurations").contains(name))
      made = launch_words("configurations")[name];  // TRL's own
    else if (!name.empty())
      made = read_yaml(file_named(name, std::string("--") + key, script));
  if (!made.is_object()) return made;
  const Json nodes_of_line = o.value("nnodes", o.value("num_nodes", Json(1)));
  const int64_t nodes = nodes_of_line.is_number_integer() ? nodes_of_line.get<int64_t>() : 0;  // 0: unknown
  if (nodes > 0 && visible_devices(o) > 0 && !made.contains("num_processes"))
    made["num_processes"] = nodes * visible_devices(o);
  for (const auto& [key, times] :
       {std::pair{"num_gpus", nodes}, {"nproc_per_node", nodes}, {"num_processes", 1}}) {
    const auto found = o.find(key);
    if (found != o.end() && found->is_number_integer() && times > 0)
      made["num_processes"] = found->get<int64_t>() * times;
  }
  if (o.contains("fsdp") && !is_off(o["fsdp"])) put_fsdp_of_trainer(o, script, made);
  for (const auto& [key, value] : o.items())
    for (const auto& [begin, section] : launch_words("sections").items())
      if (key.starts_with(begin) && key != "fsdp_config") put(made, section, key, value);
  if (o.contains("use_fsdp")) made["distributed_type"] = "FSDP";
  if (o.contains("use_deepspeed")) made["distributed_type"] = "DEEPSPEED";
  for (const char* key : {"deepspeed_config_file", "deepspeed"}) {
    if (o.contains(key) && o[key].is_structured())
      throw NotJudged(script.string() + " at " + key, "several values", "the path of one file");
    const std::string name = text_at(o, key);
    if (name.empty()) continue;
    made["distributed_type"] = "DEEPSPEED";
    const std::filesystem::path file = file_named(name, std::string("--") + key, script);
    put(made, "deepspeed_config", "deepspeed_config_file", std::filesystem::absolute(file).string());
  }
  return made;
}

// Each script names its own arguments. Which layers get adapters, and how long sequences are, only the line
// can say.
Json arguments_of_script(const LaunchLine& line, const std::filesystem::path& script) {
  Json all = line.options;
  for (const auto& [theirs, ours] : launch_words("names").items())
    if (all.contains(theirs)) all.emplace(ours.get<std::string>(), Json(all[theirs]));
  bool named = false, on = false, adapts = false;
  for (const auto& [key, value] : line.options.items()) {
    const bool is_switch = contains(launch_words("adapters"), Json(key));
    named = named || is_switch;
    on = on || (is_switch && !is_off(value));
    adapts = adapts || key.starts_with("lora_");
  }
  if (named ? on : adapts || all.value("load_in_4bit", Json()) == true) all["adapter"] = "lora";
  if (all.contains("adapter") && !all.contains("lora_target_modules"))
    throw NotJudged(script.string(), "adapters on layers that the script chooses",
                    "--lora_target_modules in the line", "add it to a copy of the file");
  if (!all.contains("block_size") && !line.names("/run_clm.py"))
    throw NotJudged(script.string(), "sequences as long as the script chooses",
                    "--block_size, --max_length, --max_seq_length or --model_max_length",
                    "add it to a copy of the file");
  return all;
}

// Programs of other kinds of training: dpo, trl.scripts.dpo, grpo_fast.py.
void refuse_other_kinds(const LaunchLine& line, const std::filesystem::path& script) {
  for (const std::string& word : line.plain) {
    const std::string name = std::filesystem::path(word).filename().string();
    for (const std::string& part : split_at(replaced(replaced(name, '.', ' '), '_', ' '), ' '))
      if (contains(launch_words("kinds"), Json(part)))
        throw NotJudged(script.string(), "training by " + part, "a training of one model on tokens",
                        "plans are for those; other kinds hold further models");
  }
}

bool is_of_launcher(const std::string& key) {
  return contains(launch_words("launchers"), Json(key)) ||
         any_of(launch_words("sections").items(),
                [&key](const auto& row) { return key.starts_with(row.key()); });
}

void judge_options(const Json& options, bool trl, Imported& in) {
  Json judged = Json::object();
  for (const auto& [key, value] : options.items()) {
    const bool is_read = is_of_launcher(key) || contains(launch_words("read"), Json(key)) ||
                         (!trl && launch_words("names").contains(key));
    if (!is_read) judged[key] = value;
    if (contains(launch_words("others"), Json(key)) && !is_off(value)) in.unknown.push_back(key);
  }
  judge_keys(judged, trl ? "TRL" : "transformers 4", "", in);
}

Imported read_line(LaunchLine line, const std::filesystem::path& script) {
  const auto recipe = find_if(line.plain, [](const std::string& w) {
    return w.ends_with(".yaml") || w.ends_with(".yml") || w.ends_with(".json");
  });
  const bool tuner = line.starts_tuner();
  if (tuner && recipe == line.plain.end())
    throw NotJudged(script.string(), "a start without a recipe", "axolotl train recipe.yaml");
  // The launcher's sharding comes before that of the recipe.
  if (recipe != line.plain.end() && (tuner || line.names("/train.py"))) {
    const std::filesystem::path file = file_named(*recipe, line.plain.front(), script);
    Json given = read_yaml(file);
    const Json launched = accelerate_settings(line, script);
    if (launched.contains("fsdp_config") && !given.contains("deepspeed"))
      given["fsdp_config"] = launched["fsdp_config"];
    for (const auto& [key, value] : line.options.items())
      if (given.is_object() && !is_of_launcher(key)) given[key] = value;
    auto in = read_tuner(given, file);
    const auto given_by_line = [&](const std::string& key) { return line.options.contains(key); };
    if (in && any_of(launch_words("ranks"), given_by_line))
      in->ranks = Settings(launched, script.string()).number("num_processes", rule_of(&Layout::data), 0);
    if (in) return *in;
  }
  const bool trl =
      line.names("sft.py") || text_at(line.options, "dataset_name").starts_with("trl-lib") ||
      any_of(line.plain, [](const std::string& w) { return w.find("trl") != std::string::npos; });
  refuse_other_kinds(line, script);
  if (const std::string name = text_at(line.options, "config"); trl && !name.empty()) {
    Json file = read_yaml(file_named(name, "--config", script));
    file.update(line.options);
    line.options = std::move(file);
  }
  Json arguments = trl ? trainer_names(line.options, "TRL") : arguments_of_script(line, script);
  if (trl && arguments.value("use_peft", Json()) == true) {
    arguments["adapter"] = "lora";
    arguments.emplace("lora_r", 16);  // trl/trainer/model_config.py
    arguments.emplace("lora_target_modules", kTargetsOfPeft);
  }
  const Settings settings(std::move(arguments), script.string());
  auto in = read_accelerate(Settings(accelerate_settings(line, script), script.string()), settings, script);
  if (trl && line.options.value("max_length", Json(1)).is_null())
    in.unknown.emplace_back("max_length: null, so sequences are as long as the data has them");
  if (in.layout.training->adapts() && in.layout.training->frozen_format == FrozenFormat::bf16 &&
      settings.text("dtype", "auto") == "float32" && in.layout.precision != Precision::fp32)
    in.unknown.emplace_back("dtype: float32, in which frozen weights stay");
  if (trl)
    for (const auto& [alias, changes] : framework_named(in.framework, script.string()).alias_execution)
      if (alias.starts_with("trl")) in.execution.insert(in.execution.end(), changes.begin(), changes.end());
  constexpr double kDropout = 0.05;  // of TRL's adapters (trl/trainer/model_config.py)
  if (trl && in.layout.training->adapts() && line.options.value("lora_dropout", Json(kDropout)) == kDropout)
    in.execution.emplace_back("adapter_dropout=true");
  judge_options(line.options, trl, in);
  if (in.framework == "transformers-fsdp" && in.layout.training->frozen_format == FrozenFormat::int8)
    in.unknown.emplace_back("load_in_8bit");  // accelerate 1.15.0 leaves such weights whole on each GPU
  return in;
}

}  // namespace

std::optional<Imported> read_megatron_recipe(const Json& recipe, const std::filesystem::path& file) {
  const auto tool = find_if(tuner_table("tools"), [&](const Json& one) {
    return any_of(one.value("marks", Json::array()), [&](const Json& key) { return recipe.contains(key); });
  });
  if (tool == tuner_table("tools").end()) return std::nullopt;
  const Settings s(trainer_names(recipe, tool->at("tool")), file.string());
  Imported in;
  set_hugging_face_model(in, s.text("model_name_or_path", ""), file.parent_path());
  if (!in.model) return in;
  in.model->next_token_layers = 0;
  MegatronFlags flags(file.string());
  for (const auto& [flag, key] : tool->at("flags").items()) {
    const Json* const value = key.is_string() ? s.find(key.get<std::string>()) : &key;
    if (value != nullptr) flags.set(flag, value->is_string() ? value->get<std::string>() : value->dump());
  }
  in = megatron_import(flags, tool->at("framework"), in.model);
  in.framework = tool->at("framework");
  in.accumulated = s.number("gradient_accumulation_steps", rule_of(&Workload::global_batch), 1);
  if (tool->contains("targets") && s.text("finetuning_type", "") == "lora") {
    const std::vector<std::string> targets = tool->at("targets");
    in.layout.training.edit().adapter_rank = s.number("lora_rank", rule_of(&Training::adapter_rank), 8);
    set_adapter_targets(match_adapters(megatron_modules(*in.model), targets), targets, s.at("LoRA"), in);
  }
  Json judged = tool->at("defaults");
  judged.update(recipe);
  judge_keys(judged, tool->at("tool"), "", in);
  return in;
}

Imported read_trl(const Json& recipe, const std::filesystem::path& file) {
  Imported in = read_line({{"trl"}, recipe}, file);
  if (in.framework == "transformers-ddp")
    in.notes.emplace_back("no accelerate_config: each GPU has all weights and states");
  return in;
}

std::optional<Imported> read_launch(const std::vector<ShellCommand>& commands,
                                    const std::filesystem::path& script) {
  std::optional<LaunchLine> first;
  std::vector<std::string> notes;
  int64_t others = 0;
  for (const ShellCommand& command : commands) {
    LaunchLine line = line_of(command);
    const bool trl = line.names("/trl") && (line.names("/sft") || line.names("/dpo"));
    const bool sft = (line.names("sft.py") || line.names("/run_clm.py")) &&
                     (line.options.contains("config") || line.options.contains("model_name_or_path"));
    if (!line.starts_tuner() && !trl && !sft && !(line.names("/train.py") && line.names(".yaml")) &&
        !line.options.contains("per_device_train_batch_size"))
      continue;
    if (first && ++others > 0) continue;
    notes = notes_of_words(command);
    first = std::move(line);
  }
  if (!first) return std::nullopt;
  WorkBudget budget(script.string(), kMostImportedBytes);
  for (const auto& [name, words] : shell_variables(read_file(script, kMostImportedBytes), script, budget))
    if (contains(launch_words("variables"), Json(name)) && words.size() == 1)
      first->options.emplace(lower_case(name), plain_scalar(words.front().text));
  if (others > 0) notes.push_back(fmt::format("the first of {} launches is read", others + 1));
  Imported in = read_line(std::move(*first), script);
  in.notes.insert(in.notes.end(), notes.begin(), notes.end());
  return in;
}

}  // namespace mpt::frameworks
