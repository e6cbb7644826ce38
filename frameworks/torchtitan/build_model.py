# SPDX-License-Identifier: Apache-2.0
"""torchtitan's configuration of the model MODEL, as a plan describes it. Exports put it into mpt_torchtitan.py; lines between "# if NAME"
(or "# if not NAME") and "# end" stay if the condition holds. torchtitan/models/common/config_utils.py has the pieces."""

import dataclasses
import functools
import torch.nn as nn
from torchtitan.models.common import ComplexRoPE, CosSinRoPE, Embedding, Linear
from torchtitan.models.common.config_utils import get_attention_config, make_ffn_config, make_gqa_config, make_moe_config
from torchtitan.models.common.config_utils import make_routed_experts_config, make_router_config
from torchtitan.models.common.nn_modules import RMSNorm
from torchtitan.models.common.param_init import skip_param_init
from torchtitan.models.llama3 import make_mla_attention_config, model_registry  # part
from torchtitan.models.llama3.model import Llama3Model as Model, Llama3TransformerBlock as Block  # part

# body
# plan
MODEL = {}
# end plan
KINDS = [MODEL["layers"]["kinds"][name] for run in MODEL["layers"]["order"] for name in run["of"] * run["repeat"]]
ATTENTION = KINDS[0]["attention"]
LINEAR = {"weight": functools.partial(nn.init.trunc_normal_, std=0.02), "bias": nn.init.zeros_}
EMBEDDING = {"weight": skip_param_init if MODEL["tied_embeddings"] else functools.partial(nn.init.normal_, std=1.0)}
EXPERTS = {name: LINEAR["weight"] for name in ("w1_EFD", "w2_EDF", "w3_EFD")}


def norm_of(size):
    return RMSNorm.Config(normalized_shape=size, eps=MODEL["norm_epsilon"], param_init={"weight": nn.init.ones_})


def rope(dim):
    """Llama 3's scaling of the frequencies, YaRN's, or none."""
    scaling = ATTENTION["rotary"].get("scaling")
    scaled = {}
    if scaling and scaling["kind"] == "yarn":
        scaled = dict(scaling="yarn", rope_factor=scaling["factor"], original_seq_len=scaling["original_positions"],
                      beta_fast=scaling["beta_fast"], beta_slow=scaling["beta_slow"], truncate=scaling["whole_dimensions"])
    elif scaling:
        scaled = dict(scaling="llama", scaling_factor=scaling["factor"], low_freq_factor=scaling["low_frequency_factor"],
                      high_freq_factor=scaling["high_frequency_factor"],
                      original_max_position_embeddings=scaling["original_positions"])
# if qwen3
    kind = ComplexRoPE if scaling else CosSinRoPE
# end
# if not qwen3
    kind = ComplexRoPE
# end
    return kind.Config(dim=dim, max_seq_len=MODEL["max_positions"], theta=ATTENTION["rotary"]["base"], **scaled)


def feed_forward(layer):
    """Experts, or the dense layer where the model has none."""
    moe = KINDS[layer].get("moe")
    if not moe:
        return dict(feed_forward=make_ffn_config(
            dim=MODEL["hidden"], hidden_dim=KINDS[layer]["mlp"]["ffn_hidden"], w1_param_init=LINEAR, w2w3_param_init=LINEAR))
    # torchtitan has no balance loss: a bias in the choice of experts, moved by this much per step, does its work.
    balance = moe.get("bias_rate", 1e-3) if moe.get("router_bias") or moe["balance_loss"] else None
    shared = moe.get("shared_ffn_hidden")
    groups = moe.get("expert_groups", 1)
    limited = dict(num_expert_groups=groups, num_limited_groups=moe["groups_per_token"]) if groups > moe.get("groups_per_token", groups) else {}
    return dict(moe=make_moe_config(
        num_experts=moe["experts"], load_balance_coeff=balance,
        shared_experts=make_ffn_config(
            dim=MODEL["hidden"], hidden_dim=shared, w1_param_init=LINEAR, w2w3_param_init=LINEAR) if shared else None,
        router=make_router_config(
            dim=MODEL["hidden"], num_experts=moe["experts"], gate_param_init=LINEAR, top_k=moe["experts_per_token"],
            score_func=moe.get("scores", "softmax"), route_norm=moe.get("normalized", True),
            route_scale=moe.get("routed_scale", 1.0), **limited),
        routed_experts=make_routed_experts_config(
            dim=MODEL["hidden"], hidden_dim=moe["expert"]["ffn_hidden"], num_experts=moe["experts"],
            top_k=moe["experts_per_token"], param_init=EXPERTS, comm_backend="standard")))


# if latent
def attention():
    """Latent attention, whose norms get the model's epsilon. Of YaRN's two scales there is one: they are equal."""
    latent, scaling = ATTENTION["latent"], ATTENTION["rotary"].get("scaling") or {}
    made = make_mla_attention_config(
        layer_id=0, dim=MODEL["hidden"], n_heads=ATTENTION["heads"], q_lora_rank=latent["query_rank"],
        kv_lora_rank=latent["key_value_rank"], qk_nope_head_dim=latent["nope_head_dim"], qk_rope_head_dim=latent["rope_head_dim"],
        v_head_dim=latent["value_head_dim"], mscale=scaling.get("mscale", 1.0), attn_backend="flex", linear_init=LINEAR,
        norm_init={"weight": nn.init.ones_}, depth_init=lambda layer: LINEAR, rope=rope(latent["rope_head_dim"]))
    return dataclasses.replace(
        made, kv_norm=norm_of(latent["key_value_rank"]), q_norm=norm_of(latent["query_rank"] or 1))
# end
# if not latent
def attention():
    return make_gqa_config(
        dim=MODEL["hidden"], n_heads=ATTENTION["heads"], n_kv_heads=ATTENTION["kv_heads"], head_dim=ATTENTION["head_dim"],
        wqkv_param_init=LINEAR, wo_param_init=LINEAR, inner_attention=get_attention_config("flex"), fuse_qkv=True,
        rope=rope(ATTENTION["head_dim"]),
        qk_norm=norm_of(ATTENTION["head_dim"]) if ATTENTION.get("query_key_norm") == "per_head" else None)
# end


def layer_of(layer):
    return Block.Config(
        attention_norm=norm_of(MODEL["hidden"]), ffn_norm=norm_of(MODEL["hidden"]), attention=attention(), **feed_forward(layer))


def build_model(converters=()):
    """The plan's model of torchtitan's parts."""
    model = Model.Config(
        dim=MODEL["hidden"], vocab_size=MODEL["vocab"], enable_weight_tying=MODEL["tied_embeddings"],
        tok_embeddings=Embedding.Config(
            num_embeddings=MODEL["vocab"], embedding_dim=MODEL["hidden"], param_init=EMBEDDING),
        norm=norm_of(MODEL["hidden"]),
        lm_head=Linear.Config(in_features=MODEL["hidden"], out_features=MODEL["vocab"], param_init=LINEAR),
        layers=[layer_of(layer) for layer in range(len(KINDS))])
    for converter in converters:
        model = converter.build().convert(model)
    return dataclasses.replace(model_registry("debugmodel"), flavor="plan", model=model)
