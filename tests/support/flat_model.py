# SPDX-License-Identifier: Apache-2.0
"""A model of a plan with one value for each size, for readers of models whose layers differ in windows and experts alone."""


def layer_kinds(model):
    """The kind of each layer."""
    layers = model["layers"]
    return [layers["kinds"][name] for run in layers["order"] for name in run["of"] * run["repeat"]]


def letter(kind):
    """As patterns of hybrid models have it."""
    return "M" if "linear" in kind else "*" if "attention" in kind else "E" if "moe" in kind else "-"


def flat_mlp(mlp):
    return {"ffn_hidden": mlp["ffn_hidden"], "gated_mlp": mlp["gated"], "activation": mlp["activation"],
            "activation_limit": mlp.get("activation_limit"), "mlp_bias": mlp.get("bias", False)}


def flat_experts(kinds):
    moe = next(kind["moe"] for kind in kinds if "moe" in kind)
    defaults = {"shared_ffn_hidden": 0, "shared_gate": False, "router_bias": False, "balance_loss": 0.001, "expert_groups": 1,
                "groups_per_token": 1, "scores": "softmax", "normalized": True, "routed_scale": 1.0, "bias_in_logits": False, "bias_rate": 0.001}
    return {**defaults, **moe, "expert_ffn_hidden": moe["expert"]["ffn_hidden"], "layers": ["moe" in kind for kind in kinds]}


def flat(model):
    """Values of the lowest layer that has them. "windowed" and moe's "layers" say for each layer whether it is of that kind."""
    kinds = layer_kinds(model)
    none = {"heads": 0, "kv_heads": 0, "head_dim": 0}  # every layer is linear
    attention = next((kind["attention"] for kind in kinds if "attention" in kind), none)
    rotary = attention.get("rotary", {"base": 10000.0})
    windows = [kind.get("attention", {}).get("window") for kind in kinds]
    has_experts = any("moe" in kind for kind in kinds)
    mlp = next((kind["mlp"] for kind in kinds if "mlp" in kind), None) or next(kind["moe"]["expert"] for kind in kinds if "moe" in kind)
    defaults = {"norm_placement": "pre", "norm_bias": True, "norm_epsilon": 1e-5, "parallel_residual": False, "embedding_norm": False,
                "head_bias": False, "next_token_layers": 0}
    return {**defaults, **model, "layers": len(kinds), "pattern": "".join(map(letter, kinds)), "attention": "latent" if "latent" in attention else "multi_head",
            **{key: attention[key] for key in ("heads", "kv_heads", "head_dim")}, "latent": attention.get("latent"),
            "qkv_bias": attention.get("qkv_bias", False), "attention_output_bias": attention.get("output_bias", False),
            "query_key_norm": attention.get("query_key_norm", "none"), "attention_sinks": attention.get("sinks", False),
            "rotary_base": rotary["base"], "rotary_fraction": rotary.get("fraction", 1.0), "rotary_scaling": rotary.get("scaling"),
            "sliding_window": next((window for window in windows if window), None),
            "windowed": [window is not None for window in windows], **flat_mlp(mlp), "moe": flat_experts(kinds) if has_experts else None}
