#!/usr/bin/env bash
# megatron-core 0.19.2, torch 2.15.0: with position_embedding_type="yarn" GPTModel ignores rotary_percent and rotates whole heads.
#
# Expected: YaRN changes the frequencies of the dimensions that a model rotates. At a scaling factor of 1 it changes nothing.
# Seen, a GPTModel of 2 layers with heads of 32 dimensions, trained with "rope" and rotary_percent=0.25 to give the word of two places before.
#   "rope" rotates 8 dimensions of each head. The same weights and options with "yarn" at a factor of 1 rotate 32: the loss goes from 0.0015 to 10.1. No warning.
# Controls: a model trained with rotary_percent=1.0 has the same loss with "rope" and with "yarn" at a factor of 1, so that all else is
#   as it should be. With YaRN's table cut to the frequencies of 8 dimensions the first model has its loss again.
# Why: the class of YaRN passes rotary_percent on to its base class, and computes its own frequencies from the whole head.
# Why it matters: GLM-4.5 and Qwen3.5 rotate a half and a quarter of each head, and long contexts are trained with YaRN. A run
#   starts far above the loss of its checkpoint, and what it learns is no model of the type that inference code expects.
# Usage: ./megatron_yarn_rotates_whole_heads.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6 packaging==26.4
# It asks for Python 3.12, and has a wheel for 3.11.
python3 -m pip install --quiet --root-user-action ignore --no-deps --ignore-requires-python --target "$folder/megatron" \
  megatron-core==0.19.2
cat >"$folder/yarn.py" <<'END'
import contextlib
import importlib.metadata
import logging

import torch


def cpu_for_cuda():
    """Megatron asks CUDA for its device; this changes no number here."""
    kind_of = torch.Tensor.type
    torch.Tensor.type = lambda self, *kind, **options: kind_of(self, *kind, **options) if kind else kind_of(self).replace("torch.", "torch.cuda.")
    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *_, **__: self
    torch.cuda.current_device = lambda: torch.device("cpu")


cpu_for_cuda()
logging.disable(logging.CRITICAL)
from megatron.core import parallel_state
from megatron.core.models.common.embeddings import YarnRotaryEmbedding
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel import random
from megatron.core.transformer import TransformerConfig

random.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()
ROWS, LENGTH, WORDS, HEAD = 16, 32, 32, 32
off = dict.fromkeys(("bias_dropout_fusion", "bias_activation_fusion", "masked_softmax_fusion", "gradient_accumulation_fusion", "apply_rope_fusion",
                     "persist_layer_norm", "add_bias_linear"), False)
yarn = {"rotary_scaling_factor": 1.0, "original_max_position_embeddings": LENGTH, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": None,
        "mscale_all_dim": None, "correction_range_round_to_int": True}


def build(kind, percent, start=None):
    config = TransformerConfig(num_layers=2, hidden_size=64, num_attention_heads=2, kv_channels=HEAD, ffn_hidden_size=64, hidden_dropout=0.0,
                               attention_dropout=0.0, transformer_impl="local", use_cpu_initialization=True, **off)
    for name, value in yarn.items():
        setattr(config, f"yarn_{name}", value)  # as Megatron-LM's options of these names do
    torch.manual_seed(0)
    model = GPTModel(config, get_gpt_layer_local_spec(), WORDS, LENGTH, position_embedding_type=kind, rotary_percent=percent, rotary_base=100)
    if start is not None:
        model.load_state_dict(start)
    return model


def loss(model, seed):
    words = torch.randint(0, WORDS, (ROWS, LENGTH), generator=torch.Generator().manual_seed(seed))
    later = torch.ones(1, 1, LENGTH, LENGTH).triu(1).bool()
    losses = model(words, torch.arange(LENGTH).expand(ROWS, -1), later, labels=words.roll(2, 1))
    return losses[:, 2:].mean()


def train(percent):
    model = build("rope", percent)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    for step in range(400):
        optimizer.zero_grad()
        loss(model, step).backward()
        optimizer.step()
    return model


@torch.no_grad()
def measure(model):
    table = model.rotary_pos_emb(LENGTH)
    rotated = (table[0] if isinstance(table, tuple) else table).shape[-1]
    return rotated, torch.stack([loss(model.eval(), 10 ** 6 + seed) for seed in range(5)]).mean().item()


print(f"megatron-core {importlib.metadata.version('megatron-core')} torch {torch.__version__}", flush=True)
assert torch.__version__.startswith("2.15.0")
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
parallel_state.initialize_model_parallel()
for percent in (1.0, 0.25):
    model = train(percent)
    start = model.state_dict()
    rotated, before = measure(model)
    rotated_yarn, after = measure(build("yarn", percent, start))
    print(f"rotary_percent={percent}: rope rotates {rotated} of {HEAD} dimensions, loss {before:.4f}; "
          f"yarn at a factor of 1 rotates {rotated_yarn}, loss {after:.4f}", flush=True)
    assert rotated == percent * HEAD and before < 0.5
    if percent == 1:
        assert rotated_yarn == HEAD and abs(after - before) < 1e-4
    else:
        assert rotated_yarn == HEAD and after > before + 1, "the behaviour changed"
        narrow = build("yarn", percent, start)
        narrow.rotary_pos_emb = YarnRotaryEmbedding(int(percent * HEAD), rotary_base=100, use_cpu_initialization=True, original_max_position_embeddings=LENGTH)
        rotated_narrow, again = measure(narrow)
        print(f"rotary_percent={percent}: yarn made for {rotated_narrow} dimensions, loss {again:.4f}", flush=True)
        assert rotated_narrow == rotated and abs(again - before) < 1e-4
END
PYTHONPATH="$folder/megatron" OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/yarn.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
