# SPDX-License-Identifier: Apache-2.0
"""torchtitan's own models by the builders of its registries, with four layers of width 64."""

import dataclasses
import importlib

WIDTH, VOCABULARY, LAYERS, WINDOW = 64, 256, 4, 8
BLOCK = 8  # tokens of a block of FlexAttention's masks, which context ranks divide in whole blocks
HEADS = {"n_layers": LAYERS, "dim": WIDTH, "n_heads": 4}
GROUPED = {**HEADS, "n_kv_heads": 2, "head_dim": 16, "attn_backend": "flex"}
LATENT = {**HEADS, "q_lora_rank": 0, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "mscale": 0.7,
          "n_dense_layers": 1, "dense_hidden_dim": 96, "moe_hidden_dim": 48, "num_shared_experts": 2, "router_top_k": 2, "attn_backend": "flex",
          "moe_comm_backend": "standard", "router_score_func": "softmax", "non_blocking_capacity_factor": None}


def rope(kind, dim, **more):
    from torchtitan.models import common
    return getattr(common, kind).Config(dim=dim, max_seq_len=4096, theta=10000.0, **more)


def layers_of(kind):
    """The layers' configurations of a kind: family, and what it has."""
    family, _, what = kind.partition(", ")
    of = importlib.import_module(f"torchtitan.models.{family}")
    experts = int(what.split()[0]) if what.endswith("experts") else 8
    if family == "llama3":
        heads = {**HEADS, "n_kv_heads": 4 if "4 key" in what else 2}
        return of._build_llama3_layers(**heads, hidden_dim=96, attn_backend="flex", rope=rope("ComplexRoPE", 16, scaling="llama"))
    if family == "qwen3" and "experts" in what:
        return of._build_qwen3_moe_layers(**GROUPED, moe_hidden_dim=48, num_experts=experts, top_k=2, moe_comm_backend="standard", rope=rope("CosSinRoPE", 16))
    if family == "qwen3":
        return of._build_qwen3_layers(**GROUPED, hidden_dim=96, rope=rope("CosSinRoPE", 16))
    if family == "deepseek_v3":
        return of._build_dsv3_layers(**LATENT, num_experts=experts, rope=rope("ComplexRoPE", 8))
    layers = of._build_gptoss_layers(dim=WIDTH, n_layers=LAYERS, hidden_dim=48, num_experts=experts, top_k=2, load_balance_coeff=1e-3, attn_backend="flex",
                                     moe_comm_backend="standard", rope=rope("CosSinRoPE", 64))
    for layer in layers:
        if layer.attention.sliding_window_size:
            layer.attention.sliding_window_size = WINDOW
    return layers


def spec_of(kind):
    """A family's debug model with these layers, and words of a small vocabulary."""
    spec = importlib.import_module(f"torchtitan.models.{kind.split(',')[0]}").model_registry("debugmodel")
    model, layers = spec.model, layers_of(kind)
    for layer in layers:
        layer.attention.inner_attention.block_size = BLOCK
    head = dataclasses.replace(model.lm_head, in_features=WIDTH, out_features=VOCABULARY)
    words = dataclasses.replace(model.tok_embeddings, num_embeddings=VOCABULARY, embedding_dim=WIDTH)
    tied = {"enable_weight_tying": kind.endswith("tied")} if hasattr(model, "enable_weight_tying") else {}
    return dataclasses.replace(spec, model=dataclasses.replace(
        model, dim=WIDTH, vocab_size=VOCABULARY, tok_embeddings=words, norm=dataclasses.replace(model.norm, normalized_shape=WIDTH), lm_head=head,
        layers=layers, **tied))


def attention(query, key, value, *, score_mod, block_mask, scale, enable_gqa, return_aux, **_):
    """What FlexAttention computes, which has no backward on CPUs: the mask by its function, within the blocks that a kernel would visit."""
    import torch
    from torch.nn.attention import flex_attention
    assert score_mod is None
    rows, heads, length, _ = query.shape
    if enable_gqa:
        key, value = (tensor.repeat_interleave(heads // tensor.shape[1], 1) for tensor in (key, value))
    flex_attention._validate_block_mask_shape(query, key, length, key.shape[2], *block_mask.shape[-2:])
    seen = flex_attention.create_mask(block_mask.mask_mod, rows, 1, length, key.shape[2], device="cpu")
    blocks = block_mask.to_dense()
    for dim, size in zip((-2, -1), block_mask.BLOCK_SIZE):
        blocks = blocks.repeat_interleave(size, dim)
    scores = query @ key.transpose(-2, -1) * (scale or query.shape[-1]**-0.5)
    scores = scores.masked_fill(~(seen & blocks[..., :length, :key.shape[2]].bool()), float("-inf"))
    return scores.softmax(-1) @ value, flex_attention.AuxOutput(lse=scores.logsumexp(-1) if return_aux.lse else None)
