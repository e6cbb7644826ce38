// SPDX-License-Identifier: Apache-2.0

// Keys of torchtitan/config/job_config.py at v0.2.2, read back from TOML.

#include <fmt/format.h>

#include <charconv>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "frameworks/import.h"
#include "frameworks/registry.h"
#include "frameworks/torchtitan/models.h"
#include "models/zoo.h"

namespace mpt::frameworks {
namespace {

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// Sections of single values, the part of TOML that torchtitan's files use; lists are kept as their text.
class TomlReader {
 public:
  explicit TomlReader(const std::filesystem::path& file) : file_(file.string()) {
    const std::string text = read_file(file, kMostImportedBytes);
    std::string section, open_key, line;
    int64_t number = 0, depth = 0;
    for (size_t at = 0; at <= text.size(); ++at) {
      if (at < text.size() && text[at] != '\n') {
        line += text[at];
        continue;
      }
      ++number;
      read_line(trimmed(without_comment(line)), number, section, open_key, depth);
      line.clear();
    }
    if (section.empty()) {
      throw UserError(Problem{file_, "no [section]", "a torchtitan configuration in TOML", ""});
    }
  }

  bool has(const std::string& key) const { return values_.count(key) > 0; }
  std::string text(const std::string& key, const std::string& otherwise) const {
    const auto found = values_.find(key);
    if (found == values_.end()) return otherwise;
    const std::string& value = found->second;
    return value.size() >= 2 && (value.front() == '"' || value.front() == '\'')
               ? value.substr(1, value.size() - 2)
               : value;
  }
  /// A whole number within the range.
  int64_t number(const std::string& key, const FieldRule& rule, int64_t otherwise) const {
    if (!has(key)) return otherwise;
    std::string value = values_.at(key);
    std::erase(value, '_');
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size())
      throw UserError(
          Problem{at(key), fmt::format("\"{}\"", cut_text(values_.at(key), 40)), "a whole number", ""});
    if (double(number) >= rule.minimum && double(number) <= rule.maximum) return number;
    throw UserError(Problem{at(key), std::to_string(number),
                            fmt::format("a number from {} to {}", rule.minimum, rule.maximum), ""});
  }
  /// The same for keys where -1 means "unset", which is 0 here.
  int64_t number_or_open(const std::string& key, const FieldRule& rule) const {
    return text(key, "-1") == "-1" ? 0 : number(key, rule, 0);
  }
  std::string at(const std::string& key) const { return fmt::format("{} at {}", file_, key); }
  bool flag(const std::string& key) const { return text(key, "false") == "true"; }

 private:
  static std::string without_comment(const std::string& line) {
    bool quoted = false;
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '"') quoted = !quoted;
      if (line[i] == '#' && !quoted) return line.substr(0, i);
    }
    return line;
  }

  void read_line(const std::string& line, int64_t number, std::string& section, std::string& open_key,
                 int64_t& depth) {
    if (line.empty()) return;
    if (depth > 0) {
      values_[open_key] += line;
    } else if (line.front() == '[' && line.back() == ']') {
      section = line.substr(1, line.size() - 2);
      return;
    } else {
      const size_t equals = line.find('=');
      if (equals == std::string::npos || section.empty()) {
        throw UserError(Problem{fmt::format("{} at line {}", file_, number), std::string(cut_text(line, 60)),
                                "key = value below a [section]", ""});
      }
      open_key = section + "." + trimmed(line.substr(0, equals));
      values_[open_key] = trimmed(line.substr(equals + 1));
    }
    const std::string& part = depth > 0 ? line : values_[open_key];
    for (const char c : part) depth += c == '[' ? 1 : c == ']' ? -1 : 0;
  }

  std::string file_;
  std::map<std::string, std::string> values_;
};

void set_schedule(const TomlReader& t, Imported& in) {
  static const std::map<std::string, std::string> names{{"1F1B", "1f1b"},
                                                        {"GPipe", "gpipe"},
                                                        {"Interleaved1F1B", "interleaved"},
                                                        {"ZBVZeroBubble", "zb-v"},
                                                        {"DualPipeV", "dualpipe-v"}};
  Layout& l = in.layout;
  const std::string name = t.text("parallelism.pipeline_parallel_schedule", "1F1B");
  const auto found = names.find(name);
  l.schedule = found == names.end() ? "interleaved" : found->second;
  if (found == names.end() && l.pipeline > 1)
    in.notes.push_back(fmt::format("schedule {} is taken as interleaved 1F1B", name.substr(0, 40)));
  if (l.schedule != "1f1b" && l.schedule != "gpipe") l.chunks = 2;
  const int64_t per_stage =
      t.number("parallelism.pipeline_parallel_layers_per_stage", rule_of(&ModelSpec::layers), 0);
  if (per_stage > 0 && in.model && l.schedule == "interleaved")
    l.chunks = std::max<int64_t>(1, in.model->layers / per_stage / l.pipeline);
  if (l.pipeline == 1) {
    l.schedule = "1f1b";
    l.chunks = 1;
  }
}

}  // namespace

Imported import_torchtitan(const std::filesystem::path& file) {
  const TomlReader t(file);
  Imported in;
  const std::string name = t.text("model.name", "llama3"), flavor = t.text("model.flavor", "");
  for (const TitanModel& model : kTitanModels) {
    if (name == model.name && flavor == model.flavor) in.model = models::load_model(model.zoo);
  }
  if (!in.model) in.notes.push_back(fmt::format("model {} {} is not in the zoo: give --model", name, flavor));
  Layout& l = in.layout;
  l.tensor = t.number("parallelism.tensor_parallel_degree", rule_of(&Layout::tensor), 1);
  l.sequence_parallel = l.tensor > 1;
  l.context = t.number("parallelism.context_parallel_degree", rule_of(&Layout::context), 1);
  l.pipeline = t.number("parallelism.pipeline_parallel_degree", rule_of(&Layout::pipeline), 1);
  l.expert = t.number("parallelism.expert_parallel_degree", rule_of(&Layout::expert), 1);
  const int64_t expert_tensor =
      t.number("parallelism.expert_tensor_parallel_degree", rule_of(&Layout::tensor), 1);
  l.expert_tensor = expert_tensor == l.tensor ? 0 : expert_tensor;
  const int64_t replicate = t.number("parallelism.data_parallel_replicate_degree", rule_of(&Layout::data), 1);
  const int64_t shard = t.number_or_open("parallelism.data_parallel_shard_degree", rule_of(&Layout::shard));
  l.data = shard > 0 ? replicate * shard : 0;
  if (l.data > kMostRanks)
    throw UserError(Problem{t.at("parallelism.data_parallel_shard_degree"),
                            fmt::format("{} x {} replicas", shard, replicate),
                            fmt::format("at most {} data-parallel ranks", kMostRanks), ""});
  const std::string reshard = t.text("parallelism.fsdp_reshard_after_forward", "default");
  // Its default keeps weights whole between the micro-batches of a pipeline.
  if (shard != 1) l.zero = reshard == "never" || (reshard == "default" && l.pipeline > 1) ? 2 : 3;
  if (shard > 0) in.shard_groups = replicate;
  l.overlap_gradient_reduce = l.overlap_parameter_gather = true;
  l.overlap_tensor = t.flag("parallelism.enable_async_tensor_parallel");
  l.precision =
      t.text("training.mixed_precision_param", "bfloat16") == "float32" ? Precision::fp32 : Precision::bf16;
  const std::string converters = t.text("model.converters", "");
  if (converters.find("float8") != std::string::npos) l.precision = Precision::fp8;
  if (converters.find("quantize.linear.mx") != std::string::npos) l.precision = Precision::mxfp8;
  const std::string recompute = t.text("activation_checkpoint.mode", "selective");
  l.recompute = recompute == "full"   ? Recompute::full
                : recompute == "none" ? Recompute::none
                                      : Recompute::selective;
  set_schedule(t, in);
  if (in.model) {
    check_stages(l, *in.model, t.at("parallelism.pipeline_parallel_degree"));
    l.layers_per_stage = even_stages(in.model->layers, l.stages());
  }
  if (t.has("parallelism.module_fqns_per_model_part"))
    in.notes.emplace_back("module_fqns_per_model_part: stages taken as even");
  const int64_t local = t.number("training.local_batch_size", rule_of(&Layout::micro_batch), 8);
  l.micro_batch = l.pipeline > 1 ? t.number("parallelism.pipeline_parallel_microbatch_size",
                                            rule_of(&Layout::micro_batch), 1)
                                 : local;
  in.workload.sequence = t.number("training.seq_len", rule_of(&Workload::sequence), 2048);
  // Without a global batch each rank takes its local one once.
  in.workload.global_batch = t.number_or_open("training.global_batch_size", rule_of(&Workload::global_batch));
  if (in.workload.global_batch == 0 && l.data > 0) in.workload.global_batch = local * l.data;
  check_imported(in, file.string());
  return in;
}

}  // namespace mpt::frameworks
