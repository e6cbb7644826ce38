// SPDX-License-Identifier: Apache-2.0
#include "planner/request/resolve.h"

#include <fmt/ranges.h>

#include "base/files.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "base/threads.h"
#include "core/schedule_catalog.h"
#include "frameworks/framework.h"
#include "frameworks/supports/supports.h"
#include "frameworks/transformers/classes.h"
#include "models/zoo.h"
#include "planner/explain/confidence.h"
#include "planner/memory/memory_model.h"
#include "planner/request/resolve_parts.h"
#include "profiler/hardware/catalog.h"
#include "profiler/hardware/cluster_file.h"
#include "profiler/hardware/kernel_tables.h"
#include "profiler/hardware/nodes.h"
#include "profiler/hardware/profile_noise.h"

namespace mpt::planner {
namespace {

constexpr int64_t kDefaultSequence = 4096;

void check_required(const PlanRequest& r) {
  const std::tuple<const char*, bool, const char*> required[] = {
      {"--model", r.model.empty(), "a model, such as llama3-8b or path/to/config.json"},
      {"--cluster", r.cluster.empty(), "a cluster, such as dgx-h100:8"},
      {"--global-batch", r.global_batch == 0 && r.batch_tokens == 0,
       "sequences per optimizer step, such as 256"}};
  for (const auto& [option, missing, example] : required)
    if (missing) refuse_input(option, "missing", example, "see --help");
}

void check_profile(Resolved& resolved) {
  const std::string& file = resolved.request.profile;
  const profiler::MachineDescription& machine = resolved.profile->machine;
  const SearchProblem& problem = resolved.problem;
  const ClusterSpec& cluster = problem.cluster;
  const bool cpu = cluster.device.kind == DeviceKind::cpu;
  if (cluster.mixed() || cluster.device.kind != machine.kind ||
      (!cpu && !profiler::means_device(machine.device, cluster.device.name)))
    refuse_input("--profile " + file, "times of " + machine.device.substr(0, 80),
                 fmt::format("times of {}, the device of {}", cluster.device.name, cluster.name),
                 "plan for this-machine:N, measure that device, or leave --profile out");
  if (!is_for_this_runtime(cluster, problem.execution))
    refuse_input("--profile " + file, "--framework " + problem.execution.framework,
                 "--framework mpt, whose layers mpt-profile times",
                 "other frameworks take kernel times: mpt-profile import, then --kernels");
  const profiler::MachineDescription here = profiler::describe_machine();
  if (cpu && (machine.device != here.device || machine.cores != here.cores))
    resolved.notes.push_back(fmt::format("{} was measured on {} with {} cores, this machine is {} with {}",
                                         file, machine.device, machine.cores, here.device, here.cores));
  if (!profiler::profile_matches(*resolved.profile, problem.model, problem.workload.sequence,
                                 problem.precision)) {
    const bool other = resolved.profile->precision != problem.precision;
    const auto timed = [other](const std::string& model, int64_t sequence, Precision precision) {
      return fmt::format("{} at sequence {}{}", model, sequence, other ? " in " + enum_name(precision) : "");
    };
    resolved.notes.push_back(fmt::format(
        "{} timed {}; {} is priced by its operators' rates, less exactly", file,
        timed(resolved.profile->model.name, resolved.profile->sequence, resolved.profile->precision),
        timed(problem.model.name, problem.workload.sequence, problem.precision)));
  }
  const std::string noise = profiler::noise_note(*resolved.profile, file, problem.workload.sequence);
  if (!noise.empty()) resolved.notes.push_back(noise);
}

// The limit with a margin that keeps a plan from running out of memory: the user's margin, else that of
// published runs.
int64_t with_room(const PlanRequest& r, const SearchProblem& problem, int64_t device) {
  if (!r.memory_margin.empty())
    return int64_t(double(device) * (1.0 - parse_share(r.memory_margin, "--memory-margin")));
  if (problem.cluster.device.kind == DeviceKind::cpu || !r.profile.empty()) return device;
  const auto kind = kind_of(problem.model, problem.execution.framework, problem.precision, problem.training);
  return memory_margin({kind, ""}, published_evidence()).safe_bytes(device);
}

// The memory limit of one rank. It never exceeds the device's memory without that of the driver and its
// libraries, because a plan for more could not run.
int64_t memory_limit(const PlanRequest& r, const SearchProblem& problem, const Calibration& calibration,
                     std::vector<std::string>& notes) {
  const ClusterSpec& cluster = problem.cluster;
  const int64_t device = most_tensor_bytes(cluster, problem.execution, calibration);
  if (device <= 0)
    refuse_input(
        "--cluster",
        fmt::format("{} of memory on each GPU of {}", format_bytes(double(cluster.device.memory_bytes)),
                    cluster.name),
        fmt::format("more than the {} that {} takes before the model",
                    format_bytes(double(cluster.device.memory_bytes - device)), problem.execution.framework),
        "name GPUs with more memory");
  if (r.memory.empty()) return with_room(r, problem, device);
  const int64_t asked = parse_bytes(r.memory, "--memory");
  if (asked < 1) refuse_input("--memory", "\"" + r.memory + "\"", "more than nothing");
  if (asked > device)
    notes.push_back(fmt::format("--memory {} is more than the {} that {} of {} can use; planning for {}",
                                r.memory, format_bytes(double(device)),
                                cluster.device.kind == DeviceKind::cpu ? "a rank" : "a GPU", cluster.name,
                                format_bytes(double(device))));
  return std::min(asked, device);
}

void check_host_memory(const SearchProblem& problem) {
  const ClusterSpec& cluster = problem.cluster;
  const auto needed = double(host_build_bytes(problem.model, problem.execution, problem.training,
                                              cluster.ranks_of_host(problem.ranks)));
  const auto room = double(cluster.host_memory_bytes);
  if (room == 0.0 || needed <= room) return;
  // Some frameworks build the model in each process whatever is set.
  const bool by_switch =
      problem.execution.allocator.process_build_bytes > 0 &&
      (problem.framework == nullptr || problem.framework->execution.allocator.process_build_bytes == 0);
  const char* const remedy =
      by_switch
          ? "set fsdp_cpu_ram_efficient_loading: true, and load by from_pretrained(None, config=config, "
            "state_dict=weights) on local rank 0 alone, with {} on others; or train adapters: --lora 16"
          : R"(name hosts with more in a cluster file, "host_memory_bytes": "4 TB" (docs/clusters.md))";
  refuse_input("--model " + problem.model.name,
               fmt::format("{} in the memory of each host while {} builds the model", format_bytes(needed),
                           problem.execution.framework),
               fmt::format("at most the {} that a host of {} has", format_bytes(room), cluster.name), remedy);
}

// The same for each group of a mixed cluster.
std::vector<int64_t> limits_of_pools(const PlanRequest& r, const SearchProblem& problem,
                                     const Calibration& calibration) {
  return mapped<int64_t>(problem.cluster.groups, [&](const DeviceGroup& group) {
    const int64_t device = tensor_bytes(group.device, problem.execution, calibration);
    return r.memory.empty() ? with_room(r, problem, device) : std::min(device, problem.memory_limit_bytes);
  });
}

constexpr int64_t kUsualMultiple = 128;

// Extends a model to longer sequences. Computed positions have no limit; a table of positions has one.
void extend_positions(const PlanRequest& r, SearchProblem& problem, std::vector<std::string>& notes) {
  const int64_t sequence = problem.workload.sequence, most = problem.model.max_positions;
  if (sequence <= most) return;
  if (problem.model.position == PositionKind::learned)
    refuse_input("--seq", std::to_string(sequence),
                 fmt::format("at most the {} positions of {}, a table of them", most, problem.model.name),
                 fmt::format("--seq {}; for more, a config.json with more positions as --model: mpt-plan "
                             "model {} --config-json -o config.json writes one to edit",
                             most, shell_word(r.model.name)));
  problem.model.max_positions = sequence;
  notes.push_back(fmt::format(
      "{} was made for {} positions; the plan and its exports have {}. {} a longer base of its "
      "rotary positions (rope_theta) or YaRN (rope_scaling) in its config.json; time and memory stay.",
      problem.model.name, format_count(most), format_count(sequence), kBeyondPositions));
}

void set_workload(PlanRequest& r, SearchProblem& problem, std::vector<std::string>& notes) {
  int64_t usual = std::min(problem.model.max_positions, kDefaultSequence);
  // A table of learned positions may have a few more rows than a sequence has tokens; OPT's has two more.
  if (problem.model.position == PositionKind::learned && usual > kUsualMultiple)
    usual -= usual % kUsualMultiple;
  const int64_t sequence = r.sequence > 0 ? r.sequence : usual;
  if (r.global_batch > 0 && r.batch_tokens > 0)
    refuse_input("--batch-tokens", "given with --global-batch", "one of the two", "leave one of them out");
  if (r.batch_tokens > 0) {
    r.global_batch = std::max<int64_t>(1, (r.batch_tokens + sequence / 2) / sequence);
    if (r.batch_tokens < sequence)
      notes.push_back(fmt::format("a step trains {} tokens, not {}: the fewest are one sequence",
                                  format_count(sequence), format_count(r.batch_tokens)));
    r.batch_tokens = 0;
  }
  problem.workload = {r.global_batch, sequence};
  extend_positions(r, problem, notes);
}

std::shared_ptr<const profiler::KernelTables> own_kernels(const PlanRequest& r, const ClusterSpec& cluster) {
  if (r.kernels.empty()) return nullptr;
  const profiler::KernelProfile own = profiler::load_kernel_profile(r.kernels);
  if (own.device != cluster.device.name || cluster.mixed() ||
      profiler::kernel_tables(cluster.device) == nullptr || !r.profile.empty())
    refuse_input("--kernels " + r.kernels, "times of " + own.device.substr(0, 80),
                 fmt::format("times of {}, the device of {}", cluster.device.name, cluster.name),
                 "not with --profile, mixed clusters or devices that the catalog has no kernels of");
  return std::make_shared<const profiler::KernelTables>(profiler::tables_of(own));
}

// The nodes in use. All GPUs wait for the slowest one, and idle nodes delay none. So a part of a large
// cluster costs the same as a cluster of that size.
ClusterSpec used_part(ClusterSpec cluster, int64_t ranks) {
  if (cluster.mixed() || ranks >= cluster.devices) return cluster;
  cluster.devices = ranks;
  cluster.levels.back().group_size = std::max(ranks, cluster.levels.front().group_size);
  return cluster;
}

void set_ranks(const PlanRequest& r, SearchProblem& problem) {
  const ClusterSpec& cluster = problem.cluster;
  const char* option = cluster.device.kind == DeviceKind::cpu ? "--ranks" : "--gpus";
  problem.ranks = r.gpus > 0 ? r.gpus : cluster.devices;
  if (problem.ranks > cluster.devices)
    refuse_input(option, std::to_string(r.gpus),
                 fmt::format("at most {}, which {} has", cluster.devices, cluster.name),
                 profiler::larger_cluster(r.cluster.name, r.gpus));
  if (cluster.mixed() && problem.ranks != cluster.devices)
    refuse_input(option, std::to_string(r.gpus),
                 fmt::format("all {} GPUs of a mixed cluster", cluster.devices),
                 fmt::format("leave {} out; name fewer nodes in --cluster", option));
}

// Notes on GPUs with coarser prices than those of the catalog, so that readers of the answer know it.
void note_prices(const ClusterSpec& cluster, std::vector<std::string>& notes) {
  const auto unmeasured = [](const DeviceSpec& device) {
    return device.kind == DeviceKind::gpu && profiler::kernel_tables(device) == nullptr;
  };
  std::vector<std::string> names;
  if (!cluster.mixed() && unmeasured(cluster.device)) names.push_back(cluster.device.name);
  for (const auto& group : cluster.groups)
    if (unmeasured(group.device)) names.push_back(group.device.name);
  if (names.empty()) return;
  notes.push_back(fmt::format(
      "nobody has measured kernels of {}: its prices are a roofline of its peak rates, which no GPU reaches. "
      "Name the GPU that it is like in the cluster file, \"device\": {{\"like\": \"h100-sxm-80gb\", ...}} "
      "(docs/clusters.md)",
      fmt::join(names, " and ")));
}

// A note, because such a name may mean several cards of one machine or several machines with one card.
void note_single_gpus(const PlanRequest& r, const ClusterSpec& cluster, std::vector<std::string>& notes) {
  const std::string node = r.cluster.name.substr(0, r.cluster.name.rfind(':'));
  const bool sized = r.cluster.name.find('x', node.size()) != std::string::npos;
  if (r.cluster.value || sized || cluster.devices < 2 || cluster.devices_per_node != 1 ||
      profiler::node_named(node) == nullptr)
    return;
  notes.push_back(fmt::format(
      "{} is {} machines with one GPU each, joined by {} of {}. In one machine they are --cluster {}:1x{}",
      cluster.name, cluster.devices, cluster.levels.back().name,
      format_bandwidth(cluster.levels.back().bandwidth_bytes_per_s), node, cluster.devices));
}

ModelSpec model_of(const PlanRequest& r, std::vector<std::string>& notes) {
  if (r.model.value) return *r.model.value;
  const models::ImportedModel read = models::load_imported_model(r.model.name);
  notes.insert(notes.end(), read.notes.begin(), read.notes.end());
  return read.model;
}

ClusterSpec cluster_of(const PlanRequest& r, const std::optional<profiler::Profile>& profile) {
  auto cluster = r.cluster.value ? *r.cluster.value : profiler::load_cluster(r.cluster.name, profile, r.gpus);
  profiler::check_kernels(cluster, r.cluster.value ? "/cluster" : r.cluster.name);
  return cluster;
}

SearchBounds checked(const SearchBounds& bounds) {
  SearchBounds checked = bounds;
  for (std::string& name : checked.schedules) name = find_schedule(name, "--schedule").name;
  return checked;
}

// Refuses options of a split that the model or the other options do not have.
void check_splits(const SearchBounds& bounds, const ModelSpec& model) {
  const auto above_one = [](const std::vector<int64_t>& values) {
    return !values.empty() && !contains(values, 1);
  };
  const std::pair<const char*, const std::vector<int64_t>*> of_experts[] = {{"--ep", &bounds.expert},
                                                                            {"--etp", &bounds.expert_tensor}};
  for (const auto& [option, values] : of_experts) {
    if (model.moe() != nullptr || !above_one(*values)) continue;
    refuse_input(option, std::to_string(values->front()), fmt::format("1: {} has no experts", model.name),
                 "leave it out");
  }
  const bool alone = !bounds.tensor.empty() && all_of(bounds.tensor, [](int64_t tp) { return tp == 1; });
  if (alone && bounds.sequence_parallel == std::vector<Switch>{Switch::on})
    refuse_input("--sp", "on beside --tp 1", "--tp 2 or more, whose ranks share the sequence",
                 "leave --sp out, or name another --tp");
}

// A framework named by its sharding means only that sharding and tensor parallelism.
void restrict_to_sharding(Resolved& resolved) {
  PlanRequest& r = resolved.request;
  const frameworks::Framework* const named = frameworks::find_framework(r.framework);
  if (named == nullptr || r.beyond_framework || !contains(named->sharding_aliases, r.framework)) return;
  SearchBounds& b = r.bounds;
  SearchBounds& own = resolved.problem.own_bounds;
  own.pipeline = own.context = {1};
  if (b.pipeline.empty()) b.pipeline = {1};
  if (b.context.empty()) b.context = {1};
  const std::tuple<const char*, const std::vector<int64_t>&, std::vector<int64_t>> can[] = {
      {"--pp", b.pipeline, {1}}, {"--cp", b.context, {1}}, {"--zero", b.zero, named->abilities.zero}};
  for (const auto& [option, asked, has] : can) {
    if (all_of(asked, [&, &has = has](int64_t value) { return allowed(has, value); })) continue;
    refuse_input(
        option, fmt::format("{} with --framework {}", fmt::join(asked, ","), r.framework),
        fmt::format("{}: {} means FSDP and tensor parallelism alone", fmt::join(has, " or "), r.framework),
        fmt::format("leave it out; --framework {} has pipelines and context parallelism", named->name));
  }
  resolved.notes.push_back(fmt::format(
      "{} means FSDP and tensor parallelism alone: --framework {} has pipelines and context parallelism, too",
      r.framework, named->name));
}

// A framework that keeps weights in 16 bits keeps all states in 32 bits if it computes in fp32.
void widen_states(StateBytes& states) {
  if (states.weight_bytes != 2) return;
  states.weight_bytes = states.gradient_bytes = states.reduced_bytes = 4;
  states.optimizer_bytes = std::max<int64_t>(states.optimizer_bytes, 8);
}

// Removes the parts of the model that the framework does not train.
void leave_out_untrained(Resolved& resolved) {
  SearchProblem& problem = resolved.problem;
  const frameworks::Framework* const framework = frameworks::find_framework(problem.execution.framework);
  if (framework == nullptr) return;
  const int64_t layers = problem.model.next_token_layers;
  problem.model = frameworks::trained_by(*framework, std::move(problem.model));
  if (problem.model.next_token_layers == layers) return;
  resolved.notes.push_back(fmt::format(
      "{} trains {} without its next-token layers: they are left out of the plan, of memory and of time",
      framework->title, problem.model.name));
}

// Adapters of MLPs that the model has not, or that the framework would move to experts, unless they are a
// layout's.
void leave_out_adapters(Resolved& resolved) {
  const PlanRequest& r = resolved.request;
  SearchProblem& problem = resolved.problem;
  const auto* const framework = frameworks::find_framework(problem.execution.framework);
  if (r.lora == 0 && r.lora_targets.empty()) return;
  if (r.lora_targets.empty() && !frameworks::has_mlps(problem.model))
    problem.training.adapter_targets = {AdapterTarget::qkv, AdapterTarget::output};
  if (framework == nullptr || r.beyond_framework ||
      !frameworks::moves_adapters(*framework, problem.model, problem.training))
    return;
  const std::string what = framework->title + " puts adapters named for an MLP on routed experts";
  if (!r.lora_targets.empty())
    refuse_input("--lora-targets", what, "some of qkv, output and experts", "--lora-targets qkv,output");
  problem.training.adapter_targets = {AdapterTarget::qkv, AdapterTarget::output};
  resolved.notes.push_back(
      what +
      ", so dense and shared MLPs have none. --lora-targets qkv,output,experts plans those of experts");
}

void note_verdict(Resolved& resolved) {
  const SearchProblem& problem = resolved.problem;
  if (!problem.framework) return;
  const auto on = frameworks::verdict_on(*problem.framework, problem.model, problem.training);
  if (on.verdict == VerdictKind::not_written) resolved.notes.push_back(on.reason);
}

// If no framework was given and the usual one does not train the model: the first that does.
void choose_framework(Resolved& resolved) {
  PlanRequest& r = resolved.request;
  const SearchProblem& p = resolved.problem;
  const bool cpu = p.cluster.device.kind == DeviceKind::cpu;
  if (!r.framework.empty() || r.layout || r.beyond_framework || !r.profile.empty() || cpu) return;
  const frameworks::Framework& usual = frameworks::usual_framework();
  const Training training = training_of(r, p.workload.sequence);
  if (frameworks::trains(usual, p.model, training, p.precision)) return;
  auto names = frameworks::frameworks_that_train(p.model, training, p.precision);
  if (names.empty()) return;
  if (names.size() > 1) std::erase(names, frameworks::own_runtime().name);
  // Large models with experts need the most ways to split.
  r.framework = p.model.moe() == nullptr ? names.front() : *max_by(names, [](const std::string& name) {
    return frameworks::framework_named(name, "").abilities.schedules.size();
  });
  resolved.notes.push_back(
      fmt::format("--framework {} does not train this: planned for --framework {}", usual.name, r.framework));
}

void set_runner(Resolved& resolved) {
  const PlanRequest& r = resolved.request;
  SearchProblem& problem = resolved.problem;
  problem.precision = precision_of(r, problem.cluster);
  choose_framework(resolved);
  problem.execution = execution_of(r, problem.model, problem.cluster, resolved.notes);
  if (problem.precision == Precision::fp32) widen_states(problem.execution.states);
  leave_out_untrained(resolved);
  problem.selective = selective_of(r, problem.model, problem.execution);
  problem.training = training_of(r, problem.workload.sequence);
  leave_out_adapters(resolved);
  set_gradients(r, problem, resolved.notes);
  narrow_adapters(problem);
  set_deterministic(problem, resolved.notes);
  note_formats(problem, resolved.notes);
  if (problem.training != Training{} && problem.cluster.device.kind == DeviceKind::gpu)
    resolved.notes.emplace_back(
        "intervals and the margin of memory are mostly those of full training by AdamW on sequences of one "
        "length");
  problem.overlaps = overlaps_of(r, problem.cluster, problem.execution);
  if (!r.beyond_framework) problem.framework = bounding_framework(problem);
  check_framework(problem, r.overlaps.empty() ? "/layout/overlap_exchange" : "--overlap");
  note_verdict(resolved);
}

void set_prices(Resolved& resolved, const Calibration& calibration) {
  SearchProblem& problem = resolved.problem;
  if (resolved.profile) {
    check_profile(resolved);
  } else {
    note_prices(problem.cluster, resolved.notes);
    note_single_gpus(resolved.request, problem.cluster, resolved.notes);
  }
  resolved.used = used_part(problem.cluster, problem.ranks);
  resolved.cost = resolved.profile ? make_profile_cost(*resolved.profile, problem.model, problem.workload,
                                                       problem.precision, problem.cluster, calibration)
                                   : make_device_cost(resolved.used, problem.execution, calibration,
                                                      own_kernels(resolved.request, problem.cluster));
  problem.cost = resolved.cost.get();
  resolved.pools = std::make_unique<Pools>(problem.cluster, problem.execution,
                                           limits_of_pools(resolved.request, problem, calibration));
  resolved.pools->set(problem);
}

// Whether one of the joined clusters is a file, as in "two-racks.json:4".
bool names_files(const std::string& cluster) {
  if (is_there(cluster)) return true;
  for (const std::string& part : split_at(cluster, '+')) {
    const std::string whole = part.substr(0, part.find('@'));
    if (is_there(whole) || is_there(whole.substr(0, whole.rfind(':')))) return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<Resolved> resolve(const PlanRequest& request) {
  return resolve(request, shipped_calibration());
}

std::unique_ptr<Resolved> resolve(const PlanRequest& request, const Calibration& calibration) {
  check_required(request);
  auto resolved = std::make_unique<Resolved>();
  resolved->request = request;
  restrict_to_sharding(*resolved);
  SearchProblem& problem = resolved->problem;
  problem.bounds = checked(resolved->request.bounds);
  problem.from_rows = !problem.bounds.schedules.empty();
  if (request.layout) problem.known = {*request.layout};
  problem.model = model_of(request, resolved->notes);
  check_splits(problem.bounds, problem.model);
  if (!request.profile.empty()) resolved->profile = profiler::load_profile(request.profile);
  problem.cluster = cluster_of(request, resolved->profile);
  set_workload(resolved->request, problem, resolved->notes);
  set_runner(*resolved);
  problem.time_limit_s = request.time_limit_s;
  if (!request.gap.empty()) problem.gap = parse_share(request.gap, "--gap");
  problem.threads = request.threads > 0 ? int(request.threads) : default_threads();
  set_ranks(request, problem);
  check_host_memory(problem);
  problem.memory_limit_bytes = memory_limit(request, problem, calibration, resolved->notes);
  set_prices(*resolved, calibration);
  return resolved;
}

PlanRequest request_of(const Plan& plan) {
  const PlanRequest& asked = plan.request;
  PlanRequest request;
  request.model = {asked.model.name, plan.model};
  request.cluster = {asked.cluster.name, plan.cluster};
  request.global_batch = plan.workload.global_batch;
  request.sequence = plan.workload.sequence;
  request.layout = plan.layout;  // it includes most of the other options
  request.deterministic = asked.deterministic;
  request.beyond_framework = asked.beyond_framework;
  request.threads = asked.threads;
  request.time_limit_s = asked.time_limit_s;
  request.top = asked.top;
  request.pareto = asked.pareto;
  request.try_first = asked.try_first;
  request.observed = asked.observed;
  return request;
}

PlanRequest portable(PlanRequest request, const SearchProblem& problem) {
  if (is_there(request.model.name)) request.model.value = problem.model;
  if (names_files(request.cluster.name)) request.cluster.value = problem.cluster;
  return request;
}

int default_threads() {
  constexpr int64_t kMost = 8;
  return kHasThreads ? int(std::min(kMost, profiler::describe_machine().cores)) : 1;
}

Overlaps overlaps_of(const Layout& l) {
  return {l.overlap_gradient_reduce, l.overlap_parameter_gather, l.overlap_tensor, l.overlap_transfer,
          l.overlap_exchange};
}

}  // namespace mpt::planner
