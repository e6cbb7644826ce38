// SPDX-License-Identifier: Apache-2.0

// accelerate's YAML with FSDP or DeepSpeed, and the Trainer's arguments beside it.

#include <array>

#include "base/error.h"
#include "base/ranges.h"
#include "base/text.h"
#include "frameworks/asked.h"
#include "frameworks/deepspeed/deepspeed.h"
#include "frameworks/framework.h"
#include "frameworks/readers/settings.h"
#include "frameworks/readers/yaml_file.h"
#include "frameworks/registry.h"
#include "frameworks/transformers/hugging_face.h"
#include "frameworks/transformers/trainer.h"

namespace mpt::frameworks {
namespace {

Precision mixed_precision(const Settings& config, std::vector<std::string>& notes) {
  const Json* value = config.find("mixed_precision");
  if (value == nullptr || *value == false || *value == "no") return Precision::fp32;  // YAML 1.1's no
  const auto precision = precision_named(config.text("mixed_precision", ""), config.at("mixed_precision"));
  if (precision == Precision::fp8 && config.text("fp8_config.backend", "AO") != "AO")
    notes.push_back("fp8_config.backend: taken as torchao's");
  return precision;
}

void set_accelerate_fsdp(const Settings& config, int64_t ranks, Imported& in) {
  Layout& l = in.layout;
  if (const char* const key = "parallelism_config.parallelism_config_sp_size";
      config.number(key, between(1, 1e6), 1) > 1)
    refuse_input(config.at(key), "sequences over several ranks by Ulysses", "1",
                 "plans have it for DeepSpeed alone");
  l.context = config.number("parallelism_config.parallelism_config_cp_size", rule_of(&Layout::context), 1);
  l.tensor = config.number("parallelism_config.parallelism_config_tp_size", rule_of(&Layout::tensor), 1);
  const FsdpRanks sharding = fsdp_sharding(config, 1, in);
  const int64_t replicate = config.number("parallelism_config.parallelism_config_dp_replicate_size",
                                          rule_of(&Layout::data), sharding.replicate);
  const int64_t open = ranks / std::max<int64_t>(1, l.context * l.tensor * replicate);
  set_fsdp(
      in,
      {replicate,
       config.number("parallelism_config.parallelism_config_dp_shard_size", rule_of(&Layout::data), open),
       sharding.reshard},
      config.at("fsdp_config"));
  // accelerate/utils/dataclasses.py:1909: NO_WRAP
  if (lower_case(config.text("fsdp_config.fsdp_auto_wrap_policy", "")) != "transformer_based_wrap")
    in.unknown.emplace_back(
        "no fsdp_auto_wrap_policy (add TRANSFORMER_BASED_WRAP: without it all layers are gathered at once)");
  l.offload_optimizer = config.flag("fsdp_config.fsdp_offload_params", false);
  if (l.offload_optimizer && l.zero == 0) l.zero = sharding.reshard ? 3 : 2;  // on one rank, too
  note_left_out(config, "transformers-fsdp", in);
  if (!config.flag("fsdp_config.fsdp_cpu_ram_efficient_loading", true)) build_in_each_process(4, in);
  if (config.flag("fsdp_config.fsdp_activation_checkpointing", false)) l.recompute = Recompute::full;
}

// transformers 5 loads weights in the type of their checkpoint, which is 16 bits mostly; nobody widens them
// without sharding (findings/trainer_trains_weights_in_the_type_of_the_checkpoint.sh). Buckets of DDP are as
// wide.
void set_loaded_type(const Settings& arguments, Imported& in) {
  const std::string type = arguments.text("dtype", "auto");
  if (type == "float32" || in.layout.precision == Precision::fp32 || in.layout.training->adapts()) return;
  train_in_16_bits(6, type == "float16" && in.layout.precision == Precision::fp16, in);
  build_in_each_process(0, in);  // the mapped file
  in.notes.emplace_back(
      "weights are loaded in the checkpoint's type, taken as 16 bits, as are gradients and moments; dtype: "
      "float32 trains weights in fp32");
}

// Keys of accelerate's section, their places in DeepSpeed's file, and defaults.
constexpr const char* kOfDeepSpeed[][3] = {
#include "generated/AccelerateDeepSpeed.inc"
};

// Of the file that is named, or as accelerate makes them without one (accelerate/utils/dataclasses.py:1302).
Settings deepspeed_settings(const Settings& config, std::optional<Precision> precision,
                            const std::filesystem::path& folder) {
  if (const std::string name = config.text("deepspeed_config.deepspeed_config_file", ""); !name.empty()) {
    const std::filesystem::path path = folder / name;
    return {load_json(path, kMostImportedBytes), path.string()};
  }
  Json made{{"train_batch_size", "auto"}, {"train_micro_batch_size_per_gpu", "auto"}};
  for (const auto& [key, place, usual] : kOfDeepSpeed) {
    const Json* const value = config.find(key);
    made[Json::json_pointer(place)] = value == nullptr ? plain_scalar(usual) : *value;
  }
  if (precision == Precision::bf16 || precision == Precision::fp16)
    made[enum_name(*precision)] = {{"enabled", true}};
  return {made, config.file()};
}

}  // namespace

FsdpRanks fsdp_sharding(const Settings& config, int64_t version, Imported& in) {
  constexpr std::array kNames{"full_shard", "shard_grad_op", "no_shard", "hybrid_shard",
                              "hybrid_shard_zero2"};
  const std::string switched = "fsdp_config.fsdp_reshard_after_forward";
  const std::string named = "fsdp_config.fsdp_sharding_strategy";
  version = config.number("fsdp_config.fsdp_version", between(1, 2), version);
  const std::string &own = version == 2 ? switched : named, &other = version == 2 ? named : switched;
  if (const Json* left = config.find(other); left != nullptr && *left != "FULL_SHARD" && *left != true)
    in.notes.push_back(fmt::format("{}: accelerate does not read it with FSDP {}", other, version));
  FsdpRanks sharding;
  const Json* const given = config.find(own);
  const Json value = given != nullptr ? *given : version == 2 ? Json(true) : Json(kNames[0]);
  std::string how = lower_case(value.is_string() ? value.get<std::string>() : value.dump());
  if (version == 2) {
    sharding.reshard = how != "false";
    if (sharding.reshard && how != "true")
      in.unknown.push_back(fmt::format("{} {} (FSDP 2 has true and false)", switched, cut_text(how, 40)));
    return sharding;
  }
  in.notes.emplace_back("fsdp_version 1 is priced as FSDP 2 (fsdp_config.fsdp_version: 2)");
  if (how.size() == 1 && how[0] >= '1' && how[0] <= '5') how = kNames[size_t(how[0] - '1')];
  if (!contains(kNames, how) || how == kNames[2])
    in.unknown.push_back(
        fmt::format("{} {} (distributed_type: MULTI_GPU keeps weights whole)", named, cut_text(how, 40)));
  sharding.reshard = how == kNames[0] || how == kNames[3];
  if (how.starts_with("hybrid"))  // it shards in each node
    sharding.replicate = config.number("num_machines", between(1, 1e6), 1);
  return sharding;
}

Imported read_accelerate(const Settings& config, const std::optional<Settings>& arguments,
                         const std::filesystem::path& file) {
  const Json* const type = config.find("distributed_type");
  const bool none = type == nullptr || *type == false;  // YAML 1.1's NO
  const std::string kind = none ? "NO" : config.text("distributed_type", "NO");
  if (kind != "FSDP" && kind != "DEEPSPEED" && kind != "MULTI_GPU" && kind != "NO")
    refuse_input(config.at("distributed_type"), fmt::format("\"{}\"", kind.substr(0, 40)),
                 "FSDP, DEEPSPEED, MULTI_GPU or NO");
  const Asked& asked = *asked_of(framework_named("transformers-fsdp", ""));
  GivenSettings given;
  asked.add_given(config.all(), "", file.string(), given);
  const int64_t ranks = config.number("num_processes", rule_of(&Layout::data), 0);
  std::optional<Precision> precision;
  Imported in;
  if (config.has("mixed_precision") || arguments) precision = mixed_precision(config, in.notes);
  if (arguments) precision = trainer_precision(*arguments, *precision);
  if (kind == "DEEPSPEED") {
    const Settings settings = deepspeed_settings(config, precision, file.parent_path());
    if (arguments) given.values.merge(settings_by_path(settings.all(), "deepspeed."));
    in = read_deepspeed(settings, {.trainer = precision, .ranks = ranks, .fills = true});
    const int64_t replicas = ranks / std::max<int64_t>(1, in.layout.tensor * in.layout.context);
    if (in.layout.data == 0 && ranks > 0) in.layout.data = std::max<int64_t>(1, replicas);
  } else {
    in.layout.precision = precision.value_or(Precision::fp32);
    in.layout.data = ranks;
  }
  if (kind == "FSDP") set_accelerate_fsdp(config, ranks, in);
  in.framework = kind == "FSDP"        ? "transformers-fsdp"
                 : kind == "DEEPSPEED" ? "transformers-deepspeed"
                                       : "transformers-ddp";
  if (in.framework == "transformers-ddp") in.layout.overlap_gradient_reduce = true;
  if (kind == "NO") in.layout.data = 1;
  given.unknown.insert(given.unknown.begin(), in.unknown.begin(), in.unknown.end());
  in.unknown = std::move(given.unknown);
  const int64_t batch = kind == "DEEPSPEED" ? in.workload.global_batch : 0;
  in.workload.global_batch = 0;
  if (arguments) {
    given.values.merge(settings_by_path(arguments->all(), "train."));
    set_trainer_settings(*arguments, file.parent_path(), in);
    if (kind == "FSDP") set_deferred_sums(*arguments, in);
    // transformers 5 reads a checkpoint in each process, whatever fsdp_cpu_ram_efficient_loading says.
    if (kind == "FSDP" && arguments->has("model_name_or_path")) build_in_each_process(4, in);
    set_trainer_adapters(*arguments, in);
    // FullyShardedDataParallel of torch 2.15.0 then makes gradients of frozen weights, too.
    if (kind == "FSDP" && in.layout.training->adapts() &&
        config.number("fsdp_config.fsdp_version", between(1, 2), 1) == 1 &&
        config.flag("fsdp_config.fsdp_use_orig_params", false))
      in.unknown.emplace_back("fsdp_config.fsdp_use_orig_params of FSDP1 beside adapters");
    if (in.framework == "transformers-ddp") set_loaded_type(*arguments, in);
  } else {
    in.notes.push_back("there is no train.json beside it: give --global-batch and --seq");
    set_hugging_face_model(in, "", file.parent_path());
  }
  if (!in.refused) in.refused = asked.refusal(given.values, true, file.string());
  if (batch > 0) in.workload.global_batch = batch;
  set_stages(in, {}, file.string());
  check_imported(in, file.string());
  return in;
}

Imported import_transformers(const std::filesystem::path& file) {
  const Json yaml = read_yaml(file);
  if (auto tuner = read_tuner(yaml, file)) return *tuner;
  if (yaml.is_object() && yaml.contains("per_device_train_batch_size")) return read_trl(yaml, file);
  return read_accelerate(Settings(yaml, file.string()), arguments_beside(file), file);
}

}  // namespace mpt::frameworks
