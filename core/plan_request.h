// SPDX-License-Identifier: Apache-2.0
#pragma once

// PlanRequest: all that a user can ask of the planner, and nothing else. Its field list is the JSON of
// --request, the options of mpt-plan, the schema and the page docs/requests.md. planner/api.h answers it.

#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "core/cluster_spec.h"
#include "core/layout.h"
#include "core/model_spec.h"

namespace mpt {

enum class Switch { off, on };
/// each: a token is sent once for every expert that it goes to. once: once for every GPU or node.
enum class Dispatch { each, once };

/// Headings of the options. Groups that begin with "More" are shown by --help-all alone.
namespace headings {
inline constexpr const char* kWhat = "What to train";
inline constexpr const char* kMoreWhat = "More about what runs the plan";
inline constexpr const char* kWhere = "Where";
inline constexpr const char* kMoreWhere = "More about where";
inline constexpr const char* kRestrict =
    "Restrict the search, values separated by commas (default: everything)";
inline constexpr const char* kMoreRestrict = "More limits of the search";
inline constexpr const char* kOutput = "Output";
}  // namespace headings

/// Values that a degree or switch of the layout may take; empty: every value.
struct SearchBounds {
  std::vector<int64_t> tensor, context, pipeline, data, zero, expert, micro_batch, chunks, expert_tensor;
  std::vector<Recompute> recomputes;
  std::vector<std::string> schedules;
  std::vector<Switch> sequence_parallel, offload;
  std::vector<ContextMethod> context_methods;
  std::vector<RankOrder> orders;

  bool operator==(const SearchBounds&) const = default;

  static void describe(auto& v) {
    using T = SearchBounds;
    using namespace headings;
    const FieldRule degree = between(1, double(kMostRanks));
    v.field("tp", &T::tensor, "Tensor-parallel degree", option_field(kRestrict, "N", degree));
    v.field("cp", &T::context, "Context-parallel degree", option_field(kRestrict, "N", degree));
    v.field("pp", &T::pipeline, "Pipeline stages", option_field(kRestrict, "N", degree));
    v.field("dp", &T::data, "Data-parallel degree", option_field(kRestrict, "N", degree));
    v.field("zero", &T::zero, "ZeRO stage, 0 to 3: 0 is DDP, 3 is fully sharded (FSDP, FULL_SHARD)",
            option_field(kRestrict, "N", between(0, 3)));
    v.field("ep", &T::expert, "Expert-parallel degree", option_field(kRestrict, "N", degree));
    v.field("micro_batch", &T::micro_batch, "Sequences per micro-batch; gradient accumulation runs several",
            option_field(kRestrict, "N", degree));
    v.field("recompute", &T::recomputes, "Activation (gradient) checkpointing: none, selective or full",
            option_field(kRestrict, "HOW"));
    v.field("schedule", &T::schedules, "Pipeline schedule", option_field(kRestrict, "NAME"));
    v.field("sp", &T::sequence_parallel, "Sequence parallel beside tensor parallel",
            option_field(kMoreRestrict, "on|off"));
    v.field("cp_method", &T::context_methods, "How context ranks attend: ring or all_to_all",
            option_field(kMoreRestrict, "HOW"));
    v.field("chunks", &T::chunks, "Virtual stages on each GPU of a pipeline",
            option_field(kMoreRestrict, "N", degree));
    v.field("offload", &T::offload, "Optimizer state in CPU memory", option_field(kMoreRestrict, "on|off"));
    v.field("order", &T::orders, "Which axis spans nodes: pipeline_outermost or data_outermost",
            option_field(kMoreRestrict, "AXIS"));
    v.field("etp", &T::expert_tensor, "GPUs that share one expert", option_field(kMoreRestrict, "N", degree));
  }
};

/// Sequences of a step, or tokens of one.
inline constexpr int64_t kMostSequences = int64_t{1} << 28;

/// What somebody measured of a run. What it leaves out is as in the request.
struct ObservedRun {
  std::string layout, measured;  // its short form; "28.1s,61GiB" or "oom"
  std::optional<Layout> exact;   // the layout, where its short form leaves something open
  NameOr<ModelSpec> model;
  NameOr<ClusterSpec> cluster;
  std::string framework;
  std::optional<Precision> precision;
  int64_t gpus = 0, global_batch = 0, sequence = 0;

  bool operator==(const ObservedRun&) const = default;

  static void describe(auto& v) {
    using T = ObservedRun;
    v.field("layout", &T::layout, "short form of its layout (docs/notation.md)", long_text());
    v.field("measured", &T::measured,
            "step time, memory of the fullest GPU, or both: 28.1s,61GiB; oom: memory ran out", long_text());
    v.field("exact", &T::exact, "the layout itself", optional_field());
    v.field("model", &T::model, "its model", optional_field(long_text()));
    v.field("cluster", &T::cluster, "its cluster", optional_field(long_text()));
    v.field("framework", &T::framework, "software that ran it", optional_field());
    v.field("precision", &T::precision, "its precision", optional_field());
    v.field("gpus", &T::gpus, "GPUs that it used", optional_field(between(0, double(kMostRanks))));
    v.field("global_batch", &T::global_batch, "its sequences per step",
            optional_field(between(0, double(kMostSequences))));
    v.field("seq", &T::sequence, "its tokens per sequence",
            optional_field(between(0, double(kMostSequences))));
  }
};

struct PlanRequest {
  NameOr<ModelSpec> model;
  int64_t global_batch = 0, sequence = 0;  // 0: not said
  std::optional<Precision> precision;
  std::string framework;
  NameOr<ClusterSpec> cluster;
  int64_t gpus = 0;
  std::string memory, profile;
  SearchBounds bounds;
  std::vector<std::string> execution;
  std::vector<std::string> overlaps;
  std::vector<std::string> recompute_modules;
  double expert_load = 0.0;
  std::optional<OptimizerKind> optimizer;
  std::optional<Precision> gradients;
  bool deterministic = false;
  int64_t lora = 0;
  std::vector<AdapterTarget> lora_targets;
  std::optional<FrozenFormat> frozen_weights;
  std::vector<FrozenPart> freeze;
  std::vector<std::string> lengths;
  double masked = 0.0;
  std::vector<OffloadModule> offload_activations;
  std::optional<Dispatch> dispatch;
  std::string kernels, memory_margin;
  bool beyond_framework = false;
  int64_t threads = 0;
  double time_limit_s = 120.0;
  int64_t top = 5;
  bool pareto = false;
  bool try_first = false;
  std::optional<Layout> layout;
  std::vector<int64_t> layers_per_stage;
  std::vector<ObservedRun> observed;

  bool operator==(const PlanRequest&) const = default;

  static void describe(auto& v) {
    describe_problem(v);
    describe_training(v);
    describe_execution(v);
    describe_search(v);
  }

 private:
  static void describe_problem(auto& v);
  static void describe_training(auto& v);
  static void describe_execution(auto& v);
  static void describe_search(auto& v);
};

/// Reads a request, or the one that a plan of format "mpt-plan" answers. Throws UserError with every problem.
PlanRequest load_request(const std::string& file);
std::string request_to_text(const PlanRequest& request);

void PlanRequest::describe_problem(auto& v) {
  using T = PlanRequest;
  using namespace headings;
  v.field("model", &T::model,
          "Name such as llama3-70b (mpt-plan model list), Hugging Face id, or path of a config.json",
          option_field(kWhat, "MODEL", long_text()));
  v.field("global_batch", &T::global_batch, "Sequences per optimizer step",
          option_field(kWhat, "N", between(1, double(kMostSequences))));
  v.field("seq", &T::sequence,
          "Tokens per sequence; in 8k, k is 1024 (default: 4096, or less if the model's limit is lower)",
          option_field(kWhat, "N", between(1, double(kMostSequences))));
  v.field("precision", &T::precision, "fp32, bf16, fp16, fp8, mxfp8 or nvfp4 (default: bf16; on CPUs fp32)",
          option_field(kWhat, "NAME"));
  v.field("framework", &T::framework,
          "Software that will run the plan; an unknown name lists all (default: megatron-core, or the first "
          "that trains the model; mpt on CPUs)",
          option_field(kWhat, "NAME"));
  v.field("cluster", &T::cluster,
          "Nodes such as dgx-h100:8 (mpt-plan cluster list), a cluster file (docs/clusters.md), "
          "this-machine:4 for CPU ranks, or several joined: dgx-a100:8+dgx-h100:4@100Gb/s@5ms",
          option_field(kWhere, "CLUSTER", long_text()));
  v.field("gpus", &T::gpus,
          "GPUs to use, or CPU ranks; names the nodes where --cluster has no count (default: all of the "
          "cluster)",
          option_field(kWhere, "N", between(1, double(kMostRanks))));
  v.field("memory", &T::memory, "Limit of each GPU, such as 70GiB (default: what driver and framework leave)",
          option_field(kWhere, "SIZE"));
  v.field("profile", &T::profile, "Times of this machine, written by mpt-profile (default: none)",
          option_field(kWhere, "FILE", long_text()));
  v.field("bounds", &T::bounds, "values that the search may take", option_field(nullptr, nullptr));
}

void PlanRequest::describe_training(auto& v) {
  using T = PlanRequest;
  using namespace headings;
  v.field("optimizer", &T::optimizer,
          "adamw, adamw8 (moments in 8 bits), adafactor, sgd or muon (default: adamw)",
          option_field(kMoreWhat, "NAME"));
  v.field("gradients", &T::gradients,
          "Precision in which gradients are summed and kept, fp32 or bf16 (default: as the framework does)",
          option_field(kMoreWhat, "NAME"));
  v.field("deterministic", &T::deterministic,
          "Kernels that give the same result in every run, as Megatron-LM's --deterministic-mode",
          option_field(kMoreWhat, nullptr));
  v.field("lora", &T::lora, "Rank of LoRA adapters, which alone are trained (default: all weights)",
          option_field(kWhat, "RANK", between(1, 1 << 16)));
  v.field("lora_targets", &T::lora_targets,
          "Linear layers with adapters: qkv, output, up, down, experts (default: the first four)",
          option_field(kMoreWhat, "NAMES"));
  v.field("frozen_weights", &T::frozen_weights,
          "How weights that are not trained are stored: bf16, fp8 or nf4, as QLoRA does (default: bf16)",
          option_field(kMoreWhat, "FORMAT"));
  v.field("freeze", &T::freeze, "Parts that are not trained: embedding, mixers, mlps, experts, head",
          option_field(kMoreWhat, "PARTS"));
  v.field("lengths", &T::lengths,
          "Lengths of the sequences that are packed to --seq tokens: mean:longest, or lengths with their "
          "shares, such as 512=0.3,2048=0.7 (default: nothing is packed)",
          option_field(kMoreWhat, "LENGTHS"));
  v.field("masked", &T::masked,
          "Share of the tokens that the loss leaves out, as prompts and padding of fine-tuning: layouts that "
          "would weigh the others unequally are left out (default: 0)",
          option_field(kMoreWhat, "SHARE", between(0, 0.999)));
  v.field("offload_activations", &T::offload_activations,
          "Modules whose activations wait in CPU memory, by Megatron Core's names: attn_norm, qkv_linear, "
          "core_attn, attn_proj, mlp_norm, expert_fc1, moe_act",
          option_field(kMoreWhat, "NAMES"));
}

void PlanRequest::describe_execution(auto& v) {
  using T = PlanRequest;
  using namespace headings;
  v.field("execution", &T::execution,
          "Settings of your framework that differ from its default, by the names in a plan's execution "
          "(docs/file_formats.md), such as fp8_attention=true,graphs=true (default: as known)",
          option_field(kMoreWhat, "NAME=VALUE"));
  v.field(
      "overlap", &T::overlaps,
      "Communication beside compute: none, or some of gradient-reduce, parameter-gather, tensor, transfer, "
      "exchange, the all-to-all of experts (default: all but tensor and exchange; only transfer on "
      "one node with --framework mpt)",
      option_field(kMoreWhat, "NAMES"));
  v.field("recompute_modules", &T::recompute_modules,
          "What selective recompute runs again, by Megatron Core's names: core_attn, layernorm, mla_up_proj, "
          "mlp, moe, moe_act, shared_experts, gdn_norm_out, mhc (default: core_attn)",
          option_field(kMoreWhat, "NAMES"));
  v.field("expert_load", &T::expert_load,
          "Expert imbalance: tokens of the busiest GPU over the average, for its time and memory; mpt-run "
          "measures it (default: 1)",
          option_field(kMoreWhat, "X", between(1.0, 1e4)));
  v.field("dispatch", &T::dispatch,
          "each: a token is sent once for every expert it goes to. once: once for every GPU or node, as "
          "DeepEP and HybridEP do (default: each)",
          option_field(kMoreWhat, "HOW"));
  v.field("kernels", &T::kernels,
          "Kernel times of the cluster's GPU, written by mpt-profile import (default: those that come with "
          "mpt-plan)",
          option_field(kMoreWhere, "FILE", long_text()));
}

void PlanRequest::describe_search(auto& v) {
  using T = PlanRequest;
  using namespace headings;
  v.field("memory_margin", &T::memory_margin,
          "Share of a GPU's memory to leave free, such as 5% (default: with what is left, a plan "
          "is 90 % likely to fit)",
          option_field(kMoreRestrict, "SHARE"));
  v.field("beyond_framework", &T::beyond_framework, "Consider layouts that the framework cannot run, too",
          option_field(kMoreRestrict, nullptr));
  v.field("threads", &T::threads, "Threads of the search (default: one per core, at most 8)",
          option_field(kMoreRestrict, "N", between(1, 256)));
  v.field("time_limit", &T::time_limit_s,
          "Seconds of search, then the best so far and how far it may be from the optimum (default: 120)",
          option_field(kMoreRestrict, "X", between(1e-3, 1e6)));
  v.field("top", &T::top, "Layouts to rank (default: 5)", option_field(kOutput, "N", between(1, 1000)));
  v.field("pareto", &T::pareto, "Print what trades time against memory and GPUs; -o writes the fastest",
          option_field(kOutput, nullptr));
  v.field("try_first", &T::try_first, "Plan the layout that may not fit, where it is worth a trial",
          option_field(kOutput, nullptr));
  v.field("layout", &T::layout, "exactly this layout, to estimate", option_field(nullptr, nullptr));
  v.field("layers_per_stage", &T::layers_per_stage,
          "Decoder layers of each stage of the layout to estimate, in order",
          option_field(nullptr, nullptr, between(0, 100000)));
  v.field("observed", &T::observed,
          "runs that were measured, which correct the predictions (docs/observed.md)",
          option_field(nullptr, nullptr));
}

}  // namespace mpt
