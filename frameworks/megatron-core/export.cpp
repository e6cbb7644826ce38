// SPDX-License-Identifier: Apache-2.0

// Megatron-LM: flags of megatron/training/arguments.py at core_v0.15.0.

#include "frameworks/megatron-core/export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/recompute_modules.h"
#include "frameworks/export.h"
#include "frameworks/registry.h"

namespace mpt::frameworks {
namespace {

class Arguments {
 public:
  void flag(const std::string& name) { lines_.push_back("--" + name); }
  void flag_if(bool given, const std::string& name) {
    if (given) flag(name);
  }
  template <class T>
  void value(const std::string& name, const T& value) {
    lines_.push_back(fmt::format("--{} {}", name, value));
  }
  template <class T>
  void value_unless(const T& usual, const std::string& name, const T& given) {
    if (given != usual) value(name, given);
  }
  std::string text() const { return fmt::format("{}\n", fmt::join(lines_, "\n")); }

 private:
  std::vector<std::string> lines_;
};

void add_positions(const ModelSpec& m, Arguments& a, std::vector<std::string>& warnings) {
  if (m.position == PositionKind::rotary) {
    a.value("position-embedding-type", "rope");
    a.value("rotary-base", int64_t(m.rotary_base));
    if (m.rotary_fraction < 1.0) a.value("rotary-percent", m.rotary_fraction);
    if (!m.rotary_scaling) return;
    if (m.rotary_scaling->kind == RotaryScalingKind::llama3) {
      a.flag("use-rope-scaling");
      a.value("rope-scaling-factor", m.rotary_scaling->factor);
    } else {
      warnings.push_back("rotary scaling other than Llama 3's has no flag");
    }
  } else if (m.position == PositionKind::learned) {
    a.value("position-embedding-type", "learned_absolute");
  } else {
    a.value("position-embedding-type", "none");
    warnings.push_back("positions other than rotary and learned have no flag: check the model");
  }
}

void add_activation(const ModelSpec& m, Arguments& a, std::vector<std::string>& warnings) {
  if (m.gated_mlp && m.activation_limit) {  // gpt-oss: one is added to the linear half
    a.flag("quick-geglu");
    a.value("glu-linear-offset", 1.0);
    a.value("activation-func-clamp-value", *m.activation_limit);
  } else if (m.gated_mlp && m.activation == ActivationKind::silu) {
    a.flag("swiglu");
  } else if (m.gated_mlp || m.activation == ActivationKind::relu) {
    warnings.push_back("the model's activation has no flag: Megatron-LM would use GELU");
  }
}

void add_attention(const ModelSpec& m, Arguments& a, std::vector<std::string>& warnings) {
  a.value("num-attention-heads", m.heads);
  if (m.attention == AttentionKind::latent && m.latent) {
    a.flag("multi-latent-attention");
    if (m.latent->query_rank > 0) a.value("q-lora-rank", m.latent->query_rank);
    a.value("kv-lora-rank", m.latent->key_value_rank);
    a.value("qk-head-dim", m.latent->nope_head_dim);
    a.value("qk-pos-emb-head-dim", m.latent->rope_head_dim);
    a.value("v-head-dim", m.latent->value_head_dim);
    return;
  }
  if (m.kv_heads != m.heads) {
    a.flag("group-query-attention");
    a.value("num-query-groups", m.kv_heads);
  }
  if (m.sliding_window) {
    // Keys to the left of a query's own.
    a.value("window-size", fmt::format("{},0", *m.sliding_window - 1));
    if (m.sliding_window_interval == 2) a.value("window-attn-skip-freq", 2);
    if (m.sliding_window_interval > 2)
      warnings.push_back("windows in every few layers only have no flag: check --window-attn-skip-freq");
  }
  if (m.attention_sinks) a.value("softmax-type", "learnable");
  if (m.head_dim * m.heads != m.hidden) a.value("kv-channels", m.head_dim);
  a.flag_if(m.query_key_norm != QueryKeyNorm::none, "qk-layernorm");
  if (m.query_key_norm == QueryKeyNorm::full)
    warnings.push_back("--qk-layernorm normalises single heads; the model's norms go over all of them");
}

void add_exchange(const Layout& l, Arguments& a) {
  a.value("moe-token-dispatcher-type", l.execution.deduplicates_dispatch ? "flex" : "alltoall");
  a.flag_if(l.execution.deduplicates_dispatch, "moe-enable-deepep");
  a.flag_if(l.overlap_exchange, "overlap-moe-expert-parallel-comm");
}

void add_experts(const Plan& plan, Arguments& a, std::vector<std::string>& warnings) {
  const ModelSpec& m = plan.model;
  if (!m.moe) return;
  a.value("num-experts", m.moe->experts);
  a.value("moe-router-topk", m.moe->experts_per_token);
  if (m.moe->groups_per_token < m.moe->expert_groups) {
    a.value("moe-router-num-groups", m.moe->expert_groups);
    a.value("moe-router-group-topk", m.moe->groups_per_token);
  }
  a.value("moe-ffn-hidden-size", m.moe->expert_ffn_hidden);
  if (m.moe->shared_ffn_hidden > 0) a.value("moe-shared-expert-intermediate-size", m.moe->shared_ffn_hidden);
  if (m.moe->leading_dense_layers > 0 || m.moe->layer_interval > 1) {
    std::string pattern;
    for (int64_t l = 0; l < m.layers; ++l)
      pattern += fmt::format("{}{}", l == 0 ? "" : ",", layer_has_experts(m, l) ? 1 : 0);
    a.value("moe-layer-freq", fmt::format("[{}]", pattern));
  }
  a.value("moe-router-load-balancing-type", m.moe->balance_loss > 0.0 ? "aux_loss" : "none");
  if (m.moe->balance_loss > 0.0) a.value("moe-aux-loss-coeff", m.moe->balance_loss);
  add_exchange(plan.layout, a);
  a.flag("moe-grouped-gemm");
  if (m.moe->shared_gate) warnings.push_back("the gate of shared experts has no flag");
}

void add_model(const Plan& plan, Arguments& a, std::vector<std::string>& warnings) {
  const ModelSpec& m = plan.model;
  a.value("num-layers", m.layers);
  a.value("hidden-size", m.hidden);
  a.value("ffn-hidden-size", m.ffn_hidden);
  add_attention(m, a, warnings);
  a.value("seq-length", plan.workload.sequence);
  a.value("max-position-embeddings", std::max(m.max_positions, plan.workload.sequence));
  a.value("vocab-size", m.vocab);
  a.value("normalization", m.norm == NormKind::rms_norm ? "RMSNorm" : "LayerNorm");
  a.value("norm-epsilon", m.norm_epsilon);
  add_positions(m, a, warnings);
  add_activation(m, a, warnings);
  a.flag_if(!m.mlp_bias && !m.attention_output_bias, "disable-bias-linear");
  a.flag_if(m.qkv_bias && !m.mlp_bias, "add-qkv-bias");
  a.flag_if(!m.tied_embeddings, "untie-embeddings-and-output-weights");
  a.value("attention-dropout", 0.0);
  a.value("hidden-dropout", 0.0);
  add_experts(plan, a, warnings);
  if (m.next_token_layers > 0) a.value("mtp-num-layers", m.next_token_layers);
  if (m.norm_placement != NormPlacement::pre || m.parallel_residual || m.embedding_norm)
    warnings.push_back("the model's arrangement of norms and residuals has no flag: check the model");
}

void add_pipeline(const Plan& plan, Arguments& a) {
  const Layout& l = plan.layout;
  a.value("pipeline-model-parallel-size", l.pipeline);
  if (l.stages() == 1) return;
  if (!stages_are_even(l)) {
    a.value("pipeline-model-parallel-layout", megatron_stages(plan));
  } else if (l.chunks > 1) {
    a.value("num-virtual-stages-per-pipeline-rank", l.chunks);
  }
  a.flag_if(!l.overlap_transfer && l.chunks > 1, "no-overlap-p2p-communication");
}

void add_data_parallel(const Plan& plan, Arguments& a, std::vector<std::string>& warnings) {
  const Layout& l = plan.layout;
  if (l.zero == 1) a.flag("use-distributed-optimizer");
  if (l.zero >= 2) {
    a.flag("use-megatron-fsdp");
    a.flag("use-distributed-optimizer");
    a.value("data-parallel-sharding-strategy", l.zero == 2 ? "optim_grads" : "optim_grads_params");
    a.value("ckpt-format", "fsdp_dtensor");
  }
  if (l.zero > 0 && l.shard < l.replicas())
    a.value("num-distributed-optimizer-instances", l.replicas() / l.shard);
  a.flag_if(l.overlap_gradient_reduce && l.replicas() > 1, "overlap-grad-reduce");
  // Megatron-LM takes it beside the other only.
  const bool reduces = l.overlap_gradient_reduce && l.replicas() > 1;
  a.flag_if(l.overlap_parameter_gather && l.zero > 0 && reduces, "overlap-param-gather");
  if (l.overlap_parameter_gather && l.zero > 0 && !reduces)
    warnings.emplace_back("--overlap-param-gather needs --overlap-grad-reduce: left out");
  if (l.offload_optimizer) {
    a.flag("optimizer-cpu-offload");
    a.flag("use-precision-aware-optimizer");  // the other asserts it
    if (l.zero != 1) warnings.push_back("--optimizer-cpu-offload is made for the distributed optimizer");
  }
}

void add_precision(const Layout& l, Arguments& a) {
  a.flag_if(l.precision == Precision::bf16 || is_narrow(l.precision), "bf16");
  a.flag_if(l.precision == Precision::fp16, "fp16");
  if (l.precision == Precision::fp8) a.value("fp8-format", "hybrid");
  if (l.precision == Precision::mxfp8) {
    a.value("fp8-format", "e4m3");
    a.value("fp8-recipe", "mxfp8");
  }
  if (l.precision == Precision::nvfp4) {
    a.value("fp4-format", "e2m1");
    a.value("fp4-recipe", "nvfp4");
  }
}

void add_layout(const Plan& plan, Arguments& a, std::vector<std::string>& warnings) {
  const Layout& l = plan.layout;
  a.value("tensor-model-parallel-size", l.tensor);
  a.flag_if(l.sequence_parallel && l.tensor > 1, "sequence-parallel");
  a.flag_if(l.overlap_tensor, "tp-comm-overlap");
  add_pipeline(plan, a);
  a.value("context-parallel-size", l.context);
  if (l.context > 1) a.value("cp-comm-type", l.context_method == ContextMethod::ring ? "p2p" : "a2a");
  if (plan.model.moe) {
    a.value("expert-model-parallel-size", l.expert);
    a.value("expert-tensor-parallel-size", l.expert_split());
  }
  a.flag_if(l.order == RankOrder::data_outermost && l.pipeline > 1 && l.data > 1, "use-tp-pp-dp-mapping");
  a.value("micro-batch-size", l.micro_batch);
  a.value("global-batch-size", plan.workload.global_batch);
  add_data_parallel(plan, a, warnings);
  const MegatronRecompute recompute = megatron_recompute(plan, warnings);
  if (!recompute.granularity.empty()) a.value("recompute-granularity", recompute.granularity);
  if (!recompute.modules.empty())
    a.value("recompute-modules", fmt::format("{}", fmt::join(recompute.modules, " ")));
  if (!recompute.method.empty()) {
    a.value("recompute-method", recompute.method);
    a.value("recompute-num-layers", recompute.layers);
  }
  add_precision(l, a);
}

// How many queues of launches a GPU gets (megatron/training/arguments.py).
const char* connections(const Layout& l) {
  if (l.zero > 1) return "# Megatron-FSDP refuses one queue of launches.\nunset CUDA_DEVICE_MAX_CONNECTIONS";
  if (l.overlap_exchange && l.tensor == 1 && l.context == 1)
    return "# Overlap of the exchange with experts needs several queues of launches.\n"
           "export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-32}";
  return "# Gradient reduction and tensor-parallel overlap rely on the order in which kernels were "
         "launched.\n"
         "export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}";
}

std::string launch_script(const Plan& plan) {
  return fmt::format(
      R"text(#!/usr/bin/env bash
# {}
# Run it on every node with NODE_RANK and MASTER_ADDR set, in a clone of Megatron-LM (core_v0.15.0). Data and
# training options are yours: what follows the script's name is passed on.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mapfile -t plan < <(tr ' ' '\n' < "$here/megatron_args.txt")
{}
exec torchrun --nproc-per-node {} --nnodes {} --node-rank "${{NODE_RANK:-0}}" \
  --master-addr "${{MASTER_ADDR:-127.0.0.1}}" --master-port "${{MASTER_PORT:-29500}}" \
  pretrain_gpt.py "${{plan[@]}}" "$@"
)text",
      export_title(plan), connections(plan.layout), ranks_per_node(plan), node_count(plan));
}

}  // namespace

std::string megatron_stages(const Plan& plan) {
  std::string text;
  for (const StageContent& stage : stage_contents(plan.model, plan.layout)) {
    if (!text.empty()) text += '|';
    if (stage.has_embedding) text += 'E';
    text += std::string(size_t(stage.layer_count), 't');
    if (stage.has_head) text += 'L';
  }
  return text;
}

MegatronRecompute megatron_recompute(const Plan& plan, std::vector<std::string>& warnings) {
  const Layout& l = plan.layout;
  if (l.recompute == Recompute::none) return {};
  if (l.recompute == Recompute::selective) {
    const std::vector<std::string> modules = recompute_modules_of(l.selective);
    const bool usual = modules == recompute_modules_of(SelectiveRecompute{});
    return {"selective", "", 0, usual ? std::vector<std::string>{} : modules};
  }
  if (l.recomputed_layers.empty()) return {"full", "uniform", 1, {}};
  const auto [least, most] = std::minmax_element(l.recomputed_layers.begin(), l.recomputed_layers.end());
  if (*least != *most) {
    warnings.push_back(
        fmt::format("recomputed layers differ from stage to stage ({}), Megatron-LM has one number: {} would "
                    "need more memory, {} is written",
                    fmt::join(l.recomputed_layers, ", "), *least, *most));
  }
  if (*most == 0) return {};
  return {"full", "block", *most, {}};
}

void add_megatron_warnings(const Plan& plan, std::vector<std::string>& warnings) {
  const Layout& l = plan.layout;
  if (head_in_fp8(l) && l.precision != Precision::mxfp8)
    warnings.emplace_back("the head's product in fp8 needs mxfp8: it would run in 16 bits");
  if (l.pipeline > 1 && l.schedule != "1f1b" && l.schedule != "interleaved") {
    warnings.push_back(fmt::format(
        "schedule {}: Megatron-LM runs 1F1B, interleaved with several chunks; plan with --schedule "
        "1f1b,interleaved for what it can do",
        l.schedule));
  }
  if (l.overlap_exchange && l.pipeline > 1 && l.chunks == 1)
    warnings.emplace_back("overlap of the exchange with experts needs virtual stages in a pipeline");
  if (l.overlap_exchange && l.recompute == Recompute::full)
    warnings.emplace_back("overlap of the exchange with experts does not go with full recompute");
  if (l.execution.graphs || (plan.model.moe && l.execution.fuses_experts)) {
    warnings.emplace_back(
        "a graph of the whole step and experts in one kernel are not written: Megatron-Bridge's "
        "recipes named full_iteration have the dozen settings that they take");
  }
  if (plan.cluster.mixed())
    warnings.push_back("groups of different devices: start the ranks in the order of the plan's cluster");
  if (l.ranks() % ranks_per_node(plan) != 0)
    warnings.push_back("the ranks do not fill their nodes: start fewer processes on the last one");
}

Exported export_megatron_core(const Plan& plan) {
  Exported exported;
  Arguments arguments;
  add_model(plan, arguments, exported.warnings);
  add_layout(plan, arguments, exported.warnings);
  add_megatron_warnings(plan, exported.warnings);
  if (plan.layout.execution.framework == Execution{}.framework)
    exported.warnings.push_back("the plan was priced for mpt-run: plan with --framework megatron-core");
  if (attention_in_fp8(plan.layout)) {
    exported.warnings.push_back(
        "attention in fp8 has no flag: set fp8_dot_product_attention of its TransformerConfig, or export to "
        "megatron-bridge");
  }
  if (head_in_fp8(plan.layout) && plan.layout.precision == Precision::mxfp8)
    exported.warnings.push_back("the head's product in fp8: add --fp8-output-proj from core_v0.18.0 on");
  exported.files = {{"megatron_args.txt", arguments.text()}, {"run_megatron.sh", launch_script(plan), true}};
  return exported;
}

}  // namespace mpt::frameworks
