// SPDX-License-Identifier: Apache-2.0
#include "planner/command_line.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/quantity.h"
#include "core/recompute_modules.h"
#include "core/schedule_catalog.h"
#include "models/framework.h"
#include "models/zoo.h"
#include "planner/explain/evidence.h"
#include "planner/framework_bounds.h"
#include "planner/memory/memory_model.h"
#include "profiler/hardware/catalog.h"
#include "profiler/hardware/cluster_file.h"
#include "profiler/hardware/machine.h"
#include "profiler/hardware/profile_noise.h"

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
}  // namespace

std::string overlap_names() {
  std::vector<std::string> names;
  for (const auto& [name, value] : kOverlapNames) names.emplace_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

namespace {

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

// A sweep prepares many searches.
void note_once(const std::string& note) {
  static std::set<std::string> told;
  if (told.insert(note).second) fmt::print(stderr, "mpt-plan: note: {}\n", note);
}

// The margin that keeps a plan from running out of memory: what was asked for, else what published runs
// advise.
int64_t with_room(const PlanOptions& o, const ClusterSpec& cluster, const Execution& execution, bool experts,
                  int64_t device) {
  if (!o.memory_margin.empty())
    return int64_t(double(device) * (1.0 - parse_share(o.memory_margin, "--memory-margin")));
  if (cluster.mixed() || cluster.device.kind == DeviceKind::cpu || !o.profile.empty()) return device;
  return memory_margin(execution.framework, experts, published_evidence()).safe_bytes(device);
}

// What one rank may use. A device's own memory less what the driver and its libraries hold bounds it, too: a
// plan for more could not run.
int64_t memory_limit(const PlanOptions& o, const ClusterSpec& cluster, const Execution& execution,
                     bool experts) {
  int64_t device = rank_limit_bytes(cluster.device, execution, 0);
  for (const DeviceGroup& group : cluster.groups)
    device = std::max(device, rank_limit_bytes(group.device, execution, 0));
  if (o.memory.empty()) return with_room(o, cluster, execution, experts, device);
  const int64_t asked = parse_bytes(o.memory, "--memory");
  if (asked < 1) throw UserError(Problem{"--memory", "\"" + o.memory + "\"", "more than nothing", ""});
  if (asked > device) {
    note_once(fmt::format("--memory {} is more than the {} that {} of {} can use; planning for {}", o.memory,
                          format_bytes(double(device)),
                          cluster.device.kind == DeviceKind::cpu ? "a rank" : "a GPU", cluster.name,
                          format_bytes(double(device))));
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

Overlaps overlaps_of(const Layout& l) {
  return {l.overlap_gradient_reduce, l.overlap_parameter_gather, l.overlap_tensor, l.overlap_transfer,
          l.overlap_exchange};
}

namespace {

void check_required(const PlanOptions& o) {
  const std::tuple<const char*, bool, const char*> required[] = {
      {"--model", o.model.empty(), "a model, such as llama3-8b or path/to/config.json"},
      {"--cluster", o.cluster.empty(), "a cluster, such as dgx-h100:8"},
      {"--global-batch", o.global_batch == 0, "sequences per optimizer step, such as 256"}};
  for (const auto& [option, missing, example] : required) {
    if (missing) throw UserError(Problem{option, "missing", example, "see --help"});
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
  if (!o.framework.empty()) {
    Execution named = models::load_framework(o.framework, "--framework");
    if (named.framework != o.framework)
      note_once(fmt::format("--framework {} is called {} here", o.framework, named.framework));
    return named;
  }
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

// The nodes in use. All GPUs wait for the slowest one of them, and idle nodes delay nobody: a part of a large
// cluster costs as much as a cluster of that size.
ClusterSpec used_part(ClusterSpec cluster, int64_t ranks) {
  if (cluster.mixed() || ranks >= cluster.devices) return cluster;
  cluster.devices = ranks;
  cluster.levels.back().group_size = std::max(ranks, cluster.levels.front().group_size);
  return cluster;
}

}  // namespace

namespace {

void set_ranks(const PlanOptions& o, SearchProblem& problem) {
  const ClusterSpec& cluster = problem.cluster;
  const char* option = cluster.device.kind == DeviceKind::cpu ? "--ranks" : "--gpus";
  problem.ranks = o.ranks > 0 ? o.ranks : cluster.devices;
  if (problem.ranks > cluster.devices) {
    throw UserError(Problem{option, std::to_string(o.ranks),
                            fmt::format("at most {}, which {} has", cluster.devices, cluster.name),
                            "name a larger --cluster, or a node such as dgx-h100 without a count"});
  }
  if (cluster.mixed() && problem.ranks != cluster.devices) {
    throw UserError(Problem{option, std::to_string(o.ranks),
                            fmt::format("all {} GPUs of a mixed cluster", cluster.devices),
                            fmt::format("leave {} out; name fewer nodes in --cluster", option)});
  }
}

// GPUs that are priced worse than those of the catalog: whoever reads the answer must know it first.
std::optional<std::string> price_note(const ClusterSpec& cluster) {
  const auto unmeasured = [](const DeviceSpec& device) {
    return device.kind == DeviceKind::gpu &&
           profiler::kernel_tables(device.kernels.empty() ? device.name : device.kernels) == nullptr;
  };
  std::vector<std::string> names;
  if (!cluster.mixed() && unmeasured(cluster.device)) names.push_back(cluster.device.name);
  for (const DeviceGroup& group : cluster.groups) {
    if (unmeasured(group.device)) names.push_back(group.device.name);
  }
  if (names.empty()) return std::nullopt;
  return fmt::format(
      "nobody has measured kernels of {}: its prices are a roofline of its peak rates, which no GPU reaches. "
      "Name the GPU "
      "that it is like in the cluster file, \"device\": {{\"like\": \"h100-sxm-80gb\", ...}} "
      "(docs/clusters.md)",
      fmt::join(names, " and "));
}

}  // namespace

std::unique_ptr<PreparedSearch> prepare(const PlanOptions& o, const Plan* base) {
  if (base == nullptr) check_required(o);
  auto p = std::make_unique<PreparedSearch>();
  SearchProblem& problem = p->problem;
  problem.bounds = bounds_of(o.space);
  problem.model = o.model.empty() ? base->model : models::load_model(o.model);
  if (!o.profile.empty()) p->profile = profiler::load_profile(o.profile);
  problem.cluster =
      o.cluster.empty() ? base->cluster : profiler::load_cluster(o.cluster, p->profile, o.ranks);
  profiler::check_kernels(problem.cluster, o.cluster.empty() ? "the plan's /cluster" : o.cluster);
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
  set_ranks(o, problem);
  problem.memory_limit_bytes =
      memory_limit(o, problem.cluster, problem.execution, problem.model.moe.has_value());
  if (p->profile) check_profile(*p, o.profile);
  if (p->profile) {
    const std::string note = profiler::noise_note(*p->profile, o.profile, problem.workload.sequence);
    if (!note.empty()) fmt::print(stderr, "mpt-plan: note: {}\n", note);
  }
  p->used = used_part(problem.cluster, problem.ranks);
  p->cost = p->profile ? make_profile_cost(*p->profile, problem.model, problem.workload, problem.precision,
                                           problem.cluster)
                       : make_device_cost(p->used, problem.execution, own_kernels(o, problem.cluster));
  problem.cost = p->cost.get();
  p->price_note = p->profile ? std::nullopt : price_note(problem.cluster);
  if (p->price_note) note_once(*p->price_note);
  p->pools = std::make_unique<Pools>(problem.cluster, problem.execution, problem.memory_limit_bytes);
  p->pools->set(problem);
  return p;
}

}  // namespace mpt::planner
