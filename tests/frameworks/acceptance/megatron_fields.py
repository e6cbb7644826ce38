# SPDX-License-Identifier: Apache-2.0
"""What Megatron-LM's configuration classes say, compared with a plan. Megatron-LM and Megatron-Bridge both end in these classes."""

import torch

from megatron.core import parallel_state
from megatron.core.transformer.transformer_block import get_num_layers_to_build


def compare_model(c, config):
    """Sizes, norms and attention of the model."""
    model = c.model
    c.same("layers", model["layers"], config.num_layers)
    c.same("hidden", model["hidden"], config.hidden_size)
    c.same("ffn_hidden", model["ffn_hidden"], config.ffn_hidden_size)
    c.same("heads", model["heads"], config.num_attention_heads)
    c.same("norm", {"rms_norm": "RMSNorm", "layer_norm": "LayerNorm"}[model["norm"]], config.normalization)
    c.same("norm_epsilon", model["norm_epsilon"], config.layernorm_epsilon)
    c.same("gated_mlp", model["gated_mlp"], config.gated_linear_unit)
    activation = getattr(config.activation_func, "__name__", str(config.activation_func))
    clamped = "quick_gelu" if model["name"].startswith("gpt-oss") else model["activation"].replace("gelu_tanh", "gelu")
    c.same("activation", clamped, activation)  # gpt-oss gates with x * sigmoid(1.702 x), which Megatron-LM calls quick_gelu
    c.same("mlp_bias", model["mlp_bias"], config.add_bias_linear)
    c.same("qkv_bias", model["qkv_bias"], config.add_qkv_bias or config.add_bias_linear)
    c.same("next_token_layers", model["next_token_layers"], config.mtp_num_layers or 0)
    c.same("dropout", c.execution["dropout"], config.attention_dropout > 0 or config.hidden_dropout > 0)
    if model["attention"] == "latent":
        compare_latent(c, config)
    else:
        c.same("kv_heads", model["kv_heads"], config.num_query_groups)
        c.same("head_dim", model["head_dim"], config.kv_channels)
        c.same("query_key_norm", model["query_key_norm"] != "none", bool(config.qk_layernorm))
    if model.get("moe"):
        compare_experts(c, config)
    else:
        c.same("experts", None, config.num_moe_experts)


def compare_latent(c, config):
    latent, scaling = c.model["latent"], c.model.get("rotary_scaling")
    c.same("latent.query_rank", latent["query_rank"] or None, config.q_lora_rank)
    c.same("latent.key_value_rank", latent["key_value_rank"], config.kv_lora_rank)
    c.same("latent.nope_head_dim", latent["nope_head_dim"], config.qk_head_dim)
    c.same("latent.rope_head_dim", latent["rope_head_dim"], config.qk_pos_emb_head_dim)
    c.same("latent.value_head_dim", latent["value_head_dim"], config.v_head_dim)
    c.same("norms of the latents", True, bool(config.qk_layernorm))
    c.same("rotary_base", float(c.model["rotary_base"]), float(config.rotary_base))
    if scaling:
        c.same("rotary_scaling.factor", float(scaling["factor"]), float(config.rotary_scaling_factor))


def compare_experts(c, config):
    moe = c.model["moe"]
    c.same("moe.experts", moe["experts"], config.num_moe_experts)
    c.same("moe.experts_per_token", moe["experts_per_token"], config.moe_router_topk)
    c.same("moe.expert_ffn_hidden", moe["expert_ffn_hidden"], config.moe_ffn_hidden_size)
    c.same("moe.shared_ffn_hidden", moe["shared_ffn_hidden"] or None, config.moe_shared_expert_intermediate_size)
    c.same("moe.expert_groups", moe["expert_groups"] if moe["expert_groups"] > 1 else None, config.moe_router_num_groups)
    if moe["expert_groups"] > 1:
        c.same("moe.groups_per_token", moe["groups_per_token"], config.moe_router_group_topk)
    frequency = config.moe_layer_freq
    if isinstance(frequency, int):
        frequency = [int(i % frequency == 0) for i in range(config.num_layers)]
    dense = moe["leading_dense_layers"]
    c.same("moe layers", [int(i >= dense and (i - dense) % moe["layer_interval"] == 0) for i in range(c.model["layers"])], frequency)
    c.same("moe.router_bias", moe["router_bias"], config.moe_router_enable_expert_bias or config.add_bias_linear)
    if c.model["name"] == "deepseek-v3":  # its technical report: sigmoid scores, scaled by 2.5
        c.same("router score", "sigmoid", config.moe_router_score_function)
        c.same("router scale", 2.5, config.moe_router_topk_scaling_factor)
    dispatcher = "flex" if c.execution["deduplicates_dispatch"] else "alltoall"
    c.same("dispatcher", dispatcher, config.moe_token_dispatcher_type if c.layout["expert"] > 1 else dispatcher)


def layers_of_stages(config, layout):
    """Layers that the framework builds for each virtual stage, in the order of the model."""
    chunks, counts = layout["chunks"], []
    parallel_state.set_virtual_pipeline_model_parallel_world_size(chunks if chunks > 1 else None)
    for stage in range(layout["pipeline"] * chunks):
        rank = stage % layout["pipeline"]
        parallel_state.set_pipeline_model_parallel_rank(rank)
        parallel_state.set_pipeline_model_parallel_world_size(layout["pipeline"])
        counts.append(get_num_layers_to_build(config, stage // layout["pipeline"] if chunks > 1 else None, rank))
    return counts


def recomputed_of_stages(config, layers):
    if config.recompute_granularity != "full":
        return [0] * len(layers)
    if config.recompute_method == "uniform":
        return layers
    return [min(config.recompute_num_layers, count) for count in layers]


def compare_layout(c, config, ddp):
    """Degrees, stages, recompute, overlap and ZeRO."""
    layout = c.layout
    c.same("tensor", layout["tensor"], config.tensor_model_parallel_size)
    c.same("pipeline", layout["pipeline"], config.pipeline_model_parallel_size)
    c.same("chunks", layout["chunks"], config.virtual_pipeline_model_parallel_size or 1)
    c.same("context", layout["context"], config.context_parallel_size)
    c.same("expert", layout["expert"], config.expert_model_parallel_size)
    if layout["expert"] > 1:
        c.same("expert_tensor", layout["expert_tensor"] or layout["tensor"], config.expert_tensor_parallel_size)
    c.same("sequence_parallel", layout["sequence_parallel"], config.sequence_parallel)
    c.same("schedule", layout["schedule"] if layout["pipeline"] > 1 else "1f1b",
           "interleaved" if (config.virtual_pipeline_model_parallel_size or 1) > 1 else "1f1b")
    if layout["context"] > 1:
        c.same("context_method", {"ring": "p2p", "all_to_all": "a2a"}[layout["context_method"]], config.cp_comm_type or "p2p")
    layers = layers_of_stages(config, layout)
    c.same("layers_per_stage", c.layers_of_stages, layers)
    c.same("layers recomputed in each stage", c.recomputed_of_stages, recomputed_of_stages(config, layers))
    c.same("selective recompute", layout["recompute"] == "selective", config.recompute_granularity == "selective")
    if layout["tensor"] > 1:
        c.same("overlap_tensor", layout["overlap_tensor"], bool(config.tp_comm_overlap))
    if layout["pipeline"] > 1 and layout["chunks"] > 1:
        c.same("overlap_transfer", layout["overlap_transfer"], bool(config.overlap_p2p_comm))
    c.same("overlap_exchange", layout["overlap_exchange"], bool(config.overlap_moe_expert_parallel_comm))
    compare_sharding(c, ddp)
    compare_precision(c, config, ddp)


def compare_sharding(c, ddp):
    layout = c.layout
    if c.replicas > 1:
        c.same("overlap_gradient_reduce", layout["overlap_gradient_reduce"], bool(ddp.overlap_grad_reduce))
        c.same("overlap_parameter_gather", layout["overlap_parameter_gather"] and layout["zero"] > 0, bool(ddp.overlap_param_gather))
    zero = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}[ddp.data_parallel_sharding_strategy]
    if not ddp.use_megatron_fsdp:
        zero = int(bool(ddp.use_distributed_optimizer))
    c.same("zero", layout["zero"], zero)
    if layout["zero"] == 1:
        c.same("shard", layout["shard"], c.replicas // ddp.num_distributed_optimizer_instances)


def compare_precision(c, config, ddp):
    precision = c.layout["precision"]
    c.same("type of weights", {"fp16": torch.float16, "fp32": torch.float32}.get(precision, torch.bfloat16), config.params_dtype)
    c.same("products in 8 bits", precision in ("fp8", "mxfp8"), bool(config.fp8))
    c.same("products in 4 bits", precision == "nvfp4", bool(config.fp4))
    if precision == "mxfp8":
        c.same("recipe of fp8", "mxfp8", config.fp8_recipe)
    if precision not in ("fp16", "fp32") and not ddp.use_megatron_fsdp and c.replicas > 1:
        c.same("gradients summed in fp32", c.execution["bf16_gradient_bytes"] != 2, bool(ddp.grad_reduce_in_fp32))
