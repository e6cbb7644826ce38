# SPDX-License-Identifier: Apache-2.0
"""Names of weights of Mixtral and Qwen3-MoE."""

import torch

# body
# if weights mixtral
BLOCK, EXPERT_NAMES = "block_sparse_moe", {"w1": "w1", "w2": "w2", "w3": "w3"}
# end
# if weights qwen3_moe
BLOCK, EXPERT_NAMES = "mlp", {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
# end


def stored_name(name, expert=None):
    if expert is not None:
        stem, _, last = name.rpartition(".")
        name = f"{stem}.experts.{expert}.{EXPERT_NAMES[last]}.weight"
    return name if name.startswith("lm_head") else "model." + name.replace(".mlp.", f".{BLOCK}.")


def read_parameter(files, name, shape):
    if len(shape) == 3:
        return torch.stack([files[stored_name(name, expert)] for expert in range(shape[0])])
    return files[stored_name(name)]


def stored_tensors(parameters):
    tensors = {}
    for name, tensor in parameters.items():
        if tensor.ndim == 3:
            tensors |= {stored_name(name, expert): part for expert, part in enumerate(tensor)}
        else:
            tensors[stored_name(name)] = tensor
    return tensors
