// SPDX-License-Identifier: Apache-2.0
#include "planner/command_line.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/quantity.h"
#include "core/recompute_modules.h"
#include "core/schedule_catalog.h"
#include "models/framework.h"
#include "models/zoo.h"
#include "planner/framework_bounds.h"
#include "planner/memory/memory_model.h"
#include "profiler/hardware/catalog.h"
#include "profiler/hardware/machine.h"

namespace mpt::planner {
namespace {

constexpr int64_t kDefaultSequence = 4096;

std::vector<int64_t> degrees(const std::vector<std::string>& words, const char* option) {
  std::vector<int64_t> values;
  for (const std::string& word : words) {
    int64_t value = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc{} || stop != word.data() + word.size() || value < 1 || value > 10'000'000) {
      throw UserError(
          Problem{option, "\"" + word.substr(0, 40) + "\"", "whole numbers from 1, separated by commas", ""});
    }
    values.push_back(value);
  }
  return values;
}

template <class E>
std::vector<E> names(const std::vector<std::string>& words, const char* option) {
  std::vector<E> values;
  for (const std::string& word : words) {
    const auto value = enum_value<E>(word);
    if (!value) {
      std::string known;
      for (const std::string& name : enum_names<E>()) known += (known.empty() ? "" : ", ") + name;
      throw UserError(Problem{
          option, fmt::format("unknown \"{}\"{}", word.substr(0, 40), did_you_mean(word, enum_names<E>())),
          "one of " + known, ""});
    }
    values.push_back(*value);
  }
  return values;
}

std::vector<bool> switches(const std::vector<std::string>& words, const char* option) {
  std::vector<bool> values;
  for (const std::string& word : words) {
    if (word != "on" && word != "off")
      throw UserError(Problem{option, "\"" + word.substr(0, 40) + "\"", "on, off or both", ""});
    values.push_back(word == "on");
  }
  return values;
}

constexpr std::pair<const char*, bool Overlaps::*> kOverlapNames[] = {
    {"gradient-reduce", &Overlaps::gradient_reduce},
    {"parameter-gather", &Overlaps::parameter_gather},
    {"tensor", &Overlaps::tensor},
    {"transfer", &Overlaps::transfer},
    {"exchange", &Overlaps::exchange}};
std::string overlap_names() {
  std::vector<std::string> names;
  for (const auto& [name, value] : kOverlapNames) names.emplace_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// What runs beside compute unless named: all but tensor-parallel collectives and the exchange with experts,
// which frameworks overlap where they are told to.
// Within one node this project's runtime overlaps transfers alone: there its ranks share cores, or links that
// leave little to hide.
Overlaps overlaps_of(const PlanOptions& o, const ClusterSpec& cluster, bool own_runtime) {
  const bool one_node = cluster.devices <= cluster.devices_per_node;
  if (o.overlaps.empty()) return own_runtime && one_node ? Overlaps{} : Overlaps{true, true, false, true};
  Overlaps overlaps{false, false, false, false};
  for (const std::string& word : o.overlaps) {
    bool known = word == "none" && o.overlaps.size() == 1;
    for (const auto& [name, value] : kOverlapNames) {
      if (word != name) continue;
      overlaps.*value = known = true;
    }
    if (!known)
      throw UserError(
          Problem{"--overlap", "\"" + word.substr(0, 40) + "\"", "none, or some of " + overlap_names(), ""});
  }
  return overlaps;
}

void check_precision(Precision precision, const ClusterSpec& cluster) {
  const auto refuse = [precision](const std::string& expected, const char* remedy) {
    throw UserError(Problem{"--precision", enum_name(precision), expected, remedy});
  };
  if (!is_narrow(precision)) return;
  if (cluster.device.kind == DeviceKind::cpu) refuse("fp32, bf16 or fp16 on CPU ranks", "");
  if (cluster.device.fp8_flop_per_s <= 0)
    refuse("a precision that " + cluster.device.name + " has", "use bf16");
  if (precision == Precision::mxfp8 && !cluster.device.mxfp8)
    refuse("a precision that " + cluster.device.name + " has", "use fp8, or set the device's \"mxfp8\"");
  if (precision == Precision::nvfp4 && cluster.device.fp4_flop_per_s <= 0)
    refuse("a precision that " + cluster.device.name + " has",
           "use another, or set the device's \"fp4_flop_per_s\"");
}

void check_profile(const PreparedSearch& p, const std::string& file) {
  const profiler::MachineDescription& machine = p.profile->machine;
  const ClusterSpec& cluster = p.problem.cluster;
  const bool cpu = cluster.device.kind == DeviceKind::cpu;
  if (cluster.mixed() || cluster.device.kind != machine.kind ||
      (!cpu && !profiler::means_device(machine.device, cluster.device.name))) {
    throw UserError(Problem{"--profile " + file, "times of " + machine.device.substr(0, 80),
                            fmt::format("times of {}, the device of {}", cluster.device.name, cluster.name),
                            "plan for this-machine:N, measure that device, or leave --profile out"});
  }
  if (!is_for_this_runtime(cluster, p.problem.execution)) {
    throw UserError(Problem{"--profile " + file, "--framework " + p.problem.execution.framework,
                            "--framework mpt, whose layers mpt-profile times",
                            "other frameworks take kernel times: mpt-profile import, then --kernels"});
  }
  const profiler::MachineDescription here = profiler::describe_machine();
  if (cpu && (machine.device != here.device || machine.cores != here.cores)) {
    fmt::print(stderr, "mpt-plan: note: {} was measured on {} with {} cores, this machine is {} with {}\n",
               file, machine.device, machine.cores, here.device, here.cores);
  }
  if (profiler::profile_matches(*p.profile, p.problem.model, p.problem.workload.sequence,
                                p.problem.precision))
    return;
  fmt::print(stderr,
             "mpt-plan: note: {} timed {} at sequence {}; {} at {} is priced by its operators' rates, less "
             "exactly\n",
             file, p.profile->model.name, p.profile->sequence, p.problem.model.name,
             p.problem.workload.sequence);
}

// What one rank may use. A device's own memory less what the driver and its libraries hold bounds it, too: a
// plan for more could not run.
int64_t memory_limit(const PlanOptions& o, const ClusterSpec& cluster, const Execution& execution) {
  int64_t device = rank_limit_bytes(cluster.device, execution, 0);
  for (const DeviceGroup& group : cluster.groups)
    device = std::max(device, rank_limit_bytes(group.device, execution, 0));
  if (o.memory.empty()) return device;
  const int64_t asked = parse_bytes(o.memory, "--memory");
  if (asked < 1) throw UserError(Problem{"--memory", "\"" + o.memory + "\"", "more than nothing", ""});
  if (asked > device) {
    fmt::print(stderr,
               "mpt-plan: note: --memory {} is more than the {} that a rank of {} has; planning for {}\n",
               o.memory, format_bytes(double(device)), cluster.name, format_bytes(double(device)));
  }
  return std::min(asked, device);
}

}  // namespace

int default_threads() {
  constexpr int64_t kMost = 8;
  return int(std::min(kMost, profiler::describe_machine().cores));
}

SpaceBounds bounds_of(const SpaceOptions& o) {
  SpaceBounds bounds;
  bounds.tensor = degrees(o.tensor, "--tp");
  bounds.context = degrees(o.context, "--cp");
  bounds.expert = degrees(o.expert, "--ep");
  bounds.expert_tensor = degrees(o.expert_tensor, "--etp");
  for (const std::string& word : o.zero) {
    if (word.size() != 1 || word[0] < '0' || word[0] > '3')
      throw UserError(Problem{"--zero", "\"" + word.substr(0, 40) + "\"", "0, 1, 2 or 3", ""});
    bounds.zero.push_back(word[0] - '0');
  }
  bounds.context_methods = names<ContextMethod>(o.context_methods, "--cp-method");
  bounds.orders = names<RankOrder>(o.orders, "--order");
  bounds.sequence_parallel = switches(o.sequence_parallel, "--sp");
  bounds.offload = switches(o.offload, "--offload");
  bounds.pipeline = degrees(o.pipeline, "--pp");
  bounds.data = degrees(o.data, "--dp");
  bounds.chunks = degrees(o.chunks, "--chunks");
  bounds.micro_batch = degrees(o.micro_batch, "--micro-batch");
  for (const std::string& name : o.schedules)
    bounds.schedules.push_back(find_schedule(name, "--schedule").name);
  bounds.recomputes = names<Recompute>(o.recomputes, "--recompute");
  return bounds;
}

namespace {

std::vector<std::string> recompute_module_names() {
  std::vector<std::string> names;
  for (const RecomputeModule& module : recompute_modules()) names.emplace_back(module.name);
  return names;
}

}  // namespace

void declare_problem(CLI::App& app, PlanOptions& o) {
  app.add_option("--model", o.model,
                 "A name such as llama3-70b, or the path of a model file or Hugging Face config.json");
  app.add_option("--cluster", o.cluster,
                 "dgx-h100:8 (nodes), this-machine:4 (CPU ranks), the path of a cluster file, or several "
                 "joined by a link: dgx-a100:8+dgx-h100:4@12.5GB/s@5ms");
  app.add_option("--profile", o.profile, "profile.json of this machine, written by mpt-profile");
  app.add_option(
      "--kernels", o.kernels,
      "Kernel times of the cluster's GPU that override the catalog's, written by mpt-profile import");
  app.add_option("--global-batch", o.global_batch, "Sequences per optimizer step")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 28));
  app.add_option("--seq", o.sequence, "Tokens per sequence (default: the model's longest, at most 4096)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 28));
  app.add_option("--memory", o.memory, "Memory of one rank, such as 2GiB (default: what the device has)");
  app.add_option("--ranks", o.ranks, "Devices to use (default: all of the cluster)")
      ->check(CLI::Range(int64_t{1}, int64_t{10'000'000}));
  app.add_option("--threads", o.threads, "Threads of the search (default: one per core, at most 8)")
      ->check(CLI::Range(1, 256));
  app.add_option(
      "--framework", o.framework,
      fmt::format("Framework that is to run the plan, whose kernels and memory count: {} (default: "
                  "megatron-core on GPUs, mpt on CPUs)",
                  fmt::join(models::framework_names(), ", ")));
  app.add_flag("--beyond-framework", o.beyond_framework,
               "Consider layouts that the framework cannot run, too");
  app.add_option(
         "--expert-load", o.expert_load,
         "Copies of tokens that the fullest rank of spread experts gets, over an even share: its memory "
         "and time count (default: 1, mpt-run measures it)")
      ->check(CLI::Range(1.0, 1e4));
  app.add_option("--dispatch", o.dispatch,
                 "How tokens go to several experts of one rank or node: each copy, or once, as DeepEP and "
                 "HybridEP send them (default: each)")
      ->check(CLI::IsMember({"each", "once"}));
  app.add_option("--execution", o.execution,
                 "What that framework does otherwise than is known of it, by the names in a plan's execution "
                 "(docs/file_formats.md), such as fp8_attention=true,graphs=true")
      ->delimiter(',');
  app.add_option("--recompute-modules", o.recompute_modules,
                 "What selective recompute runs again, by Megatron Core's names (default: core_attn)")
      ->delimiter(',')
      ->check(CLI::IsMember(recompute_module_names()));
  app.add_option("--precision", o.precision,
                 "fp32, bf16, fp16, fp8, mxfp8 or nvfp4 (default: bf16 on GPUs, fp32 on CPUs)");
  app.add_option(
         "--overlap", o.overlaps,
         "What runs beside compute: none, or some of " + overlap_names() +
             " of tokens with experts (default: all but tensor and exchange; transfer on one node with "
             "--framework mpt)")
      ->delimiter(',');
}

void declare_space(CLI::App& app, SpaceOptions& o, bool several) {
  const std::string schedules = fmt::format("Pipeline schedule: {}", fmt::join(schedule_names(), ", "));
  const struct {
    const char* name;
    std::vector<std::string>* words;
    const char* what;
  } table[] = {
      {"--tp", &o.tensor, "Tensor-parallel degree"},
      {"--sp", &o.sequence_parallel, "Sequence parallel beside it, on or off"},
      {"--cp", &o.context, "Context-parallel degree"},
      {"--cp-method", &o.context_methods, "How context ranks attend, ring or all_to_all"},
      {"--pp", &o.pipeline, "Pipeline ranks"},
      {"--chunks", &o.chunks, "Virtual stages per pipeline rank"},
      {"--schedule", &o.schedules, schedules.c_str()},
      {"--dp", &o.data, "Data-parallel degree"},
      {"--zero", &o.zero, "ZeRO stage, 0 to 3"},
      {"--offload", &o.offload, "Optimizer state in the host's memory, on or off"},
      {"--order", &o.orders, "Outermost axis, pipeline_outermost or data_outermost"},
      {"--ep", &o.expert, "Expert-parallel degree"},
      {"--etp", &o.expert_tensor, "Ways to split each expert"},
      {"--micro-batch", &o.micro_batch, "Sequences per micro-batch"},
      {"--recompute", &o.recomputes, "none, selective or full"},
  };
  for (const auto& [name, words, what] : table) {
    CLI::Option* option = app.add_option(name, *words, what);
    if (several) {
      option->delimiter(',');
    } else {
      option->expected(1);
    }
    option->group(several ? "Layouts to consider, several values separated by commas (default: all)"
                          : "Layout");
  }
}

void declare_outputs(CLI::App& app, OutputOptions& o) {
  app.add_option("-o,--output", o.output, "Write the plan to this file");
  app.add_option("--report", o.report, "Write an HTML report to this file");
  app.add_option("--trace", o.trace, "Write the simulated step as a trace for Perfetto to this file");
  app.add_flag("--json", o.json, "Print the plan as JSON instead of tables");
}

void declare_cost(CLI::App& app, CostOptions& o) {
  app.add_option("--tokens", o.tokens,
                 "Tokens of a whole training, such as 15T: prints days and device-hours")
      ->check([](const std::string& text) {
        parse_count(text, "--tokens");  // throws: before the work, not after it
        return std::string();
      });
  app.add_option("--price", o.price, "Price of a device-hour: prints what the training costs")
      ->check(CLI::Range(0.0, 1e6));
}

void declare(CLI::App& app, PlanOptions& o) {
  declare_problem(app, o);
  declare_space(app, o.space, true);
  declare_outputs(app, o.out);
  declare_cost(app, o.cost);
  app.add_option("--time-limit", o.time_limit_s, "Seconds of search; then the best so far, with its gap")
      ->capture_default_str()
      ->check(CLI::Range(1e-3, 1e6));
  app.add_option("--top", o.top, "Layouts to rank")->capture_default_str()->check(CLI::Range(1, 1000));
  app.add_flag("--pareto", o.pareto,
               "Print what trades time against memory and devices; a plan of the fastest is written");
  app.add_option("--from", o.from, "Simulate an existing plan again instead of searching");
}

void check_from(const CLI::App& app, const PlanOptions& o) {
  if (o.from.empty()) return;
  const std::vector<std::string> beside{"--from", "--output", "--report", "--trace", "--json"};
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || std::find(beside.begin(), beside.end(), option->get_name()) != beside.end())
      continue;
    throw UserError(Problem{"--from", "excludes " + option->get_name(), "one or the other",
                            "a plan holds its model, cluster and layout"});
  }
}

Overlaps overlaps_of(const Layout& l) {
  return {l.overlap_gradient_reduce, l.overlap_parameter_gather, l.overlap_tensor, l.overlap_transfer,
          l.overlap_exchange};
}

namespace {

void check_required(const PlanOptions& o) {
  const std::pair<const char*, bool> required[] = {{"--model", o.model.empty()},
                                                   {"--cluster", o.cluster.empty()},
                                                   {"--global-batch", o.global_batch == 0}};
  for (const auto& [option, missing] : required) {
    if (missing) throw UserError(Problem{option, "missing", "a value", "see --help"});
  }
}

void set_workload(const PlanOptions& o, const Plan* base, SearchProblem& problem) {
  const int64_t usual = std::min(problem.model.max_positions, kDefaultSequence);
  problem.workload = base != nullptr ? base->workload : Workload{o.global_batch, usual};
  if (o.global_batch > 0) problem.workload.global_batch = o.global_batch;
  if (o.sequence > 0) problem.workload.sequence = o.sequence;
  if (problem.workload.sequence <= problem.model.max_positions) return;
  throw UserError(Problem{
      "--seq", std::to_string(problem.workload.sequence),
      fmt::format("at most the {} positions of {}", problem.model.max_positions, problem.model.name), ""});
}

}  // namespace

namespace {

// What runs a plan on CPU ranks is this project's runtime, and its layers are what profiles time; on GPUs
// most people have Megatron Core.
Execution framework_of(const PlanOptions& o, const Plan* base, bool cpu) {
  if (!o.framework.empty()) return models::load_framework(o.framework, "--framework");
  if (base != nullptr) return base->layout.execution;
  return cpu || !o.profile.empty() ? Execution{} : models::load_framework("megatron-core", "--framework");
}

Execution execution_of(const PlanOptions& o, const Plan* base, bool cpu) {
  Execution execution = framework_of(o, base, cpu);
  if (!o.execution.empty() && execution.framework == Execution{}.framework) {
    throw UserError(Problem{"--execution", o.execution.front().substr(0, 80), "what mpt-run does",
                            "name another framework, or leave it out"});
  }
  execution = models::with_changes(execution, o.execution, "--execution");
  if (o.expert_load > 0.0) execution.expert_load = o.expert_load;
  if (o.dispatch == "once") models::send_tokens_once(execution);
  if (o.dispatch == "each") execution.deduplicates_dispatch = false;
  if (execution.deduplicates_dispatch && execution.framework == Execution{}.framework) {
    throw UserError(Problem{"--dispatch", "once with --framework mpt", "what mpt-run does",
                            "name another framework, or leave it out"});
  }
  if (o.recompute_modules.empty()) return execution;
  const std::string& name = execution.framework;
  if (name != "megatron-core" && name != "nemo") {
    throw UserError(Problem{"--recompute-modules", fmt::format("with --framework {}", name),
                            "--framework megatron-core or nemo, whose modules they are", ""});
  }
  set_recompute_modules(o.recompute_modules, execution);
  return execution;
}

std::shared_ptr<const profiler::KernelTables> own_kernels(const PlanOptions& o, const ClusterSpec& cluster) {
  if (o.kernels.empty()) return nullptr;
  const profiler::KernelProfile own = profiler::load_kernel_profile(o.kernels);
  const bool priced =
      profiler::kernel_tables(cluster.device.kernels.empty() ? cluster.device.name
                                                             : cluster.device.kernels) != nullptr;
  if (own.device != cluster.device.name || cluster.mixed() || !priced || !o.profile.empty()) {
    throw UserError(
        Problem{"--kernels " + o.kernels, "times of " + own.device.substr(0, 80),
                fmt::format("times of {}, the device of {}", cluster.device.name, cluster.name),
                "not with --profile, mixed clusters or devices that the catalog has no kernels of"});
  }
  return std::make_shared<const profiler::KernelTables>(profiler::tables_of(own));
}

}  // namespace

std::unique_ptr<PreparedSearch> prepare(const PlanOptions& o, const Plan* base) {
  if (base == nullptr) check_required(o);
  auto p = std::make_unique<PreparedSearch>();
  SearchProblem& problem = p->problem;
  problem.bounds = bounds_of(o.space);
  problem.model = o.model.empty() ? base->model : models::load_model(o.model);
  if (!o.profile.empty()) p->profile = profiler::load_profile(o.profile);
  problem.cluster = o.cluster.empty() ? base->cluster : profiler::load_cluster(o.cluster, p->profile);
  const bool cpu = problem.cluster.device.kind == DeviceKind::cpu;
  const Precision usual = base != nullptr ? base->layout.precision : cpu ? Precision::fp32 : Precision::bf16;
  problem.precision = o.precision.empty() ? usual : names<Precision>({o.precision}, "--precision").front();
  problem.execution = execution_of(o, base, cpu);
  models::set_device(problem.execution, problem.cluster.device);
  const bool own_runtime = is_for_this_runtime(problem.cluster, problem.execution);
  check_precision(problem.precision, problem.cluster);
  problem.overlaps = base != nullptr && o.overlaps.empty() ? overlaps_of(base->layout)
                                                           : overlaps_of(o, problem.cluster, own_runtime);
  if (!o.beyond_framework) problem.framework = bounding_framework(problem);
  check_framework(problem, o.overlaps.empty() ? "the plan's /layout/overlap_exchange" : "--overlap");
  problem.time_limit_s = o.time_limit_s;
  problem.threads = o.threads > 0 ? o.threads : default_threads();
  set_workload(o, base, problem);
  problem.ranks = o.ranks > 0 ? o.ranks : problem.cluster.devices;
  if (problem.ranks > problem.cluster.devices) {
    throw UserError(Problem{
        "--ranks", std::to_string(o.ranks),
        fmt::format("at most the {} devices of {}", problem.cluster.devices, problem.cluster.name), ""});
  }
  if (problem.cluster.mixed() && problem.ranks != problem.cluster.devices) {
    throw UserError(Problem{"--ranks", std::to_string(o.ranks),
                            fmt::format("all {} devices of a mixed cluster", problem.cluster.devices),
                            "leave --ranks out; name fewer nodes in --cluster"});
  }
  problem.memory_limit_bytes = memory_limit(o, problem.cluster, problem.execution);
  if (p->profile) check_profile(*p, o.profile);
  p->cost = p->profile
                ? make_profile_cost(*p->profile, problem.model, problem.workload, problem.precision,
                                    problem.cluster)
                : make_device_cost(problem.cluster, problem.execution, own_kernels(o, problem.cluster));
  problem.cost = p->cost.get();
  p->pools = std::make_unique<Pools>(problem.cluster, problem.execution, problem.memory_limit_bytes);
  p->pools->set(problem);
  return p;
}

}  // namespace mpt::planner
