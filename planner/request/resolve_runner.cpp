// SPDX-License-Identifier: Apache-2.0
#include "planner/request/resolve_parts.h"

#include "base/error.h"
#include "base/ranges.h"
#include "core/gpu_memory.h"
#include "frameworks/framework.h"
#include "frameworks/transformers/classes.h"
#include "planner/request/resolve.h"

namespace mpt::planner {
namespace {

constexpr std::pair<const char*, bool Overlaps::*> kOverlapNames[] = {
    {"gradient-reduce", &Overlaps::gradient_reduce},
    {"parameter-gather", &Overlaps::parameter_gather},
    {"tensor", &Overlaps::tensor},
    {"transfer", &Overlaps::transfer},
    {"exchange", &Overlaps::exchange}};

bool is_own_runtime(const Execution& execution) { return execution.framework == Execution{}.framework; }

// On CPU ranks plans run with this project's runtime, and profiles time its layers. On GPUs most people have
// Megatron Core.
Execution framework_of(const PlanRequest& r, bool cpu, std::vector<std::string>& notes) {
  if (!r.framework.empty()) {
    Execution named = frameworks::load_framework(r.framework, "--framework");
    if (named.framework != r.framework)
      notes.push_back(fmt::format("--framework {} is called {} here: {}", r.framework, named.framework,
                                  frameworks::framework_named(named.framework, "--framework").title));
    return named;
  }
  if (r.layout) return r.layout->execution;
  return cpu || !r.profile.empty() ? Execution{} : frameworks::usual_framework().execution;
}

void check_has_modules(const std::string& framework) {
  const frameworks::Framework* known = frameworks::find_framework(framework);
  if (known != nullptr && known->abilities.recompute_modules) return;
  const auto names = frameworks::framework_names(
      [](const frameworks::Framework& other) { return other.abilities.recompute_modules; });
  refuse_input("--recompute-modules", fmt::format("with --framework {}", framework),
               fmt::format("--framework {}, whose modules they are", joined(names, " or ")));
}

// Megatron-LM refuses these modules for a model that lacks them (transformer_config.py:1784).
void check_model_has(const SelectiveRecompute& modules, const ModelSpec& model) {
  const auto check = [&](bool asked, const char* name, bool has, const char* what) {
    if (asked && !has)
      refuse_input(fmt::format("--recompute-modules {}", name), model.name + " has no " + what,
                   "modules that the model has", "leave it out");
  };
  const auto is_latent = [](const LayerKind& kind) {
    return kind.attention && (kind.attention->latent || kind.attention->compressed);
  };
  const auto has_experts = [](const LayerKind& kind) { return kind.moe.has_value(); };
  const auto has_shared = [](const LayerKind& kind) { return kind.moe && kind.moe->shared_ffn_hidden > 0; };
  const auto is_delta = [](const LayerKind& kind) {
    return kind.linear && kind.linear->kind == LinearKind::gated_delta;
  };
  check(modules.latent, "mla_up_proj", model.layers.any(is_latent), "latent attention");
  check(modules.expert_activation, "moe_act", model.layers.any(has_experts), "experts");
  check(modules.shared_experts, "shared_experts", model.layers.any(has_shared), "experts of all tokens");
  check(modules.delta_norm, "gdn_norm_out", model.layers.any(is_delta), "gated delta rule");
  check(modules.streams, "mhc", model.residual_streams > 1, "several streams of its residual");
}

// NVIDIA's GPUs before Ampere have 16-bit products only in fp16.
const DeviceSpec* without_bf16(const ClusterSpec& cluster) {
  constexpr int64_t kAmpere = 80;
  const auto lacks = [](const DeviceSpec& d) {
    return d.compute_capability > 0 && d.compute_capability < kAmpere;
  };
  for (const DeviceGroup& group : cluster.groups)
    if (lacks(group.device)) return &group.device;
  return lacks(cluster.device) ? &cluster.device : nullptr;
}

}  // namespace

Execution execution_of(const PlanRequest& r, const ModelSpec& model, const ClusterSpec& cluster,
                       std::vector<std::string>& notes) {
  Execution execution = framework_of(r, cluster.device.kind == DeviceKind::cpu, notes);
  if (!r.execution.empty() && is_own_runtime(execution))
    refuse_input("--execution", r.execution.front().substr(0, 80), "what mpt-run does",
                 "name another framework, or leave it out");
  // Packed sequences take kernels of variable lengths, which are FlashAttention's.
  if (!r.lengths.empty() && execution.kernels.attention == AttentionKernel::sdpa)
    execution.kernels.attention = AttentionKernel::flash2;
  const auto* const framework = frameworks::find_framework(execution.framework);  // null: older software
  if (framework != nullptr) execution = frameworks::as_class_of(model, *framework, execution);
  for (const char* own : {"loss=own", "attention=own"})  // a price that nothing runs
    if (contains(r.execution, own))
      refuse_input("--execution", own, "kernels of " + execution.framework + ", not mpt-run's own",
                   "leave it out, or plan with --framework mpt");
  execution = frameworks::with_changes(execution, r.execution, "--execution");
  if (execution.kernels.attention == AttentionKernel::plain)
    notes.push_back(
        "attention of " + model.type +
        " keeps its scores unless your script names other kernels: " + "--execution attention=flash2");
  if (r.expert_load > 0.0) execution.traffic.expert_load = r.expert_load;
  // HybridEP sends a token once to a device with several of its experts. Its kernels pad for products in fp8.
  if (r.dispatch == Dispatch::once) execution.kernels.pads_expert_rows = false;
  if (r.dispatch) execution.traffic.deduplicates_dispatch = r.dispatch == Dispatch::once;
  if (execution.traffic.deduplicates_dispatch && is_own_runtime(execution))
    refuse_input("--dispatch", "once with --framework mpt", "what mpt-run does",
                 "name another framework, or leave it out");
  if (is_own_runtime(execution) && cluster.device.kind != DeviceKind::cpu) {
    execution.kernels.vocabulary_multiple = kVocabularyMultipleOnGpus;
    execution.kernels.attention = AttentionKernel::own;
  }
  frameworks::set_device(execution, cluster.device);
  return execution;
}

SelectiveRecompute selective_of(const PlanRequest& r, const ModelSpec& model, const Execution& execution) {
  SelectiveRecompute selective = r.layout ? r.layout->selective : SelectiveRecompute{};
  if (r.recompute_modules.empty()) return selective;
  const auto known = mapped<std::string>(recompute_modules(), &RecomputeModule::name);
  for (const std::string& name : r.recompute_modules) {
    if (contains(known, name)) continue;
    refuse_input("--recompute-modules",
                 fmt::format("\"{}\"{}", name.substr(0, 40), did_you_mean(name, known)),
                 fmt::format("some of {}", joined(known, ", ")));
  }
  check_has_modules(execution.framework);
  set_recompute_modules(r.recompute_modules, selective);
  check_model_has(selective, model);
  return selective;
}

Precision precision_of(const PlanRequest& r, const ClusterSpec& cluster) {
  const DeviceSpec& device = cluster.device;
  const bool cpu = device.kind == DeviceKind::cpu;
  const DeviceSpec* const old = cpu ? nullptr : without_bf16(cluster);
  const Precision usual = r.layout ? r.layout->precision
                          : cpu    ? Precision::fp32
                          : old    ? Precision::fp16
                                   : Precision::bf16;
  const Precision precision = r.precision.value_or(usual);
  const auto refuse = [precision](const std::string& expected, const char* remedy) {
    refuse_input("--precision", enum_name(precision), expected, remedy);
  };
  if (old != nullptr && precision == Precision::bf16)
    refuse("fp16 or fp32: " + old->name + " has no products in bf16", "use --precision fp16");
  if (!is_narrow(precision)) return precision;
  const std::string one_it_has = "a precision that " + device.name + " has";
  if (cpu) refuse("fp32, bf16 or fp16 on CPU ranks", "");
  if (device.fp8_flop_per_s <= 0) refuse(one_it_has, old != nullptr ? "use fp16" : "use bf16");
  if (precision == Precision::mxfp8 && !device.mxfp8)
    refuse(one_it_has, "use fp8, or set the device's \"mxfp8\"");
  if (precision == Precision::nvfp4 && device.fp4_flop_per_s <= 0)
    refuse(one_it_has, "use another, or set the device's \"fp4_flop_per_s\"");
  return precision;
}

// The overlaps that a framework cannot switch off. Plans for CPU ranks have no others by default.
Overlaps always_of(const Execution& execution) {
  Overlaps overlaps;
  const frameworks::Framework* framework = frameworks::find_framework(execution.framework);
  if (framework == nullptr) return overlaps;
  for (const frameworks::AlwaysBeside what : framework->abilities.always_overlaps) {
    if (what == frameworks::AlwaysBeside::gradient_reduce) overlaps.gradient_reduce = true;
    if (what == frameworks::AlwaysBeside::parameter_gather) overlaps.parameter_gather = true;
    if (what == frameworks::AlwaysBeside::transfer) overlaps.transfer = true;
  }
  return overlaps;
}

// The default overlaps: all but tensor-parallel collectives and the exchange with experts, which frameworks
// overlap only on request. Within one node this project's runtime overlaps only transfers: its ranks share
// cores there, or have links that leave little to hide.
Overlaps overlaps_of(const PlanRequest& r, const ClusterSpec& cluster, const Execution& execution) {
  const bool one_node = cluster.devices <= cluster.devices_per_node;
  const bool own_runtime = is_for_this_runtime(cluster, execution);
  if (r.overlaps.empty() && r.layout) return overlaps_of(*r.layout);
  if (r.overlaps.empty())
    return own_runtime && one_node ? always_of(execution) : Overlaps{true, true, false, true};
  Overlaps overlaps{false, false, false, false};
  for (const std::string& word : r.overlaps) {
    const auto* const known = first_if(kOverlapNames, [&](const auto& named) { return word == named.first; });
    if (known != nullptr) overlaps.*known->second = true;
    if (known != nullptr || (word == "none" && r.overlaps.size() == 1)) continue;
    const auto names = mapped<std::string>(kOverlapNames, [](const auto& overlap) { return overlap.first; });
    refuse_input("--overlap", "\"" + word.substr(0, 40) + "\"",
                 fmt::format("none, or some of {}", joined(names, ", ")));
  }
  return overlaps;
}

}  // namespace mpt::planner
