# SPDX-License-Identifier: Apache-2.0
"""Compares what mpt-plan counts of tiny models with transformers' own implementations: parameters, and FLOP of matrix products.

Usage: model_counts_test.py PROGRAMS [NAMES]. PROGRAMS is the folder of mpt-plan; it runs in the Python that has torch and transformers
(build/frameworks, or MPT_FRAMEWORKS). Exit code 77: these are not installed, which is said.

The config.json that mpt-plan writes of what it read gives a model with the same parameters, name for name, as does that of each
model of the zoo that transformers has.

Parameters are equal. FLOP are those that torch's FlopCounterMode counts with eager attention, forward and backward, within 1 %. It counts
matrix products and convolutions, so that from mpt-plan's count is taken what kernels do without products, and added what eager
attention does beside them: the whole square of queries and keys, of which mpt-plan counts the half that is needed.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

from sample import sample

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
MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 4, 4]}

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
    "gpt_bigcode": {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 256, "n_positions": 256},
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
    "phi": DENSE,
    "gptj": {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 256, "n_positions": 256, "rotary_dim": 4},
    "mpt": {"d_model": 64, "n_layers": 3, "n_heads": 4, "vocab_size": 256, "max_seq_len": 256},
    "stablelm": {**DENSE, "use_qkv_bias": True},
    "dbrx": {"d_model": 64, "n_layers": 3, "n_heads": 4, "vocab_size": 256, "max_seq_len": 256, "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
             "ffn_config": {"hidden_size": 64, "ffn_hidden_size": 96, "moe_num_experts": 8, "moe_top_k": 2}},
    "nemotron": HEADS,
    "starcoder2": {**DENSE, "sliding_window": 32},
    "qwen2_moe": {**EXPERTS, "shared_expert_intermediate_size": 56},
    "qwen3_moe": EXPERTS,
    "gpt_oss": {**HEADS, "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 32},
    "glm4_moe": {**HEADS, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "n_shared_experts": 1,
                 "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1},
    "solar_open": {**{key: value for key, value in HEADS.items() if key != "intermediate_size"}, "n_routed_experts": 8, "num_experts_per_tok": 2,
                   "moe_intermediate_size": 48, "n_shared_experts": 1, "n_group": 2, "topk_group": 1},
    "dots1": {**HEADS, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "n_shared_experts": 1,
              "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "sliding_window": None},
    "ernie4_5_moe": {**HEADS, "moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 48, "moe_num_shared_experts": 1},
    "minimax_m2": {**HEADS, "num_local_experts": 8, "num_experts_per_tok": 2},
    "afmoe": {**HEADS, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "num_shared_experts": 1, "num_dense_layers": 1,
              "sliding_window": 32},
    "hunyuan_v1_moe": {**HEADS, "num_experts": 8, "moe_topk": 2},
    "hy_v3": {**HEADS, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "num_shared_experts": 1, "mlp_layer_types": ["sparse", "dense", "dense", "sparse"]},
    "llama4_text": {**HEADS, "intermediate_size_mlp": 160, "intermediate_size": 48, "num_local_experts": 8, "num_experts_per_tok": 1,
                    "interleave_moe_layer_step": 2, "attention_chunk_size": 32},
    "mimo_v2_flash": {**HEADS, "moe_intermediate_size": 48, "n_routed_experts": 8, "num_experts_per_tok": 2, "v_head_dim": 16,
                      "swa_num_attention_heads": 4, "swa_num_key_value_heads": 4, "swa_head_dim": 24, "swa_v_head_dim": 16, "sliding_window": 32},
    "laguna": {**EXPERTS, "sliding_window": 32},
    "deepseek_v2": {**LATENT, "topk_method": "greedy"},
    "deepseek_v3": LATENT,
    "deepseek_v32": {**LATENT, "index_n_heads": 2, "index_head_dim": 16, "index_topk": 32, "mlp_layer_types": ["sparse", "dense", "dense", "sparse"]},
    "glm_moe_dsa": {**LATENT, "index_n_heads": 2, "index_head_dim": 16, "index_topk": 32, "n_group": 1},
    "glm4_moe_lite": {**LATENT, "n_group": 1, "mlp_layer_types": ["sparse", "dense", "dense", "sparse"]},
    "mistral4": {**LATENT, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 0},
    "longcat_flash": {"hidden_size": 64, "num_layers": 2, "num_attention_heads": 4, "vocab_size": 256, "ffn_hidden_size": 160, "q_lora_rank": 32,
                      "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "head_dim": 8, "v_head_dim": 20, "n_routed_experts": 8,
                      "zero_expert_num": 2, "moe_topk": 2, "expert_ffn_hidden_size": 48},
    "qwen3_next": {**EXPERTS, **DELTA, "shared_expert_intermediate_size": 56},
    "qwen3_5_text": {**HEADS, **DELTA},
    "qwen3_5_moe_text": {**EXPERTS, **DELTA, "shared_expert_intermediate_size": 56},
    "kimi_linear": {**LATENT, "num_experts": 8, "num_experts_per_token": 2, "num_shared_experts": 1,
                    "linear_attn_config": {"kda_layers": [1, 2, 3], "full_attn_layers": [4], "num_heads": 4, "head_dim": 16,
                                           "short_conv_kernel_size": 4}},
    "minimax": {**HEADS, "num_local_experts": 8, "num_experts_per_tok": 2, "block_size": 32},
    "minimax_m3_vl_text": {**HEADS, "intermediate_size": 48, "dense_intermediate_size": 160, "shared_intermediate_size": 56, "num_local_experts": 8,
                           "num_experts_per_tok": 2, "rotary_dim": 12, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]},
    "nemotron_h": {**HEADS, "layers_block_type": ["mamba", "moe", "attention", "mlp"], "mamba_num_heads": 4, "mamba_head_dim": 16, "n_groups": 2,
                   "ssm_state_size": 16, "conv_kernel": 4, "chunk_size": 32, "n_routed_experts": 8, "num_experts_per_tok": 2,
                   "moe_intermediate_size": 48, "moe_shared_expert_intermediate_size": 56, "n_shared_experts": 2},  # one of 56, whatever the number
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
    "gemma4_text small": {**HEADS, "global_head_dim": 32, "num_hidden_layers": 12, "sliding_window": 32, "hidden_size_per_layer_input": 16,
                          "vocab_size_per_layer_input": 200, "num_kv_shared_layers": 4, "use_double_wide_mlp": True,
                          "enable_moe_block": False},
    "ministral": {**HEADS, "sliding_window": 32},
    "cwm": {**HEADS, "sliding_window": 32},
    "vaultgemma": {**HEADS, "sliding_window": 32},
    "exaone": HEADS,
    "internlm3": {**HEADS, "attention_bias": True, "mlp_bias": True},
    "iquestcoder": HEADS,
    "helium": {**DENSE, "head_dim": 16},
    "jais2": DENSE,
    "cohere": DENSE,
    "hyperclovax": HEADS,
    "gpt_neo": {"hidden_size": 64, "num_layers": 4, "num_heads": 4, "vocab_size": 256, "max_position_embeddings": 256,
                "attention_types": [[["global", "local"], 2]], "window_size": 32},
    "codegen": {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 256, "n_positions": 256, "rotary_dim": 4},
    "youtu": {key: value for key, value in LATENT.items() if "expert" not in key and "group" not in key and not key.startswith("moe")},
    "sarvam_mla": {**LATENT, "q_lora_rank": None},
    "sarvam_moe": {**HEADS, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48},
    "mellum": {**EXPERTS, "sliding_window": 32, "layer_types": ["sliding_attention", "full_attention"] * 2},
    "flex_olmo": {**DENSE, "num_experts": 8, "num_experts_per_tok": 2},
    "granitemoeshared": {**DENSE, "num_local_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 72},
    "aria_text": {**HEADS, "moe_num_experts": 8, "moe_topk": 2},
    "lfm3": {**HEADS, "sliding_window": 32, "num_hidden_layers": 6,
             "rope_parameters": {kind: {"rope_type": "default", "rope_theta": 10000.0} for kind in ("full_attention", "sliding_attention")}},
    "gemma4_unified_text": {**HEADS, "global_head_dim": 32, "num_hidden_layers": 12, "sliding_window": 32, "num_kv_shared_layers": 4,
                            "use_double_wide_mlp": True},
    "emu3_text_model": HEADS,
    "qwen2_5_omni_text": {**DENSE, "rope_parameters": {**MROPE, "mrope_section": [4, 2, 2]}},
    "qwen3_omni_moe_text": EXPERTS,
    "glm4v_text": {**DENSE, "rope_parameters": {**MROPE, "mrope_section": [4, 2, 2]}},
    "glm4v_moe_text": {**HEADS, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
                       "rope_parameters": {**MROPE, "partial_rotary_factor": 0.5, "mrope_section": [2, 2, 2]}},
    "glm_ocr_text": {**HEADS, "rope_parameters": MROPE},
    "paddleocr_vl_text": {**HEADS, "rope_parameters": MROPE},
    "hunyuan_vl_text": {**HEADS, "rope_parameters": MROPE},
    "cosmos3_edge_text": {**DENSE, "head_dim": 128},
    "deepseek_ocr2_text": {**DENSE, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
                           "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]},
    "granite_docling_text": DENSE,
    "granite4_vision_text": DENSE,
    "deepseek_v4": {**{key: value for key, value in HEADS.items() if key != "intermediate_size"}, "num_key_value_heads": 1, "head_dim": 32, "q_lora_rank": 32, "qk_rope_head_dim": 8, "moe_intermediate_size": 48,
                    "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "o_groups": 2, "o_lora_rank": 16, "index_n_heads": 2,
                    "index_head_dim": 16, "index_topk": 8, "sliding_window": 32, "num_hash_layers": 1, "num_hidden_layers": 3,
                    "layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"],
                    "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 16}},
}

# Weights that transformers has and never uses: LongCat's experts that compute nothing have an up projection there.
UNUSED = {"longcat_flash": 2 * 2 * 96 * 64}


def described(program, config, as_type, folder):
    path = os.path.join(folder, "config.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    result = subprocess.run([program, "model", path, "--as", as_type, "--seq", str(TOKENS), "--json"], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise ValueError("mpt-plan: " + " ".join((result.stdout + result.stderr).split())[:400])
    return json.loads(result.stdout)


# Classes of text models that no automatic class knows.
TEXT_CLASSES = {"emu3_text_model": "Emu3ForCausalLM", "qwen2_5_omni_text": "Qwen2_5OmniThinkerTextModel",
                "qwen3_omni_moe_text": "Qwen3OmniMoeThinkerTextModel", "paddleocr_vl_text": "PaddleOCRTextModel",
                "deepseek_ocr2_text": "DeepseekOcr2TextModel", "granite4_vision_text": "Granite4VisionTextModel"}


def with_head(config):
    """The text model of a type for images and text, whose head is a part of the whole model."""
    import torch
    import transformers

    class WithHead(torch.nn.Module):
        def __init__(self):
            super().__init__()
            cls = getattr(transformers, TEXT_CLASSES.get(config.model_type, ""), None)
            make = cls._from_config if cls else transformers.AutoModel.from_config
            self.model = make(config, attn_implementation="eager")
            self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
            if getattr(config, "tie_word_embeddings", False):
                self.lm_head.weight = self.model.get_input_embeddings().weight

        def forward(self, input_ids, labels, use_cache):
            logits = self.lm_head(self.model(input_ids=input_ids, use_cache=use_cache).last_hidden_state)
            return transformers.modeling_outputs.CausalLMOutput(loss=torch.nn.functional.cross_entropy(logits[0], labels[0]))

    return WithHead()


def transformers_model(config):
    """Of the class for causal language models, which the automatic one does not know for all; experts run one by one."""
    import torch
    import transformers
    torch.manual_seed(1)
    config._experts_implementation = "eager"
    automatic = type(config) in transformers.AutoModelForCausalLM._model_mapping
    name = TEXT_CLASSES.get(config.model_type, type(config).__name__.replace("Config", "ForCausalLM"))
    cls = transformers.AutoModelForCausalLM if automatic else getattr(transformers, name, None)
    if cls is None or name.endswith("Model"):
        return with_head(config).float().train()
    make = cls.from_config if automatic else cls._from_config
    return make(config, attn_implementation="eager").float().train()


def written_config(program, model, folder, *options):
    """The configuration that transformers makes of the config.json that mpt-plan writes."""
    from transformers import CONFIG_MAPPING
    path = os.path.join(folder, "written.json")
    result = subprocess.run([program, "model", model, *options, "--config-json", "-o", path], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise ValueError("mpt-plan: " + " ".join((result.stdout + result.stderr).split())[:400])
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    # No plan reads which token pads; a type's own may lie behind the few tokens of a test.
    return CONFIG_MAPPING[config["model_type"]].from_dict({"pad_token_id": 0, **config}) if config["model_type"] in CONFIG_MAPPING else None


def shapes_of(config):
    """Of all parameters, by name; nothing is computed."""
    import torch
    with torch.device("meta"):
        model = transformers_model(config)
    return {name: tuple(p.shape) for name, p in model.named_parameters()}


def way_back(program, config, folder, as_type):
    """What differs of the model whose config.json mpt-plan read and wrote."""
    written = written_config(program, os.path.join(folder, "config.json"), folder, "--as", as_type)
    ours, theirs = shapes_of(written), shapes_of(config)
    return [f"{name} is {ours.get(name)} as written, {theirs.get(name)} as read" for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)][:2]


def by_operator(counter):
    return {str(operator).removeprefix("aten."): flop for operator, flop in counter.get_flop_counts()["Global"].items()}


def measured(config):
    """Parameters of transformers' model, with the biases of routers that it keeps as buffers, and FLOP by torch's operators."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    model = transformers_model(config)
    parameters = sum(p.numel() for p in model.parameters())
    parameters += sum(b.numel() for name, b in model.named_buffers() if name.endswith(("e_score_correction_bias", "expert_bias")))
    tokens = torch.randint(1, 200, (1, TOKENS))
    with FlopCounterMode(display=False) as forward:
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    counts = forward.get_flop_counts()
    # transformers adds up Mamba's states without products where it can, which the kernels that mpt-plan counts do not.
    scans = sum(flop for name, module in model.named_modules() if re.search("Mamba|BambaMixer|H1Mixer", type(module).__name__) and hasattr(module, "A_log")
                for operator, flop in counts[f"{type(model).__name__}.{name}"].items() if str(operator) == "aten.bmm")
    return parameters, by_operator(forward), by_operator(backward), scans


def layers_of(model):
    """The kind of each layer."""
    return [model["layers"]["kinds"][name] for run in model["layers"]["order"] for _ in range(run["repeat"]) for name in run["of"]]


def eager_linear_core(mixer):
    """FLOP of the products of a recurrence in transformers' form, which solves a chunk's triangle without products."""
    key, value, chunk = mixer["key_dim"], mixer["head_dim"], mixer["chunk"]
    if mixer["kind"] in ("gated_delta", "kimi_delta"):
        return TOKENS * mixer["heads"] * (6 * key * value + 2 * chunk * (2 * key + value))
    if mixer["kind"] == "lightning":  # the whole square of a chunk
        return TOKENS * mixer["heads"] * (4 * key * value + 2 * chunk * (key + value))
    return 0


def eager_attention_core(attention, plain):
    """FLOP of scores and of their products with values over the whole square; `plain` is what mpt-plan says of it."""
    heads = attention["heads"]
    if attention.get("compressed"):  # tokens, and entries of so many of them
        ratio = attention["compressed"].get("ratio", 0)
        return 4 * TOKENS * (TOKENS + (TOKENS // ratio if ratio else 0)) * heads * attention["head_dim"]
    if attention.get("latent") and attention.get("index"):  # expanded, where sparse kernels work on the compression
        latent = attention["latent"]
        return 2 * TOKENS * TOKENS * heads * (latent["nope_head_dim"] + latent["rope_head_dim"] + latent["value_head_dim"])
    return plain


def expected(name, said):
    """Forward and backward FLOP that transformers takes for what mpt-plan describes; of models with recurrences, backward without cores."""
    model, work = said["model"], {op["name"]: op for op in said["work"][0]["operators"]}
    layers = layers_of(model)
    products = sum(op["forward_flop"] for op in work.values() if op["kind"] in ("linear", "expert_linear"))
    moe = next((layer["moe"] for layer in layers if "moe" in layer), None)
    every = moe["experts"] / moe["experts_per_token"] if name == "llama4_text" else 1.0  # all experts see all tokens there
    products += (every - 1.0) * sum(work[op]["forward_flop"] for op in ("mlp.experts_up", "mlp.experts_down") if op in work)
    attention = [layer["attention"] for layer in layers if "attention" in layer]
    special = any(a.get("compressed") or (a.get("latent") and a.get("index")) for a in attention)
    core = sum(eager_attention_core(a, 0) for a in attention) if special else work.get("attention.core", {}).get("forward_square_flop", 0)
    index = work.get("attention.index", {}).get("forward_square_flop", 0)  # frozen: forward alone
    streams = model.get("residual_streams", 1)
    mixing = 4 * streams * streams * model["hidden"] * TOKENS * len(layers) if streams > 1 else 0  # a product there, elementwise in kernels
    recurrent = sum(eager_linear_core(layer["linear"]) for layer in layers if "linear" in layer)
    return products + core + index + mixing + recurrent, 2 * (products + core + mixing)


def compare(name, program):
    """Sentences on what differs."""
    from transformers import AutoConfig
    keys = MODELS[name]
    as_type = name.split()[0]
    config = AutoConfig.for_model(as_type, **keys)
    written = {**json.loads(config.to_json_string(use_diff=False)), "model_type": as_type}  # as a tuned model is saved
    with tempfile.TemporaryDirectory() as folder:
        said = described(program, written, as_type, folder)
        found = way_back(program, config, folder, as_type)
    parameters, forward, backward, scans = measured(config)
    unused = UNUSED.get(name, 0)
    if said["parameters"]["total"] != parameters - unused:
        found.append(f"{said['parameters']['total']} parameters, transformers has {parameters - unused}")
    wanted, wanted_back = expected(name, said)
    products = ("mm", "addmm", "bmm", "baddbmm")
    is_recurrent = any("linear" in layer for layer in layers_of(said["model"]))
    real = sum(forward.get(op, 0) for op in products) - scans
    if abs(wanted / real - 1) > 0.01:
        found.append(f"{wanted:.6g} FLOP forward, torch counts {real:.6g} ({wanted / real:.4f})")
    if is_recurrent:  # torch counts the backward of cores with that of attention
        wanted_back = 2 * sum(op["forward_flop"] for op in said["work"][0]["operators"] if op["kind"] in ("linear", "expert_linear"))
        real = sum(backward.get(op, 0) for op in products[:2])
    else:
        real = sum(backward.get(op, 0) for op in products)
    if abs(wanted_back / real - 1) > 0.01:
        found.append(f"{wanted_back:.6g} FLOP backward, torch counts {real:.6g} ({wanted_back / real:.4f})")
    return found


# Models of types that transformers has without what these need: an activation, and a class for text alone.
OWN_CLASSES = {"kimi-k3", "step-3.5-flash"}
# Those whose text alone has a class without a head.
BODIES = {"muse-glimmer-30b", *(f"qwen3-vl-{size}" for size in ("2b", "4b", "8b", "30b-a3b", "32b", "235b-a22b"))}


def zoo_names(program):
    lines = subprocess.run([program, "model", "list"], capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.split() for line in lines[2:-1]]  # titles and a rule stand above them, a remark below
    return [row[0] for row in rows if row[-1] != "-"]


def compare_zoo(name, program):
    """What differs between the parameters of a model of the zoo, and those of transformers for the config.json that is written of it."""
    import torch
    import transformers
    with tempfile.TemporaryDirectory() as folder:
        config = written_config(program, name, folder)
        said = json.loads(subprocess.run([program, "model", name, "--json"], capture_output=True, text=True, check=True).stdout)
    if config is None or name in OWN_CLASSES:
        return None
    head = 0
    with torch.device("meta"):
        if name in BODIES:
            model = transformers.AutoModel.from_config(config)
            head = 0 if config.tie_word_embeddings else config.vocab_size * config.hidden_size
        else:
            model = transformers_model(config)
    real = head + sum(p.numel() for p in model.parameters())
    real += sum(b.numel() for key, b in model.named_buffers() if key.endswith(("e_score_correction_bias", "expert_bias")))
    counted = said["parameters"]["total"]
    return [] if counted == real else [f"{counted} parameters, transformers has {real}"]


# Towers beside the language model: their types, and the sizes that their files give.
TOWERS = {
    "qwen3_vl_vision": dict(depth=6, hidden_size=96, intermediate_size=344, num_heads=4),
    "qwen3_5_vision": dict(depth=5, hidden_size=96, intermediate_size=344, num_heads=4),
    "qwen2_5_vl_vision": dict(depth=6, hidden_size=96, intermediate_size=200, num_heads=4),
    "gemma4_vision": dict(num_hidden_layers=6, hidden_size=96, intermediate_size=344, num_attention_heads=4, num_key_value_heads=4, head_dim=24),
    "siglip_vision_model": dict(num_hidden_layers=6, hidden_size=96, intermediate_size=344, num_attention_heads=4),
    "clip_vision_model": dict(num_hidden_layers=6, hidden_size=96, intermediate_size=344, num_attention_heads=4),
    "pixtral": dict(num_hidden_layers=6, hidden_size=96, intermediate_size=344, num_attention_heads=4),
    "llama4_vision_model": dict(num_hidden_layers=6, hidden_size=96, intermediate_size=344, num_attention_heads=4),
    "qwen2_audio_encoder": dict(encoder_layers=6, d_model=96, encoder_ffn_dim=344, encoder_attention_heads=4),
}


def compare_tower(as_type, program):
    """What differs of the matrices in the layers of a tower: our count of its file, and the class of transformers."""
    import torch
    import transformers
    from transformers import AutoConfig, AutoModel
    config = AutoConfig.for_model(as_type, **TOWERS[as_type])
    with torch.device("meta"):
        own = getattr(transformers, type(config).__name__.removesuffix("Config") + "Model", None)
        tower = own(config) if own is not None else AutoModel.from_config(config)
    layers = TOWERS[as_type].get("depth") or TOWERS[as_type].get("num_hidden_layers") or TOWERS[as_type]["encoder_layers"]
    lists = [module for module in tower.modules() if isinstance(module, torch.nn.ModuleList) and len(module) == layers]
    real = sum(parameter.numel() for parameter in lists[0].parameters() if parameter.dim() > 1)
    text = dict(model_type="qwen3", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                intermediate_size=96, vocab_size=64, max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=False)
    written = dict(model_type="towered", text_config=text, vision_config={"model_type": as_type, **TOWERS[as_type]})
    with tempfile.TemporaryDirectory() as folder:
        counted = described(program, written, "qwen3", folder)["towers"][0]["parameters_of_layers"]
    return [] if counted == real else [f"{counted} parameters in its layers' matrices, transformers has {real}"]


def main():
    program = os.path.join(os.path.abspath(sys.argv[1]), "mpt-plan")
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        print(f"model counts: skipped, because {error.name} is not installed (./scripts/install-frameworks accelerate)")
        sys.exit(SKIPPED)
    transformers.logging.set_verbosity_error()
    wrong = 0
    zoo = zoo_names(program)
    names = sys.argv[2:] or sample([*MODELS, *TOWERS, *zoo])
    for name in names:
        try:
            found = (compare_tower if name in TOWERS else compare_zoo if name in zoo else compare)(name, program)
        except Exception as error:  # a class that fails is a finding on that type alone
            found = [f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"]
        wrong += bool(found)
        print(f"{name}: {'not in transformers' if found is None else '; '.join(found) or 'the same'}", flush=True)
    print(f"model counts: {len(names) - wrong} of {len(names)} types and models as transformers has them")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
