// SPDX-License-Identifier: Apache-2.0

// mpt-plan cluster, mpt-plan model: an input as it was understood, the known ones, and files to edit.

#include <CLI/CLI.hpp>
#include <memory>

#include "base/command_line.h"
#include "base/error.h"
#include "base/json.h"
#include "base/quantity.h"
#include "models/hf_config.h"
#include "models/parameter_count.h"
#include "models/zoo.h"
#include "planner/commands/commands.h"
#include "planner/commands/describe_model.h"
#include "profiler/hardware/catalog.h"
#include "profiler/hardware/cluster_file.h"
#include "profiler/hardware/kernel_tables.h"
#include "profiler/hardware/nodes.h"
#include "reports/table.h"

namespace mpt::planner {
namespace {

struct InputOptions {
  std::string name, output;
  std::string as;
  std::vector<std::string> sequences;
  int64_t stages = 1;
  int64_t gpus = 0;
  bool json = false, config_json = false;
};

std::string prices_of(const DeviceSpec& device) {
  if (device.kind == DeviceKind::cpu) return "times of this machine (--profile), or a roofline without them";
  const profiler::KernelTables* tables = profiler::kernel_tables(device);
  if (tables == nullptr)
    return "a roofline of the peak rates, for want of measured kernels; docs/clusters.md";
  constexpr double kSide = 8192.0;
  std::string text = fmt::format("measured kernels of {}", tables->device);
  if (device.kernel_rate != 1.0) text += fmt::format(", at {:.2f} times their speed", device.kernel_rate);
  if (const auto seconds = tables->gemm_s(false, kSide, kSide, kSide)) {
    const double rate = 2.0 * kSide * kSide * kSide / *seconds * device.kernel_rate;
    text += fmt::format("; a large bf16 product reaches {}, {} of the peak", format_flop_rate(rate),
                        format_percent(rate / device.bf16_flop_per_s));
  }
  return text;
}

std::string peaks_of(const DeviceSpec& device) {
  const std::pair<const char*, double> rates[] = {
      {"fp32", device.fp32_flop_per_s},
      {"bf16", device.bf16_flop_per_s},
      {device.mxfp8 ? "fp8 and mxfp8" : "fp8", device.fp8_flop_per_s},
      {"nvfp4", device.fp4_flop_per_s}};
  std::string text;
  for (const auto& [precision, rate] : rates)
    if (rate > 0.0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", precision, format_flop_rate(rate));
  return text + ", dense";
}

std::string device_lines(const DeviceSpec& device) {
  std::string text =
      line_of(device.kind == DeviceKind::gpu ? "GPU" : "CPU rank",
              fmt::format("{}, {} of memory at {}", device.name, format_bytes(double(device.memory_bytes)),
                          format_bandwidth(device.memory_bandwidth_bytes_per_s)));
  text += line_of("peak", peaks_of(device)) + line_of("prices", prices_of(device));
  if (device.host_bandwidth_bytes_per_s > 0.0)
    text += line_of("CPU memory", fmt::format("{} each way, for offload",
                                              format_bandwidth(device.host_bandwidth_bytes_per_s)));
  if (device.power_w > 0.0) text += line_of("power", fmt::format("{:.0f} W", device.power_w));
  return text;
}

// "45 GB/s (360 of about 400 Gbit/s)": the rate of messages, and the rate of the line if it is known.
std::string rate_of(const LinkLevel& level, bool network) {
  const double bits = level.bandwidth_bytes_per_s * 8e-9;
  const double share = profiler::achieved_share(level.name);
  const std::string line = network ? fmt::format("{:.4g} of about {:.3g} Gbit/s", bits, bits / share)
                                   : fmt::format("{:.4g} Gbit/s", bits);
  return fmt::format("{} ({})", format_bandwidth(level.bandwidth_bytes_per_s), line);
}

// `inside`: GPUs of a block that share this level's ports.
std::string link_line(const LinkLevel& level, int64_t inside, bool innermost) {
  std::string text = rate_of(level, !innermost);
  if (level.rails > 0 && level.rails < inside)
    text += fmt::format(" per port and direction, {} {} for the {} GPUs of a block", level.rails,
                        level.rails == 1 ? "port" : "ports", inside);
  else
    text += " per GPU and direction";
  if (level.mesh > 0) text += fmt::format(", the sum of links to {} others", level.mesh - 1);
  if (level.oversubscription > 1.0) text += fmt::format(", oversubscribed {:g}:1", level.oversubscription);
  text += fmt::format("; {} a step; {} {} GPUs", format_seconds(level.latency_s),
                      innermost ? "blocks of" : "joins all", level.group_size);
  return line_of(level.name.substr(0, 40), text);
}

std::string joining_line(const LinkLevel& link) {
  return line_of(
      link.name.substr(0, 40),
      fmt::format("{}{}; {} a step", rate_of(link, false),
                  link.rails > 0 ? " each way, one link between each two groups" : " per GPU and direction",
                  format_seconds(link.latency_s)));
}

std::string level_lines(const std::vector<LinkLevel>& levels) {
  std::string text;
  for (size_t l = 0; l < levels.size(); ++l)
    text += link_line(levels[l], l == 0 ? 1 : levels[l - 1].group_size, l == 0);
  return text;
}

std::string size_of(int64_t devices, int64_t per_node, DeviceKind kind) {
  const char* what = kind == DeviceKind::gpu ? "GPU" : "CPU rank";
  const int64_t nodes = (devices + per_node - 1) / per_node;
  return fmt::format("{} {}{} in {} {}", format_count(devices), what, devices == 1 ? "" : "s",
                     format_count(nodes), nodes == 1 ? "node" : fmt::format("nodes of {}", per_node));
}

std::string describe_cluster(const ClusterSpec& c, const std::string& name) {
  std::string text = fmt::format("{}: {}\n", c.name, size_of(c.devices, c.devices_per_node, c.device.kind));
  for (const DeviceGroup& g : c.groups)
    text += fmt::format("\n{}: {}\n", g.name, size_of(g.devices, g.devices_per_node, g.device.kind)) +
            device_lines(g.device) + level_lines(g.levels);
  if (c.mixed()) return text + "\nBetween the groups\n" + joining_line(c.levels.back());
  text += device_lines(c.device) + level_lines(c.levels);
  text +=
      "Bandwidths are what messages get; cards and links are sold with higher figures (docs/clusters.md).\n";
  const profiler::NodeEntry* node = profiler::find_node(name.substr(0, name.find(':')));
  if (node == nullptr) return text;
  text += "Sources\n";
  for (const std::string& source : node->sources) text += "  " + source + "\n";
  return text;
}

std::string cluster_list() {
  reports::Table table(reports::columns({"<name", "GPUs a node", "<GPU", "memory", "bf16 peak", "in the node",
                                         "between nodes", "<kernels of"}));
  for (const profiler::NodeEntry& node : profiler::catalog_nodes()) {
    const profiler::KernelTables* tables = profiler::kernel_tables(node.device);
    table.add_row({node.name, std::to_string(node.devices_per_node), node.device.name,
                   format_bytes(double(node.device.memory_bytes)),
                   format_flop_rate(node.device.bf16_flop_per_s),
                   format_bandwidth(node.levels.front().bandwidth_bytes_per_s),
                   format_bandwidth(node.levels.back().bandwidth_bytes_per_s),
                   tables == nullptr ? "-" : tables->device});
  }
  return table.text() +
         "Bandwidths are per GPU and direction, as messages get them. Also this-machine:N, N CPU ranks "
         "here.\n";
}

std::string model_list() {
  reports::Table table(reports::columns({"<name", "parameters", "<Hugging Face"}));
  for (const models::ZooModel& model : models::zoo_models()) {
    const auto count = models::count_parameters(models::load_model(model.name));
    table.add_row({model.name, format_magnitude(double(count.total)),
                   model.aliases.empty() ? "-" : model.aliases.front()});
  }
  return table.text() + "Any other model: the path of its config.json.\n";
}

// The lengths that the user gave, or the usual ones up to the model's number of positions.
std::vector<int64_t> lengths_of(const std::vector<std::string>& words, const ModelSpec& model) {
  std::vector<int64_t> lengths;
  for (const std::string& word : words) {
    const int64_t length = parse_sequence(word, "--seq");
    if (length < 1 || length > model.max_positions)
      refuse_input("--seq", word.substr(0, 40),
                   fmt::format("1 to the {} positions of {}", model.max_positions, model.name));
    lengths.push_back(length);
  }
  for (const int64_t usual : {int64_t{4096}, int64_t{32768}, int64_t{131072}})
    if (words.empty() && (lengths.empty() || usual <= model.max_positions))
      lengths.push_back(std::min(usual, model.max_positions));
  return lengths;
}

void write_and_print(const InputOptions& o, const std::string& file, const std::string& text) {
  if (!o.output.empty()) write_file_atomically(o.output, file);
  fmt::print("{}", text);
  if (!o.output.empty() && !o.json) fmt::print("wrote {}\n", o.output);
}

void declare_input(CLI::App& command, InputOptions& o, const char* what){
#include "generated/InputFileOptions.inc"
}

std::string config_json_of(const ModelSpec& model) {
  const std::string type = models::written_type(model);
  if (!type.empty()) return models::write_hugging_face(model, type).dump(2) + "\n";
  refuse_input(
      "--config-json", fmt::format("a model with {}", models::words_of(models::unwritten_value(model))),
      "a model that a type of Hugging Face has", "leave --config-json out to write it in MPT's own format");
}

}  // namespace

std::function<int()> add_cluster(CLI::App& app) {
  CLI::App* command = app.add_subcommand("cluster", "Show what is known or understood of a cluster");
  auto o = std::make_shared<InputOptions>();
  declare_input(*command, *o, "What --cluster takes, or list");
#include "generated/ClusterOptions.inc"
  return done_by([o] {
    if (o->name == "list") return fmt::print("{}", cluster_list());
    const ClusterSpec cluster = profiler::load_cluster(o->name, {}, o->gpus);
    const std::string json = to_json(cluster).dump(1) + "\n";
    write_and_print(*o, json, o->json ? json : describe_cluster(cluster, o->name));
  });
}

std::function<int()> add_model(CLI::App& app) {
  CLI::App* command = app.add_subcommand("model", "Show what is known or understood of a model");
  auto o = std::make_shared<InputOptions>();
  declare_input(*command, *o, "What --model takes, or list");
#include "generated/ModelOptions.inc"
  return done_by([o] {
    if (o->name == "list") return fmt::print("{}", model_list());
    const models::ImportedModel read = models::load_imported_model(o->name, o->as);
    const std::vector<int64_t> sequences = lengths_of(o->sequences, read.model);
    if (o->stages > read.model.layers.count())
      refuse_input("--pp", std::to_string(o->stages),
                   fmt::format("at most the {} layers of the model", read.model.layers.count()));
    write_and_print(*o, o->config_json ? config_json_of(read.model) : model_spec_to_text(read.model),
                    o->json ? model_counts(read, sequences, o->stages).dump(1) + "\n"
                            : describe_model(read, sequences, o->stages));
  });
}

}  // namespace mpt::planner
