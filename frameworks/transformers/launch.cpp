// SPDX-License-Identifier: Apache-2.0

// Launch lines of programs that train by Hugging Face's Trainer, as people start them: "accelerate launch
// sft.py
// --per_device_train_batch_size 1", "deepspeed train.py --deepspeed ds.json", "trl sft --config sft.yaml",
// "axolotl train recipe.yaml", "llamafactory-cli train recipe.yaml".

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/ranges.h"
#include "base/text.h"
#include "frameworks/readers/shell_words.h"
#include "frameworks/readers/yaml_file.h"
#include "frameworks/registry.h"
#include "frameworks/transformers/trainer.h"

namespace mpt::frameworks {
namespace {

// Options of the launcher and of the script, under the names that the Trainer's arguments have.
struct LaunchLine {
  std::vector<std::string> plain;  // words that are no options, and no values of options
  Json options = Json::object();
};

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
    if (key.empty()) {
      line.plain.push_back(word.text);
      continue;
    }
    // Scripts of the launcher take no value of an option that is a switch.
    if (word.text.ends_with(".py")) {
      line.plain.push_back(word.text);
      key.clear();
      continue;
    }
    Json value = word.unknown.empty() ? plain_scalar(word.text) : Json("$" + *word.unknown.begin());
    Json& known = line.options[key];
    if (known == true)
      known = std::move(value);
    else
      known = known.is_array() ? known : Json::array({known}), known.push_back(std::move(value));
  }
  return line;
}

bool is_program(const std::string& word, const char* name) {
  return std::filesystem::path(word).filename() == name;
}

// The file that an option or a word names, beside the script.
std::filesystem::path file_named(const std::string& name, const std::string& option,
                                 const std::filesystem::path& script) {
  std::filesystem::path path = script.parent_path() / name;
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) return path;
  throw NotJudged(Problem{
      script.string() + " at " + option, fmt::format("{} is not beside the script", cut_text(name, 60)),
      "the file that the line starts with", "put it there, or give that file to the command"});
}

std::string text_option(const Json& options, const char* key) {
  const auto found = options.find(key);
  return found != options.end() && found->is_string() ? found->get<std::string>() : "";
}

// What TRL's own scripts add: names of their own, and other defaults than the Trainer's
// (trl/trainer/sft_config.py).
void add_trl_names(Json& arguments) {
  for (const auto& [theirs, ours] :
       {std::pair{"max_length", "block_size"}, {"max_seq_length", "block_size"}}) {
    if (arguments.contains(theirs)) arguments[ours] = arguments[theirs];
  }
  arguments.emplace("block_size", 1024);
  arguments.emplace("gradient_checkpointing", true);
  arguments.emplace("dtype", "float32");
  if (!arguments.contains("fp16")) arguments.emplace("bf16", true);
  if (arguments.value("use_peft", Json()) == true) {
    arguments["adapter"] = "lora";
    arguments.emplace("lora_r", 16);
  }
}

// accelerate's configuration: the file that is named, or as its own options and the Trainer's say.
Json accelerate_settings(const LaunchLine& line, const std::filesystem::path& script) {
  const Json& o = line.options;
  for (const char* key : {"config_file", "accelerate_config"}) {
    if (const std::string name = text_option(o, key); !name.empty())
      return read_yaml(file_named(name, std::string("--") + key, script));
  }
  Json made{{"distributed_type", "MULTI_GPU"}};
  const int64_t nodes = o.value("nnodes", Json(1)).is_number() ? o.value("nnodes", int64_t{1}) : 1;
  for (const char* key : {"num_processes", "nproc_per_node", "num_gpus"}) {
    const auto found = o.find(key);
    if (found != o.end() && found->is_number_integer() && std::string(key) == "num_processes")
      made["num_processes"] = *found;
    else if (found != o.end() && found->is_number_integer())
      made["num_processes"] = found->get<int64_t>() * nodes;
  }
  if (const std::string name = text_option(o, "deepspeed"); !name.empty()) {
    made["distributed_type"] = "DEEPSPEED";
    made["deepspeed_config"] = {{"deepspeed_config_file", file_named(name, "--deepspeed", script).string()}};
  } else if (o.contains("fsdp") || o.contains("use_fsdp")) {
    made["distributed_type"] = "FSDP";
    for (const auto& [key, value] : o.items()) {
      if (key.starts_with("fsdp_") && !value.is_object()) made["fsdp_config"][key] = value;
    }
  }
  if (o.contains("mixed_precision")) made["mixed_precision"] = o.at("mixed_precision");
  return made;
}

Imported read_line(LaunchLine line, const std::filesystem::path& script) {
  const auto word = [&](size_t n) { return n < line.plain.size() ? line.plain[n] : std::string(); };
  const auto names = [&](const char* program) {
    return any_of(line.plain, [&](const std::string& w) { return is_program(w, program); });
  };
  if (names("axolotl") || names("llamafactory-cli")) {
    const auto recipe = find_if(line.plain, [](const std::string& w) {
      return w.ends_with(".yaml") || w.ends_with(".yml") || w.ends_with(".json");
    });
    if (recipe == line.plain.end())
      throw NotJudged(Problem{script.string(), "a start without a recipe", "axolotl train recipe.yaml", ""});
    return import_transformers(file_named(*recipe, word(0), script));
  }
  Json arguments = line.options;
  const bool trl = names("trl") || text_option(line.options, "dataset_name").starts_with("trl-lib") ||
                   any_of(line.plain, [](const std::string& w) {
                     return w.find("trl") != std::string::npos || w.ends_with("sft.py");
                   });
  for (const char* other : {"dpo", "grpo", "kto", "reward", "rloo", "ppo"}) {
    if (any_of(line.plain, [&](const std::string& w) {
          return w == other || is_program(w, (std::string(other) + ".py").c_str());
        }))
      throw NotJudged(Problem{script.string(), std::string("training by ") + other,
                              "a training of one model on tokens",
                              "plans are for those; other kinds hold further models"});
  }
  if (const std::string name = text_option(line.options, "config"); trl && !name.empty()) {
    Json file = read_yaml(file_named(name, "--config", script));
    file.update(arguments);
    line.options = arguments = std::move(file);
  }
  if (trl) add_trl_names(arguments);
  const Settings settings(std::move(arguments), script.string());
  Imported in =
      read_accelerate(Settings(accelerate_settings(line, script), script.string()), settings, script);
  // Its loss goes over the head in chunks (trl 1.16.0, trl/trainer/sft_trainer.py, add_fused_lm_head).
  if (trl) in.execution.emplace_back("loss=chunked");
  return in;
}

}  // namespace

std::optional<Imported> read_launch(const std::vector<ShellCommand>& commands,
                                    const std::filesystem::path& script) {
  for (const ShellCommand& command : commands) {
    LaunchLine line = line_of(command);
    const bool tool = any_of(line.plain, [&](const std::string& w) {
      return is_program(w, "axolotl") || is_program(w, "llamafactory-cli") || is_program(w, "trl");
    });
    const bool starts =
        tool && (contains(line.plain, std::string("train")) || contains(line.plain, std::string("sft")) ||
                 contains(line.plain, std::string("dpo")));
    if (starts || line.options.contains("per_device_train_batch_size"))
      return read_line(std::move(line), script);
  }
  return std::nullopt;
}

}  // namespace mpt::frameworks
