# SPDX-License-Identifier: Apache-2.0
"""Compares what mpt-plan counts of tiny models with transformers' own implementations: parameters, and FLOP of matrix products.

Usage: model_counts_test.py PROGRAMS [NAMES]. PROGRAMS is the folder of mpt-plan; it runs in the Python that has torch and transformers
(build/frameworks, or MPT_FRAMEWORKS). Exit code 77: these are not installed, which is said.

Parameters are equal. FLOP are those that torch's FlopCounterMode counts with eager attention, forward and backward, within 1 %. It counts
matrix products and convolutions, so that from mpt-plan's count is taken what kernels do without products, and added what eager
attention does beside them: the whole square of queries and keys, of which mpt-plan counts the half that is needed.
"""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TOKENS = 128
SKIPPED = 77

DENSE = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
         "max_position_embeddings": 512, "pad_token_id": 0}
HEADS = {**DENSE, "head_dim": 24}
EXPERTS = {**HEADS, "moe_intermediate_size": 48, "num_experts": 8, "num_experts_per_tok": 2}
LATENT = {**DENSE, "num_key_value_heads": 4, "q_lora_rank": 32, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 20,
          "moe_intermediate_size": 48, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
          "first_k_dense_replace": 1}
DELTA = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 24, "linear_conv_kernel_dim": 4}

# By the type: keys of its configuration.
MODELS = {
    "llama": DENSE,
    "mistral": {**DENSE, "sliding_window": 32},
    "qwen2": DENSE,
    "qwen3": HEADS,
    "gemma": HEADS,
    "gemma2": {**HEADS, "sliding_window": 32},
    "gemma3_text": {**HEADS, "sliding_window": 32, "num_hidden_layers": 6},
    "phi3": DENSE,
    "smollm3": DENSE,
    "olmo2": DENSE,
    "olmo3": {**DENSE, "sliding_window": 32},
    "granite": DENSE,
    "seed_oss": HEADS,
    "glm4": HEADS,
    "cohere2": {**DENSE, "sliding_window": 32},
    "exaone4": {**DENSE, "sliding_window": 32},
    "apertus": DENSE,
    "arcee": DENSE,
    "ernie4_5": HEADS,
    "ministral3": HEADS,
    "hunyuan_v1_dense": HEADS,
    "gpt2": {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 256, "n_positions": 256},
    "gpt_neox": {key: value for key, value in DENSE.items() if key != "num_key_value_heads"},
    "opt": {"hidden_size": 64, "ffn_dim": 160, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 256, "max_position_embeddings": 256,
            "word_embed_proj_dim": 64, "pad_token_id": 0},
    "bloom": {"hidden_size": 64, "n_layer": 3, "n_head": 4, "vocab_size": 256},
    "falcon": {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 256, "new_decoder_architecture": True,
               "num_kv_heads": 2, "alibi": False},
    "mixtral": {**DENSE, "num_local_experts": 8, "num_experts_per_tok": 2},
    "olmoe": {**DENSE, "num_experts": 8, "num_experts_per_tok": 2},
    "granitemoe": {**DENSE, "num_local_experts": 8, "num_experts_per_tok": 2},
    "phimoe": {**DENSE, "num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2_moe": {**EXPERTS, "shared_expert_intermediate_size": 56},
    "qwen3_moe": EXPERTS,
    "gpt_oss": {**HEADS, "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 32},
    "glm4_moe": {**HEADS, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "n_shared_experts": 1,
                 "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1},
    "dots1": {**HEADS, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "n_shared_experts": 1,
              "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "sliding_window": None},
    "ernie4_5_moe": {**HEADS, "moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 48, "moe_num_shared_experts": 1},
    "minimax_m2": {**HEADS, "num_local_experts": 8, "num_experts_per_tok": 2},
    "afmoe": {**HEADS, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "num_shared_experts": 1, "num_dense_layers": 1,
              "sliding_window": 32},
    "hunyuan_v1_moe": {**HEADS, "num_experts": 8, "moe_topk": 2},
    "hy_v3": {**HEADS, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "num_shared_experts": 1, "first_k_dense_replace": 1},
    "llama4_text": {**HEADS, "intermediate_size_mlp": 160, "intermediate_size": 48, "num_local_experts": 8, "num_experts_per_tok": 1,
                    "interleave_moe_layer_step": 2, "attention_chunk_size": 32},
    "mimo_v2_flash": {**HEADS, "moe_intermediate_size": 48, "n_routed_experts": 8, "num_experts_per_tok": 2, "v_head_dim": 16,
                      "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "swa_head_dim": 24, "swa_v_head_dim": 16, "sliding_window": 32},
    "laguna": {**EXPERTS, "sliding_window": 32},
    "deepseek_v2": {**LATENT, "topk_method": "greedy"},
    "deepseek_v3": LATENT,
    "deepseek_v32": {**LATENT, "index_n_heads": 2, "index_head_dim": 16, "index_topk": 32},
    "glm_moe_dsa": {**LATENT, "index_n_heads": 2, "index_head_dim": 16, "index_topk": 32, "n_group": 1},
    "mistral4": {**LATENT, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 0},
    "longcat_flash": {"hidden_size": 64, "num_layers": 2, "num_attention_heads": 4, "vocab_size": 256, "ffn_hidden_size": 160, "q_lora_rank": 32,
                      "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "head_dim": 8, "v_head_dim": 20, "n_routed_experts": 8,
                      "zero_expert_num": 4, "moe_topk": 2, "expert_ffn_hidden_size": 48},
    "qwen3_next": {**EXPERTS, **DELTA, "shared_expert_intermediate_size": 56},
    "qwen3_5_text": {**HEADS, **DELTA},
    "qwen3_5_moe_text": {**EXPERTS, **DELTA, "shared_expert_intermediate_size": 56},
    "kimi_linear": {**LATENT, "num_experts": 8, "num_experts_per_token": 2, "num_shared_experts": 1,
                    "linear_attn_config": {"kda_layers": [1, 2, 3], "full_attn_layers": [4], "num_heads": 4, "head_dim": 16,
                                           "short_conv_kernel_size": 4}},
    "minimax": {**HEADS, "num_local_experts": 8, "num_experts_per_tok": 2, "block_size": 32},
    "nemotron_h": {**HEADS, "layers_block_type": ["mamba", "moe", "attention", "mlp"], "mamba_num_heads": 4, "mamba_head_dim": 16, "n_groups": 2,
                   "ssm_state_size": 16, "conv_kernel": 4, "chunk_size": 32, "n_routed_experts": 8, "num_experts_per_tok": 2,
                   "moe_intermediate_size": 48, "moe_shared_expert_intermediate_size": 56, "n_shared_experts": 1},
    "bamba": {**DENSE, "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_chunk_size": 32,
              "attn_layer_indices": [2]},
    "granitemoehybrid": {**DENSE, "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_d_conv": 4,
                         "mamba_chunk_size": 32, "layer_types": ["mamba", "mamba", "attention", "mamba"], "num_local_experts": 8,
                         "num_experts_per_tok": 2, "shared_intermediate_size": 72},
    "falcon_h1": {**HEADS, "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_ssm": 128, "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_d_conv": 4,
                  "mamba_chunk_size": 32},
    "jamba": {**DENSE, "num_experts": 8, "num_experts_per_tok": 2, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 8,
              "attn_layer_period": 4, "attn_layer_offset": 2, "expert_layer_period": 2, "expert_layer_offset": 1, "use_mamba_kernels": False},
    "lfm2": {**DENSE, "block_multiple_of": 16, "full_attn_idxs": [2]},
    "lfm2_moe": {**DENSE, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "num_dense_layers": 1,
                 "layer_types": ["conv", "conv", "full_attention", "conv"]},
    "gemma4_text": {**HEADS, "global_head_dim": 32, "num_hidden_layers": 6, "sliding_window": 32, "hidden_size_per_layer_input": 0,
                    "num_kv_shared_layers": 0, "enable_moe_block": True, "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 48},
    "gemma4_text small": {**HEADS, "global_head_dim": 32, "num_hidden_layers": 6, "sliding_window": 32, "hidden_size_per_layer_input": 16,
                          "vocab_size_per_layer_input": 200, "num_kv_shared_layers": 2, "use_double_wide_mlp": True},
    "deepseek_v4": {**HEADS, "num_key_value_heads": 1, "head_dim": 32, "q_lora_rank": 32, "qk_rope_head_dim": 8, "moe_intermediate_size": 48,
                    "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "o_groups": 2, "o_lora_rank": 16, "index_n_heads": 2,
                    "index_head_dim": 16, "index_topk": 8, "sliding_window": 32, "num_hash_layers": 1, "compress_ratios": [0, 4, 16, 4],
                    "compress_rate_hca": 16},
}


def counted(op, forward):
    """What torch counts of an operator of mpt-plan: its products, over the whole square of queries and keys."""
    return op["forward_products"] if forward else op["backward_products"]


def described(program, config, folder, as_type):
    path = os.path.join(folder, "config.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    result = subprocess.run([program, "model", path, "--as", as_type, "--seq", str(TOKENS), "--json"], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise ValueError(" ".join((result.stdout + result.stderr).split())[:500])
    return json.loads(result.stdout)


def measured(config):
    """Parameters of transformers' model, with the biases of routers that it keeps as buffers, and FLOP of forward and backward."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoModelForCausalLM
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().train()
    parameters = sum(p.numel() for p in model.parameters())
    parameters += sum(b.numel() for name, b in model.named_buffers() if name.endswith("e_score_correction_bias"))
    tokens = torch.randint(1, 200, (1, TOKENS))
    with FlopCounterMode(display=False) as forward:
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    return parameters, forward.get_total_flops(), backward.get_total_flops()


def eager_forward(model, work):
    """FLOP that eager code of transformers takes for the forward that mpt-plan describes."""
    total = 0.0
    for op in work["operators"]:
        total += op.get("forward_square_flop", op["forward_flop"])
    return total
