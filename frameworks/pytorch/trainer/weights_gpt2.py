# SPDX-License-Identifier: Apache-2.0
"""Names of weights of GPT-2."""

import torch

# body
GPT2_NAMES = {"input_layernorm": "ln_1", "post_attention_layernorm": "ln_2", "o_proj": "attn.c_proj", "up_proj": "mlp.c_fc", "down_proj": "mlp.c_proj"}
GPT2_NAMES |= {"embed_tokens": "wte", "positions": "wpe", "norm": "ln_f", "q_proj": "attn.c_attn", "k_proj": "attn.c_attn", "v_proj": "attn.c_attn"}


def stored_name(name):
    """Tensor of a parameter. GPT-2 has queries, keys and values in one, and its matrices transposed."""
    words = name.split(".")
    layer = f"h.{words[1]}." if words[0] == "layers" else ""
    return name if words[0] == "lm_head" else f"transformer.{layer}{GPT2_NAMES[words[-2]]}.{words[-1]}"


def read_parameter(files, name, shape):
    tensor = files[stored_name(name)]
    tensor = tensor.T if tensor.ndim == 2 and name.startswith("layers.") else tensor
    part = ("q_proj", "k_proj", "v_proj").index(name.split(".")[-2]) if "self_attn.o" not in name and "self_attn" in name else None
    return tensor if part is None else tensor.chunk(3)[part]


def stored_tensors(parameters):
    tensors = {}
    for name, tensor in parameters.items():
        tensors.setdefault(stored_name(name), []).append(tensor.T if tensor.ndim == 2 and name.startswith("layers.") else tensor)
    return {name: torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0] for name, parts in tensors.items()}
