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
    c.same("activation_limit", model.get("activation_limit"), config.activation_func_clamp_value)
    c.same("offset of the linear half", 1.0 if model.get("activation_limit") else 0.0, config.glu_linear_offset)
    compare_window(c, config)
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


def compare_window(c, config):
    """Sliding windows: Megatron-LM counts keys to the left of a query's own; in every n-th layer, or by a list, all keys are seen."""
    model, skips = c.model, config.window_attn_skip_freq
    window = model.get("sliding_window")
    c.same("attention_sinks", "learnable" if model["attention_sinks"] else "vanilla", config.softmax_type)
    c.same("sliding_window", [window - 1, 0] if window else None, list(config.window_size) if config.window_size else None)
    if window:
        layers = range(model["layers"])
        held = skips if isinstance(skips, list) else [int(skips is None or (layer + 1) % skips != 0) for layer in layers]
        c.same("windowed layers", [int(windowed) for windowed in model["windowed"]], held)


def compare_yarn(c, config):
    """YaRN outside latent attention, as gpt-oss has it (its config.json)."""
    scaling = c.model["rotary_scaling"]
    planned = [scaling["factor"], 4096, 32.0, 1.0, False]
    if scaling["kind"] == "yarn":
        planned = [scaling[key] for key in ("factor", "original_positions", "beta_fast", "beta_slow", "whole_dimensions")]
    c.same("yarn", planned, [config.yarn_rotary_scaling_factor, config.yarn_original_max_position_embeddings, config.yarn_beta_fast,
                             config.yarn_beta_slow, config.yarn_correction_range_round_to_int])


def compare_latent(c, config):
    latent, scaling = c.model["latent"], c.model.get("rotary_scaling")
    c.same("latent.query_rank", latent["query_rank"] or None, config.q_lora_rank)
    c.same("latent.key_value_rank", latent["key_value_rank"], config.kv_lora_rank)
    c.same("latent.nope_head_dim", latent["nope_head_dim"], config.qk_head_dim)
    c.same("latent.rope_head_dim", latent["rope_head_dim"], config.qk_pos_emb_head_dim)
    c.same("latent.value_head_dim", latent["value_head_dim"], config.v_head_dim)
    c.same("norms of the latents", True, bool(config.qk_layernorm))
    c.same("rotary_base", float(c.model["rotary_base"]), float(config.rotary_base))
    c.same("rope_type", "yarn" if scaling else "rope", config.rope_type)
    if scaling:
        scale = 1.0 if c.model["moe"]["router_bias"] else 0.707  # config.json of DeepSeek-V3 and V2
        planned = [scale, scale, 4096, 32.0, 1.0]
        if scaling["kind"] == "yarn":
            planned = [scaling[key] for key in ("mscale", "mscale_all_dim", "original_positions", "beta_fast", "beta_slow")]
        c.same("rotary_scaling", [float(scaling["factor"]), *planned],
               [float(config.rotary_scaling_factor), config.mscale, config.mscale_all_dim, config.original_max_position_embeddings,
                config.beta_fast, config.beta_slow])


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
    c.same("moe layers", [int(experts) for experts in moe["layers"]], frequency)
    c.same("moe.router_bias", (moe["router_bias"] and not moe["bias_in_logits"], moe["router_bias"] and moe["bias_in_logits"]),
           (config.moe_router_enable_expert_bias, config.add_bias_linear))
    if moe["router_bias"] and not moe["bias_in_logits"]:
        c.same("moe.bias_rate", moe["bias_rate"], config.moe_router_bias_update_rate)
    compare_router(c, config)
    dispatcher = "flex" if c.execution["deduplicates_dispatch"] else "alltoall"
    c.same("dispatcher", dispatcher, config.moe_token_dispatcher_type if c.layout["expert"] > 1 else dispatcher)


# Score function, whether weights add up to 1, and scale, by the models' config.json and papers: a plan's model says the same.
ROUTERS = {"deepseek-v3": ("sigmoid", True, 2.5), "deepseek-v2": ("softmax", False, 16.0), "mixtral-8x7b": ("softmax", True, 1.0)}


def weights_of_megatron(config):
    """Whether a token's weights add up to 1: topk_routing_with_score_function in megatron/core/transformer/moe/moe_utils.py."""
    if config.moe_router_score_function == "softmax":
        return not config.moe_router_pre_softmax
    return config.moe_router_topk > 1


def compare_router(c, config):
    moe = c.model["moe"]
    planned = (moe["scores"], moe["normalized"], moe["routed_scale"])
    c.same("router by its papers", ROUTERS.get(c.model["name"], planned), planned)
    c.same("router", planned, (config.moe_router_score_function, weights_of_megatron(config), config.moe_router_topk_scaling_factor or 1.0))
    c.same("moe.shared_gate", moe["shared_gate"], config.moe_shared_expert_gate)
    c.same("moe.balance_loss", moe["balance_loss"], config.moe_aux_loss_coeff)
    # aux_loss would balance a whole micro-batch, whose size then changes what is trained.
    c.same("kind of the balancing loss", "none" if moe["balance_loss"] == 0 else "seq_aux_loss", config.moe_router_load_balancing_type)
    if moe["experts"] >= 32 or c.execution["deduplicates_dispatch"]:
        c.same("type of the router", "fp32", config.moe_router_dtype)
    c.same("experts in one product", True, config.moe_grouped_gemm)
    c.same("capacity of experts", None, config.moe_expert_capacity_factor)


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
    if layout["recompute"] == "selective":
        names = {"core": "core_attn", "norms": "layernorm", "latent": "mla_up_proj", "expert_activation": "moe_act", "mlp": "mlp",
                 "experts": "moe", "shared_experts": "shared_experts", "delta_norm": "gdn_norm_out", "streams": "mhc"}
        c.same("recomputed modules", sorted(names[key] for key, given in layout["selective"].items() if given),
               sorted(config.recompute_modules or ["core_attn"]))
    if layout["tensor"] > 1:
        c.same("overlap_tensor", layout["overlap_tensor"], bool(config.tp_comm_overlap))
    if layout["pipeline"] > 1 and layout["chunks"] > 1:
        c.same("overlap_transfer", layout["overlap_transfer"], bool(config.overlap_p2p_comm))
    c.same("overlap_exchange", layout["overlap_exchange"], bool(config.overlap_moe_expert_parallel_comm))
    compare_sharding(c, ddp)
    compare_precision(c, config, ddp)


def training(c):
    """What the plan says of training beside full training by AdamW."""
    return c.layout.get("training", {})


def compare_sharding(c, ddp):
    layout = c.layout
    if c.replicas > 1:
        c.same("overlap_gradient_reduce", layout["overlap_gradient_reduce"], bool(ddp.overlap_grad_reduce))
        c.same("overlap_parameter_gather", layout["overlap_parameter_gather"] and layout["zero"] > 0, bool(ddp.overlap_param_gather))
    zero = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}[ddp.data_parallel_sharding_strategy]
    if not ddp.use_megatron_fsdp:
        layer_wise = training(c).get("optimizer") == "muon"  # Megatron moves the switch to its layer-wise optimizer
        zero = layout["zero"] if layer_wise else int(bool(ddp.use_distributed_optimizer))
    c.same("zero", layout["zero"], zero)
    if layout["zero"] == 1:
        c.same("shard", layout["shard"], c.replicas // ddp.num_distributed_optimizer_instances)


def compare_precision(c, config, ddp):
    precision = c.layout["precision"]
    c.same("type of weights", {"fp16": torch.float16, "fp32": torch.float32}.get(precision, torch.bfloat16), config.params_dtype)
    c.same("products in 8 bits", precision in ("fp8", "mxfp8"), bool(config.fp8))
    c.same("products in 4 bits", precision == "nvfp4", bool(config.fp4))
    if precision in ("fp8", "mxfp8"):
        c.same("recipe of fp8", ["tensorwise", "hybrid"] if precision == "fp8" else ["mxfp8", "e4m3"], [config.fp8_recipe, config.fp8])
        c.same("layers left in bf16", False, bool(config.first_last_layers_bf16))
        c.same("weights kept in fp8", c.execution["fp8_weight_bytes"] == 1, bool(config.fp8_param))
    if precision == "nvfp4":
        c.same("recipe of fp4", ["nvfp4", "e2m1"], [config.fp4_recipe, config.fp4])
    if precision not in ("fp16", "fp32") and not ddp.use_megatron_fsdp and c.replicas > 1:
        c.same("gradients summed in fp32", gradient_bytes(c) == 4, bool(ddp.grad_reduce_in_fp32))


def gradient_bytes(c):
    """Of an element that the plan counts."""
    if training(c).get("bf16_gradients"):
        return 2
    return c.execution["gradient_bytes"] or 4


def compare_optimizer(c, optimizer):
    c.same("offload_optimizer", c.layout["offload_optimizer"], bool(optimizer.optimizer_cpu_offload))
    c.same("precision-aware optimizer", c.layout["offload_optimizer"], bool(optimizer.use_precision_aware_optimizer))
    c.same("types of the optimizer's states", [torch.float32] * 3, [optimizer.main_params_dtype, optimizer.exp_avg_dtype, optimizer.exp_avg_sq_dtype])
    c.same("optimizer", {"sgd": "sgd", "muon": "muon"}.get(training(c).get("optimizer"), "adam"), optimizer.optimizer)


def queues_of_launches(c):
    """CUDA_DEVICE_MAX_CONNECTIONS: Megatron-FSDP refuses 1, the overlap of the exchange wants several, all others rely on 1."""
    layout = c.layout
    if layout["zero"] >= 2:
        return None
    return "32" if layout["overlap_exchange"] and layout["tensor"] == layout["context"] == 1 else "1"
