# SPDX-License-Identifier: Apache-2.0
"""torchtitan: its configuration of the model against the plan's model, field by field."""


def once(values):
    """The value that all layers share, or the list of different ones."""
    values = list(values)
    return values[0] if all(value == values[0] for value in values) else values


def compare_rotary(c, rope):
    model, scaling = c.model, c.model.get("rotary_scaling")
    c.same("rotary_base", model["rotary_base"], float(rope.theta))
    c.same("rotary dimensions", model["latent"]["rope_head_dim"] if model["latent"] else model["head_dim"], rope.dim)
    if not scaling:
        c.same("rotary_scaling", "none", rope.scaling)
    elif scaling["kind"] == "llama3":
        c.same("rotary_scaling", "llama", rope.scaling)
        c.same("rotary_scaling.factor", scaling["factor"], rope.scaling_factor)
        c.same("rotary_scaling.low_frequency_factor", scaling["low_frequency_factor"], rope.low_freq_factor)
        c.same("rotary_scaling.high_frequency_factor", scaling["high_frequency_factor"], rope.high_freq_factor)
        c.same("rotary_scaling.original_positions", scaling["original_positions"], rope.original_max_position_embeddings)
    else:
        c.same("rotary_scaling", "yarn", rope.scaling)
        c.same("rotary_scaling.factor", scaling["factor"], float(rope.rope_factor))
        c.same("rotary_scaling.original_positions", scaling["original_positions"], rope.original_seq_len)
        c.same("rotary_scaling.whole_dimensions", scaling["whole_dimensions"], rope.truncate)
        c.same("rotary_scaling, turns", (scaling["beta_fast"], scaling["beta_slow"]), (float(rope.beta_fast), float(rope.beta_slow)))


def compare_attention(c, layers):
    model = c.model
    attention = layers[0].attention
    c.same("heads", model["heads"], once(layer.attention.n_heads for layer in layers))
    c.same("kv_heads", model["kv_heads"], once(layer.attention.n_kv_heads or layer.attention.n_heads for layer in layers))
    c.same("head_dim", model["head_dim"], attention.head_dim or attention.dim // attention.n_heads)
    wqkv = attention.qkv_linear.wqkv
    c.same("rows of queries, keys and values", (model["heads"] + 2 * model["kv_heads"]) * model["head_dim"], wqkv.out_features)
    c.same("qkv_bias", model["qkv_bias"], wqkv.bias)
    c.same("attention_output_bias", model["attention_output_bias"], attention.wo.bias)
    norm = getattr(attention, "qk_norm", None)
    c.same("query_key_norm", model["query_key_norm"], "per_head" if norm else "none")
    if norm:
        c.same("sizes of the norms of queries and keys", (model["head_dim"], model["norm_epsilon"]), (norm.normalized_shape, norm.eps))
    windows = [getattr(layer.attention, "sliding_window_size", None) for layer in layers]
    c.same("sliding windows", [model["sliding_window"] if windowed else None for windowed in model["windowed"]], windows)
    c.same("attention_sinks", model["attention_sinks"], "sinks" in (getattr(attention, "param_init", None) or {}))
    compare_rotary(c, attention.rope)


def compare_latent(c, layers):
    """Sizes of latent attention in each layer, its norms, and YaRN's scale of scores, which torchtitan has for both of them."""
    model, latent = c.model, c.model["latent"]
    attention, scaling = layers[0].attention, c.model.get("rotary_scaling")
    c.same("heads", model["heads"], once(layer.attention.n_heads for layer in layers))
    sizes = [latent[key] for key in ("query_rank", "key_value_rank", "nope_head_dim", "rope_head_dim", "value_head_dim")]
    c.same("latent", sizes, once([layer.attention.q_lora_rank, layer.attention.kv_lora_rank, layer.attention.qk_nope_head_dim,
                                  layer.attention.qk_rope_head_dim, layer.attention.v_head_dim] for layer in layers))
    norms = [(latent["key_value_rank"], attention.kv_norm)] + ([(latent["query_rank"], attention.q_norm)] if latent["query_rank"] else [])
    for size, norm in norms:
        c.same("norm of a latent", (size, model["norm_epsilon"]), (norm.normalized_shape, norm.eps))
    c.same("rows of keys and values", model["heads"] * (latent["nope_head_dim"] + latent["value_head_dim"]), attention.wkv_b.out_features)
    if scaling:
        c.same("scales of scores", [attention.mscale] * 2, [scaling["mscale"], scaling["mscale_all_dim"]])
    compare_rotary(c, attention.rope)


def compare_experts(c, layers):
    moe = c.model["moe"]
    c.same("layers with experts", moe["layers"], [layer.moe is not None for layer in layers])
    with_experts = [layer.moe for layer in layers if layer.moe is not None]
    one, router = with_experts[0], with_experts[0].router
    c.same("moe.experts", moe["experts"], once(each.num_experts for each in with_experts))
    c.same("moe.experts_per_token", moe["experts_per_token"], once(each.router.top_k for each in with_experts))
    c.same("moe.expert_ffn_hidden", moe["expert_ffn_hidden"], once(each.routed_experts.inner_experts.hidden_dim for each in with_experts))
    c.same("moe.shared_ffn_hidden", moe["shared_ffn_hidden"], one.shared_experts.w1.out_features if one.shared_experts else 0)
    biased = moe["router_bias"] and not moe["bias_in_logits"]
    # Its gpt-oss takes the softmax of the chosen logits, whatever the router's fields say.
    if not c.model["mlp_bias"]:
        c.same("router", (moe["scores"], moe["normalized"], moe["routed_scale"]), (router.score_func, router.route_norm, float(router.route_scale)))
    c.same("bias of the router's product", moe["router_bias"] and moe["bias_in_logits"], router.gate.bias)
    c.same("groups of experts", (moe["expert_groups"], moe["groups_per_token"]), (router.num_expert_groups or 1, router.num_limited_groups or 1))
    if biased or moe["balance_loss"] == 0:
        c.same("step of the bias that balances experts", moe["bias_rate"] if biased else None, one.load_balance_coeff)


def compare_model(c, model):
    """Every field of the plan's model that torchtitan's configuration holds."""
    layers, planned = model.layers, c.model
    c.same("layers", planned["layers"], len(layers))
    c.same("hidden", (planned["hidden"],) * 3, (model.dim, model.tok_embeddings.embedding_dim, model.lm_head.in_features))
    c.same("vocab", (planned["vocab"],) * 3, (model.vocab_size, model.tok_embeddings.num_embeddings, model.lm_head.out_features))
    c.same("head_bias", planned["head_bias"], model.lm_head.bias)
    c.same("tied_embeddings", planned["tied_embeddings"], model.enable_weight_tying)
    c.same("next_token_layers", planned["next_token_layers"], len(getattr(model, "mtp_layers", None) or []))
    norms = [model.norm] + [norm for layer in layers for norm in (layer.attention_norm, layer.ffn_norm)]
    c.same("norm", planned["norm"], once({"RMSNorm.Config": "rms_norm"}.get(type(norm).__qualname__, "other") for norm in norms))
    c.same("norm_epsilon", planned["norm_epsilon"], once(norm.eps for norm in norms))
    c.same("sizes of norms", planned["hidden"], once(norm.normalized_shape for norm in norms))
    dense = [layer.feed_forward for layer in layers if layer.feed_forward is not None]
    if dense:
        c.same("ffn_hidden", planned["ffn_hidden"], once(one.w1.out_features for one in dense))
        c.same("gated_mlp", planned["gated_mlp"], all(one.w3 is not None for one in dense))
        c.same("mlp_bias", planned["mlp_bias"], once(one.w1.bias for one in dense))
    if planned["moe"] is not None:
        compare_experts(c, layers)
    else:
        c.same("layers with experts", 0, sum(layer.moe is not None for layer in layers))
    (compare_attention if planned["attention"] == "multi_head" else compare_latent)(c, layers)
    c.same("attention", planned["attention"], "latent" if hasattr(layers[0].attention, "kv_lora_rank") else "multi_head")
