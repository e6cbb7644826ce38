# SPDX-License-Identifier: Apache-2.0
"""transformers: the model that its configuration class reads from config.json against the plan's model, field by field."""

import json
import os

from flat_model import layer_kinds

ACTIVATIONS = {"silu": "silu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "relu": "relu", "squared_relu": "relu2"}


def first(config, *names):
    """The value under the first of these names that the class has."""
    return next((getattr(config, name) for name in names if hasattr(config, name)), None)


def compare_rotary(c, config):
    rotary, scaling = config.rope_parameters, c.model.get("rotary_scaling")
    c.same("rotary_base", c.model["rotary_base"], float(rotary["rope_theta"]))
    c.same("rotary_fraction", c.model["rotary_fraction"], float(rotary.get("partial_rotary_factor") or 1.0))
    c.same("rotary_scaling", {None: "default"}.get(scaling and scaling["kind"], scaling and scaling["kind"]), rotary["rope_type"])
    if scaling and scaling["kind"] == "llama3":
        for field, name in (("factor", "factor"), ("low_frequency_factor", "low_freq_factor"),
                            ("high_frequency_factor", "high_freq_factor"), ("original_positions", "original_max_position_embeddings")):
            c.same(f"rotary_scaling.{field}", scaling[field], rotary[name])


def compare_experts(c, config):
    moe = c.model["moe"]
    c.same("moe.experts", moe["experts"], first(config, "num_local_experts", "num_experts", "n_routed_experts"))
    c.same("moe.experts_per_token", moe["experts_per_token"], config.num_experts_per_tok)
    c.same("moe.expert_ffn_hidden", moe["expert_ffn_hidden"], first(config, "moe_intermediate_size", "intermediate_size"))
    c.same("moe.balance_loss", moe["balance_loss"], config.router_aux_loss_coef)
    c.same("the balance loss is added", moe["balance_loss"] > 0, config.output_router_logits)  # modeling_mixtral.py reads it so


def differs_by_layer(model):
    """Whether layers differ in more than windows and experts."""
    parts = [{key: value for key, value in kind.get("attention", {}).items() if key != "window"} for kind in layer_kinds(model)]
    return any(part != parts[0] for part in parts)


def compare_config(c, config):
    model = c.model
    c.same("layers", model["layers"], config.num_hidden_layers)
    c.same("hidden", model["hidden"], config.hidden_size)
    c.same("vocab", model["vocab"], config.vocab_size)
    if differs_by_layer(c.plan["model"]):  # model_counts_test.py compares the parameters and work of such models
        c.same("tied_embeddings", model["tied_embeddings"], config.tie_word_embeddings)
        return
    c.same("heads", model["heads"], config.num_attention_heads)
    c.same("kv_heads", model["kv_heads"], first(config, "num_key_value_heads", "num_attention_heads"))
    if model["attention"] != "latent":  # whose head_dim is the rotary part in transformers
        c.same("head_dim", model["head_dim"], getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    c.same("norm_epsilon", model["norm_epsilon"], first(config, "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon") or 1e-5)  # OPT's is PyTorch's
    activation = first(config, "hidden_act", "activation_function")
    # One function under two names (transformers/activations.py: NewGELUActivation, PytorchGELUTanh).
    c.same("activation", ACTIVATIONS[model["activation"]], "gelu_pytorch_tanh" if activation == "gelu_new" else activation)
    c.same("tied_embeddings", model["tied_embeddings"], config.tie_word_embeddings)
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    c.same("sliding_window", model.get("sliding_window"), window)
    if model["moe"] is None:
        c.same("ffn_hidden", model["ffn_hidden"], first(config, "intermediate_size", "n_inner", "ffn_dim"))
    else:
        compare_experts(c, config)
    if model["position"] == "rotary":
        compare_rotary(c, config)


def compare_weights(c, model):
    """What only the built model shows: biases, and norms of queries and keys."""
    names = [name for name, _ in model.named_parameters()]
    c.same("qkv_bias", c.model["qkv_bias"],
           any(word in name for name in names for word in ("q_proj.bias", "c_attn.bias", "query_key_value.bias")))
    c.same("attention_output_bias", c.model["attention_output_bias"],
           any(word in name for name in names for word in ("o_proj.bias", "out_proj.bias", "attn.c_proj.bias", "attention.dense.bias")))
    c.same("query_key_norm", c.model["query_key_norm"] != "none", any("q_norm" in name for name in names))


def compare_model(c, folder, reference):
    """`reference` is what the export names: a model of the hub, or the file beside it."""
    if reference != "config.json":
        known = os.path.join(os.path.dirname(__file__), "../../../models/zoo", c.model["name"] + ".json")
        with open(known, encoding="utf-8") as file:
            c.same("model on the hub", json.load(file)["aliases"][0], reference)
        c.same("balance loss of a model on the hub", False, c.model["moe"] is not None and c.model["moe"]["balance_loss"] > 0)
        return None
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    config = AutoConfig.from_pretrained(os.path.join(folder, reference))
    compare_config(c, config)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    compare_weights(c, model)
    return config
