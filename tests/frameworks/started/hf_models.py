# SPDX-License-Identifier: Apache-2.0
"""Causal models of transformers with four layers of width 32."""

import torch
from transformers import AutoConfig, AutoModelForCausalLM

BASE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "vocab_size": 64, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
        "initializer_range": 0.2, "attn_implementation": "sdpa"}
WINDOWS = {"sliding_window": 8, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]}
DELTA = {"layer_types": ["linear_attention"] * 3 + ["full_attention"], "linear_num_value_heads": 4, "linear_num_key_heads": 2,
         "linear_key_head_dim": 8, "linear_value_head_dim": 8}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
ABSENT = "absent"  # of a key of BASE that a type has not
NO_HEAD_DIM = {"head_dim": ABSENT}
OLD = dict.fromkeys(("num_key_value_heads", "intermediate_size", "head_dim", "max_position_embeddings"), ABSENT)
GRANITE = {"embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.5, "logits_scaling": 2.0}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 8, "mamba_d_conv": 4, "mamba_chunk_size": 8}
CONVOLUTIONS = {"layer_types": ["conv", "conv", "full_attention", "conv"]}
# Name -> type of transformers, and what it has beside BASE.
KINDS = {
    "llama": ("llama", {}),
    "llama tied": ("llama", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {}),
    "mistral": ("mistral", {"sliding_window": None}),
    "mistral, window": ("mistral", {"sliding_window": 8}),
    "mistral, window beyond the sequence": ("mistral", {"sliding_window": 64}),
    "gemma3, windows": ("gemma3_text", {**WINDOWS, "query_pre_attn_scalar": 8}),
    "gemma3, windows, flex attention": ("gemma3_text", {**WINDOWS, "query_pre_attn_scalar": 8, "attn_implementation": "flex_attention"}),
    "gemma2, soft caps": ("gemma2", {"sliding_window": 64, "query_pre_attn_scalar": 8, "attn_implementation": "eager"}),
    "qwen3-next, linear attention": ("qwen3_next", {**DELTA, "num_experts": 0, "mlp_only_layers": [0, 1, 2, 3]}),
    "qwen3.5, linear attention": ("qwen3_5_text", DELTA),
    "bamba, mamba": ("bamba", {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 8, "mamba_expand": 2,
                               "mamba_chunk_size": 8, "attn_layer_indices": [1, 3]}),
    "nemotron-h, mamba": ("nemotron_h", {"layers_block_type": ["mamba", "attention", "mamba", "mlp"], "mamba_num_heads": 8,
                                         "mamba_head_dim": 8, "n_groups": 1, "ssm_state_size": 8, "chunk_size": 8}),
    "mixtral": ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "mixtral, aux loss": ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": True, "router_aux_loss_coef": 0.1}),
    "qwen3-moe": ("qwen3_moe", {**EXPERTS, "num_experts": 4, "decoder_sparse_step": 1}),
    "glm4-moe": ("glm4_moe", {**EXPERTS, "n_routed_experts": 4, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "use_qk_norm": True}),
    "deepseek-v3.2, sparse attention": ("deepseek_v32", {
        "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "num_key_value_heads": 4,
        "index_n_heads": 2, "index_head_dim": 16, "index_topk": 4, "mlp_layer_types": ["dense"] * 4}),
    "gpt-oss, sinks": ("gpt_oss", {"sliding_window": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "attn_implementation": "eager"}),
    "granite": ("granite", {**NO_HEAD_DIM, **GRANITE}),
    "starcoder2": ("starcoder2", {**NO_HEAD_DIM, "sliding_window": None, "use_bias": True}),
    "phi": ("phi", NO_HEAD_DIM),
    "cohere2, windows": ("cohere2", {**NO_HEAD_DIM, **WINDOWS, "logit_scale": 0.25}),
    "exaone4, windows": ("exaone4", {**NO_HEAD_DIM, **WINDOWS}),
    "exaone4": ("exaone4", {**NO_HEAD_DIM, "sliding_window": None, "layer_types": ["full_attention"] * 4}),
    "smollm3": ("smollm3", {**NO_HEAD_DIM, "no_rope_layers": [1, 0, 1, 0], "use_sliding_window": False, "sliding_window": None}),
    "apertus": ("apertus", NO_HEAD_DIM),
    "olmo3, windows": ("olmo3", {**NO_HEAD_DIM, **WINDOWS}),
    "glm": ("glm", {}),
    "stablelm": ("stablelm", {**NO_HEAD_DIM, "use_qkv_bias": True}),
    "nemotron": ("nemotron", {}),
    "gpt-neox": ("gpt_neox", {**NO_HEAD_DIM, "num_key_value_heads": ABSENT}),
    "gpt-j": ("gptj", {**OLD, "rotary_dim": 4}),
    "bloom": ("bloom", OLD),
    "mpt": ("mpt", OLD),
    "falcon": ("falcon", {**NO_HEAD_DIM, "new_decoder_architecture": True, "num_kv_heads": 2, "alibi": False, "num_key_value_heads": ABSENT}),
    "falcon-h1, mamba": ("falcon_h1", {**MAMBA, "mamba_d_ssm": 64}),
    "lfm2, convolutions": ("lfm2", {**NO_HEAD_DIM, **CONVOLUTIONS, "block_multiple_of": 16}),
}


def values_of(kind, **more):
    """The type of transformers, what its configuration has, and the attention."""
    name, values = KINDS[kind]
    values = {key: value for key, value in {**BASE, **more, **values}.items() if value is not ABSENT}
    return name, values, values.pop("attn_implementation")


def make(kind, dtype=torch.float32, layers=None):
    """The same weights at each call; norms and biases are away from one and zero."""
    name, values, attention = values_of(kind)
    if layers:
        values["num_hidden_layers"] = layers
    config = AutoConfig.for_model(name, use_cache=False, **values)
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:
                weight.add_(torch.randn_like(weight) * 0.1)
    return model.to(dtype).train()


def masked(targets, counts):
    """Targets of which each row keeps the first so many."""
    targets = targets.clone()
    for row, count in enumerate(counts):
        targets[row, count:] = -100
    return targets
