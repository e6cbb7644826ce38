// SPDX-License-Identifier: Apache-2.0
#include "frameworks/megatron-core/flags.h"

#include <fmt/ranges.h>

#include "base/json.h"
#include "frameworks/registry.h"

namespace mpt::frameworks {
namespace {

bool is_flag(const std::string& text) {
  return text.size() > 2 && text.starts_with("--") && std::isalpha(static_cast<unsigned char>(text[2])) != 0;
}

// "--num_layers" is "--num-layers", as in the files of ms-swift.
std::string flag_name(const std::string& text) {
  return replaced(text.substr(0, text.find('=')).substr(2), '_', '-');
}

// A command inside one word, as in `sh -c "torchrun ... --num-layers 8"`.
ShellCommand unfolded(const ShellCommand& command, WorkBudget& budget) {
  ShellCommand words;
  for (const ShellWord& word : command) {
    if (word.text.find(" --") == std::string::npos && word.text.find("\n--") == std::string::npos) {
      words.push_back(word);
      continue;
    }
    for (ShellCommand& inner : shell_commands(word.text, {}, budget))
      for (ShellWord& one : inner) {
        one.unknown = one.text.find('$') == std::string::npos ? std::set<std::string>{} : word.unknown;
        one.several = word.several;
        words.push_back(std::move(one));
      }
  }
  return words;
}

// The number of the first of a launcher's options, "-np 2", "--nnodes 2" or "--nnodes=2"; 0 if it is not a
// number.
int64_t launched(const ShellCommand& launcher, const std::set<std::string>& options, int64_t otherwise) {
  for (size_t i = 0; i < launcher.size(); ++i) {
    if (!options.contains(replaced(launcher[i].text.substr(0, launcher[i].text.find('=')), '_', '-')))
      continue;
    const size_t equals = launcher[i].text.find('=');
    const ShellWord& word =
        equals != std::string::npos || i + 1 == launcher.size() ? launcher[i] : launcher[i + 1];
    const std::string text = equals != std::string::npos ? word.text.substr(equals + 1) : word.text;
    const bool known = word.unknown.empty() && word.several.empty();
    return known ? std::clamp<int64_t>(number_of<int64_t>(text).value_or(0), 0, kMostRanks) : 0;
  }
  return otherwise;
}

int64_t slurm_nodes(const std::string& text) {
  for (const std::string option : {"#SBATCH --nodes=", "#SBATCH --nodes ", "#SBATCH -N "}) {
    const size_t at = text.find(option);
    if (at == std::string::npos) continue;
    const std::string number = text.substr(at + option.size(), 9);
    return number_of<int64_t>(number.substr(0, number.find_first_not_of("0123456789"))).value_or(0);
  }
  return 0;
}

// The words after the program's name; all words if there is no program.
ShellCommand arguments_of(const ShellCommand& command, std::string& program, int64_t& ranks) {
  const auto found = find_if(command, [](const ShellWord& word) { return word.text.ends_with(".py"); });
  if (found == command.end()) return command;
  program = found->text;
  const ShellCommand launcher(command.begin(), found);
  // srun starts a torchrun on each node, so that torchrun's own number comes first.
  const int64_t each = launched(launcher, {"--nproc-per-node", "--num-gpus"}, -1);
  const int64_t tasks = each >= 0 ? 0 : launched(launcher, {"-np", "-n", "--ntasks"}, 0);
  const int64_t nodes = launched(launcher, {"--nnodes", "--num-nodes", "--nodes", "-N"}, 1);
  ranks = tasks > 0 ? tasks : (each >= 0 ? each : launched(launcher, {"--ntasks-per-node"}, 0)) * nodes;
  return {found + 1, command.end()};
}

bool says_the_model(const ShellCommand& command) {
  static const std::set<std::string> kModel{"num-layers", "hybrid-layer-pattern", "hybrid-override-pattern",
                                            "encoder-num-layers"};
  return any_of(command, [](const ShellWord& word) {
    return is_flag(word.text) && kModel.contains(flag_name(word.text));
  });
}

// In a list each flag has its own line. In a script one command has them all.
ShellCommand training_command(const std::vector<ShellCommand>& commands, std::string& program, int64_t& ranks,
                              std::vector<std::string>& notes, WorkBudget& budget) {
  ShellCommand list, rest;  // the rest is the line that starts what lists have
  std::vector<ShellCommand> starts;
  for (const ShellCommand& command : commands) {
    const ShellCommand words = unfolded(command, budget);
    if (words.empty()) continue;
    if (is_flag(words.front().text))
      list.insert(list.end(), words.begin(), words.end());
    else if (says_the_model(words))
      starts.push_back(words);
    else if (!list.empty() && any_of(words, [](const ShellWord& w) { return w.text.ends_with(".py"); }))
      rest = arguments_of(words, program, ranks);
  }
  std::erase_if(rest, [](const ShellWord& word) { return word.unknown.contains(word.text); });
  list.insert(list.end(), rest.begin(), rest.end());
  if (starts.empty()) return list;
  if (starts.size() > 1)
    notes.push_back(fmt::format("{} commands name a model: the last is read", starts.size()));
  return arguments_of(starts.back(), program, ranks);
}

// A script for sourcing, or a part of a script, starts nothing: its flags are in variables.
ShellCommand arguments_in_variables(const std::map<std::string, ShellCommand>& variables,
                                    WorkBudget& budget) {
  ShellCommand all;
  for (const auto& [name, value] : variables) {
    const ShellCommand words = unfolded(value, budget);
    if (!words.empty() && is_flag(words.front().text)) all.insert(all.end(), words.begin(), words.end());
  }
  return all;
}

// Refuses programs for other models, and programs that do not train: a plan cannot describe them.
void refuse_other_programs(const std::string& program, const std::string& file) {
  const std::filesystem::path path = program;
  const std::string name = path.filename().string();
  constexpr const char* kOthers[][2] = {
#include "generated/OtherPrograms.inc"
  };
  for (const auto& [other, expected] : kOthers)
    if (name.find(other) != std::string::npos || contains(path, std::filesystem::path(other)))
      refuse_input(file, fmt::format("it starts {}", program), expected,
                   "plans are for trainings of decoders alone");
}

// The program of Megatron-LM's functional tests, test_cases/MODEL/NAME/model_config.yaml; empty for other
// files.
std::string program_of_test(const std::filesystem::path& file) {
  const std::filesystem::path model = file.parent_path().parent_path();
  if (model.parent_path().filename() != "test_cases") return "";
  return fmt::format("pretrain_{}.py", model.filename().string());
}

// "[moe layernorm]", but not an expression such as "[0]*3+[1]*58" or "[0,1]".
bool is_list(const std::string& text) {
  return text.starts_with('[') && text.find(']') == text.size() - 1 && text.find(',') == std::string::npos;
}

}  // namespace

MegatronFlags MegatronFlags::of_file(const std::filesystem::path& file) {
  MegatronFlags flags(file.string());
  const std::string text = read_file(file, kMostImportedBytes);
  WorkBudget budget(file.string(), kMostImportedBytes);
  if (file.extension() == ".yaml" || file.extension() == ".yml") {
    flags.take_yaml(text, budget);
    std::error_code error;
    flags.program_ = program_of_test(std::filesystem::absolute(file, error));
    flags.of_test_ = !flags.program_.empty() || text.find("MODEL_ARGS:") != std::string::npos;
  } else {
    const std::vector<ShellCommand> commands = shell_commands(text, file, budget);
    for (const ShellCommand& command : commands)
      if (command.front().text == "source" && !command.front().unknown.empty())
        flags.notes_.push_back(*command.front().unknown.begin());
    ShellCommand arguments = training_command(commands, flags.program_, flags.ranks_, flags.notes_, budget);
    const std::map<std::string, ShellCommand> variables = shell_variables(text, file, budget);
    for (const auto& [name, words] : variables) flags.take_environment(name, words);
    if (arguments.empty()) arguments = arguments_in_variables(variables, budget);
    flags.take(arguments);
    flags.nodes_ = std::min<int64_t>(slurm_nodes(text), kMostRanks);
  }
  refuse_other_programs(flags.program_, flags.file_);
  std::string pattern = flags.source("hybrid-layer-pattern");  // a letter for each layer
  pattern.erase(std::min(pattern.find('/'), pattern.size()));
  std::erase(pattern, '|');
  if (!pattern.empty() && !flags.has("num-layers")) flags.set("num-layers", std::to_string(pattern.size()));
  flags.environment_["env.WORLD_SIZE"] = flags.ranks_ > 0 ? std::optional<Json>(flags.ranks_) : std::nullopt;
  for (const char* flag : {"deepspeed", "deepspeed-config", "zero-stage", "ds-sequence-parallel-size"})
    if (flags.has(flag)) refuse_program("Megatron-DeepSpeed", flags.file_);
  if (flags.values_.count("num-layers") == 0)
    refuse_input(flags.file_, "no --num-layers", "arguments or a configuration of a framework that MPT reads",
                 "name the file that holds them. For what a program sets: python -m mpt.capture -- COMMAND. "
                 "For any other: mpt-plan estimate with --model, --framework, --zero and --micro-batch");
  return flags;
}

bool MegatronFlags::own_program() const {
  const std::string name = std::filesystem::path(program_).filename().string();
  return !of_test_ && (name.empty() || name.starts_with("pretrain_"));
}

void MegatronFlags::set(const std::string& name, const std::vector<ShellWord>& values) {
  values_[name] = values;
}

void MegatronFlags::take(const ShellCommand& command) {
  std::string name;
  for (const ShellWord& word : command)
    if (is_flag(word.text)) {
      name = flag_name(word.text);
      values_[name] = {};
      if (const size_t equals = word.text.find('='); equals != std::string::npos)
        values_[name].push_back({word.text.substr(equals + 1), word.unknown, word.several});
    } else if (!name.empty()) {
      values_[name].push_back(word);
    }
  const std::vector<std::string> notes = notes_of_words(command);
  notes_.insert(notes_.end(), notes.begin(), notes.end());
}

void MegatronFlags::take_environment(const std::string& name, const ShellCommand& words) {
  if (words.size() == 1 && words.front().unknown.empty() && words.front().several.empty())
    environment_["env." + name] = words.front().text;
}

// ENV_VARS and MODEL_ARGS of functional tests, "--num-layers: 12" on a line each. Or ARGS of Megatron-LM's
// recipes, "num_layers: 12".
void MegatronFlags::take_yaml(const std::string& text, WorkBudget& budget) {
  bool arguments = false;  // of recipes
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("MODE: inference"))
      refuse_input(file_ + " at MODE", "inference", "a training", "plans are for trainings");
    if (line.starts_with("MODEL_ARGS_2:")) {
      notes_.emplace_back("MODEL_ARGS_2 and those behind it are other runs: not read");
      break;
    }
    if (is_name_start(line.empty() ? ' ' : line.front())) arguments = line.starts_with("ARGS:");
    line.erase(0, std::min(line.size(), line.find_first_not_of(" \t")));
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    ShellCommand words = argument_words(line.substr(colon + 1), budget);
    if (words.empty() && arguments) continue;
    if (arguments && is_name_start(line.front())) line.insert(0, "--");
    if (!is_flag(line)) {
      take_environment(line.substr(0, colon), words);
      continue;
    }
    if (words.size() == 1 && words.front().text == "true") words.clear();
    if (!words.empty() && is_list(words.front().text))
      words = argument_words(words.front().text.substr(1, words.front().text.size() - 2), budget);
    values_[flag_name(line.substr(0, line.find(':')))] = words;
  }
}

std::string MegatronFlags::at(const std::string& name) const {
  return name.empty() ? file_ : fmt::format("{} at --{}", file_, name);
}

bool MegatronFlags::has(const std::string& name) const {
  const ShellCommand* const words = find_value(values_, name);
  return words != nullptr && (words->empty() || lower_case(words->front().text) != "false");
}

std::vector<std::string> MegatronFlags::texts(const std::string& name) const {
  std::vector<std::string> texts;
  const auto found = values_.find(name);
  if (found == values_.end()) return texts;
  for (const ShellWord& word : found->second) {
    if (!word.unknown.empty()) refuse(name, "a value", remedy());
    texts.push_back(word.text);
  }
  return texts;
}

std::optional<std::string> MegatronFlags::find(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return std::nullopt;
  if (found->second.empty()) return "";
  if (!found->second.front().unknown.empty()) refuse(name, "a value", remedy());
  return found->second.front().text;
}

std::string MegatronFlags::source(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() || found->second.empty() ? "" : found->second.front().text;
}

}  // namespace mpt::frameworks
