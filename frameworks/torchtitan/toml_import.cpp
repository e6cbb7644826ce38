// SPDX-License-Identifier: Apache-2.0

// TOML with the keys of torchtitan/config/job_config.py at v0.2.2, as people still have it.

#include <fmt/format.h>

#include <charconv>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "frameworks/import.h"
#include "frameworks/pytorch/fsdp_import.h"
#include "frameworks/registry.h"
#include "frameworks/supports/supports.h"
#include "frameworks/torchtitan/import.h"
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

// Lists of lists of names, by their layers.
std::vector<int64_t> layers_of_text(const std::string& lists) {
  std::vector<int64_t> layers;
  int64_t depth = 0;
  for (size_t at = 0; at < lists.size(); ++at) {
    if (lists[at] == '[' && ++depth == 2) layers.push_back(0);
    if (lists[at] == ']') --depth;
    if (depth == 2 && lists.compare(at, 7, "layers.") == 0) ++layers.back();
  }
  return layers;
}

void set_toml_recompute(const TomlReader& t, Layout& l) {
  const std::string mode = t.text("activation_checkpoint.mode", "selective");
  const std::string option = t.text("activation_checkpoint.selective_ac_option", "2");
  l.recompute = mode == "none" ? Recompute::none : mode == "full" ? Recompute::full : Recompute::selective;
  int64_t every = 0;
  const auto [end, error] = std::from_chars(option.data(), option.data() + option.size(), every);
  if (mode != "selective" || error != std::errc() || end != option.data() + option.size() || every < 1)
    return;
  // Every n-th layer as a whole.
  l.recompute = Recompute::full;
  for (const int64_t layers : l.layers_per_stage) l.recomputed_layers.push_back(layers / every);
  if (every == 1) l.recomputed_layers.clear();
}

TitanPipeline pipeline_of_toml(const TomlReader& t) {
  TitanPipeline pipeline;
  pipeline.schedule = t.text("parallelism.pipeline_parallel_schedule", "1F1B");
  pipeline.has_csv = !t.text("parallelism.pipeline_parallel_schedule_csv", "").empty();
  pipeline.layers = layers_of_text(t.text("parallelism.module_fqns_per_model_part", ""));
  const FieldRule& layers = rule_of(&LayerRun::repeat);
  pipeline.layers_per_stage = t.number("parallelism.pipeline_parallel_layers_per_stage", layers, 0);
  pipeline.less_first =
      t.number("parallelism.pipeline_parallel_first_stage_less_layers", between(0, 100000), 1);
  pipeline.less_last =
      t.number("parallelism.pipeline_parallel_last_stage_less_layers", between(0, 100000), 1);
  return pipeline;
}

void set_toml_ranks(const TomlReader& t, Imported& in) {
  Layout& l = in.layout;
  l.tensor = t.number("parallelism.tensor_parallel_degree", rule_of(&Layout::tensor), 1);
  l.sequence_parallel = l.tensor > 1;
  l.context = t.number("parallelism.context_parallel_degree", rule_of(&Layout::context), 1);
  l.pipeline = t.number("parallelism.pipeline_parallel_degree", rule_of(&Layout::pipeline), 1);
  l.expert = t.number("parallelism.expert_parallel_degree", rule_of(&Layout::expert), 1);
  const int64_t expert_tensor =
      t.number("parallelism.expert_tensor_parallel_degree", rule_of(&Layout::tensor), 1);
  l.expert_tensor = expert_tensor == l.tensor ? 0 : expert_tensor;
  const std::string reshard = t.text("parallelism.fsdp_reshard_after_forward", "default");
  const int64_t shard = t.number_or_open("parallelism.data_parallel_shard_degree", rule_of(&Layout::shard));
  // Its default keeps weights whole between the micro-batches of a pipeline.
  const bool keeps = reshard == "never" || (reshard == "default" && l.pipeline > 1);
  set_fsdp(in,
           {t.number("parallelism.data_parallel_replicate_degree", rule_of(&Layout::data), 1), shard, !keeps},
           t.at("parallelism.data_parallel_shard_degree"));
  l.overlap_tensor = t.flag("parallelism.enable_async_tensor_parallel");
  if (t.flag("debug.deterministic")) in.notes.emplace_back(kDeterminismIsFree);
}

}  // namespace

Imported import_torchtitan_toml(const std::filesystem::path& file) {
  const TomlReader t(file);
  Imported in;
  in.model = titan_model_named(t.text("model.name", "llama3"), t.text("model.flavor", ""), in);
  check_titan_heads(t.text("model.name", "llama3"), t.text("model.flavor", ""),
                    t.number("parallelism.tensor_parallel_degree", rule_of(&Layout::tensor), 1),
                    t.at("parallelism.tensor_parallel_degree"));
  set_toml_ranks(t, in);
  Layout& l = in.layout;
  l.precision =
      t.text("training.mixed_precision_param", "bfloat16") == "float32" ? Precision::fp32 : Precision::bf16;
  const std::string converters = t.text("model.converters", "");
  if (converters.find("float8") != std::string::npos) l.precision = Precision::fp8;
  if (converters.find("quantize.linear.mx") != std::string::npos) l.precision = Precision::mxfp8;
  set_titan_pipeline(in, pipeline_of_toml(t), t.at("parallelism.pipeline_parallel_degree"));
  set_toml_recompute(t, l);
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
