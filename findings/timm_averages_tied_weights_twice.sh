#!/usr/bin/env bash
# timm 1.0.31, torch 2.15.0: ModelEmaV3 averages a weight that two layers share twice in each update, so it forgets twice as fast.
#
# Expected: all weights have the decay that is asked for. A table that the embedding and the head share is one weight.
# Seen, a small Llama with tie_word_embeddings=True, decay 0.99, 300 AdamW steps. The averaged table equals an average with a decay of
#   0.99 * 0.99 = 0.9801, to 0.000. From the average with 0.99 it is off by 0.54 of the distance between average and model.
#   All other weights equal the average with 0.99. In steady state the table is 49.3 steps old and the others are 99. ModelEmaV2 and
#   foreach=False do the same.
# Controls, one thing changed: the same model untied, exclude_buffers=True, and torch's AveragedModel average all weights with 0.99.
# Why: an update goes over the values of state_dict(), which lists a shared tensor under each of its names. It is one storage, and each
#   visit moves it. exclude_buffers=True goes over parameters(), which lists it once.
# Why it matters: the default decay of 0.9999 averages over 10,000 steps, and the tied table, often the largest weight, over 5,000. The
#   evaluated model is a mixture of two averages. Nothing warns.
# Usage: ./timm_averages_tied_weights_twice.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 timm==1.0.31 transformers==5.24.0
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore - 2>"$folder/errors" <<'END' || { tail "$folder/errors"; exit 1; }
import importlib.metadata

import torch
from timm.utils import ModelEmaV2, ModelEmaV3
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import LlamaConfig, LlamaForCausalLM

torch.set_num_threads(1)
versions = {name: importlib.metadata.version(name) for name in ("torch", "timm", "transformers")}
print(*(f"{name} {version}" for name, version in versions.items()))
assert versions["torch"].startswith("2.15.0") and versions["timm"] == "1.0.31"
DECAY, STEPS, TABLE = 0.99, 300, "model.embed_tokens.weight"


class Torch(AveragedModel):
    """AveragedModel under the names of timm. Its first update copies the weights, so it is made at the start."""

    def __init__(self, model):
        super().__init__(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
        self.update(model)

    def update(self, model):
        self.update_parameters(model)


KINDS = {"ModelEmaV3": lambda model: ModelEmaV3(model, decay=DECAY),
         "ModelEmaV3, foreach=False": lambda model: ModelEmaV3(model, decay=DECAY, foreach=False),
         "ModelEmaV2": lambda model: ModelEmaV2(model, decay=DECAY),
         "ModelEmaV3, exclude_buffers=True": lambda model: ModelEmaV3(model, decay=DECAY, exclude_buffers=True),
         "torch's AveragedModel": Torch}


def build(tied):
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=256, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                                        num_key_value_heads=4, tie_word_embeddings=tied))


def weights(model):
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def train(kind, tied):
    """How far the table and all others are off an average by hand with the decay and with its square."""
    model, draws = build(tied), torch.Generator().manual_seed(1)
    average = KINDS[kind](model)
    right, squared = weights(model), weights(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        tokens = (torch.randint(0, 16, (4, 1), generator=draws) * 7 + torch.arange(24) * 3) % 256
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        average.update(model)
        for name, weight in model.named_parameters():
            right[name].lerp_(weight.detach(), 1 - DECAY)
            squared[name].lerp_(weight.detach(), 1 - DECAY ** 2)
    seen, last = weights(average.module), weights(model)
    off = {name: ((seen[name] - right[name]).norm() / (last[name] - right[name]).norm()).item() for name in seen}
    table = ((seen[TABLE] - squared[TABLE]).norm() / (last[TABLE] - squared[TABLE]).norm()).item()
    return off.pop(TABLE), table, max(off.values())


def ages(kind):
    """The age of the average of weights that say the number of their step, for the table and for a matrix of a layer."""
    model = build(True)
    average = KINDS[kind](model)
    for step in range(2000):
        with torch.no_grad():
            for weight in model.parameters():
                weight.fill_(float(step))
        average.update(model)
    seen = weights(average.module)
    return 1999 - seen[TABLE].mean().item(), 1999 - seen["model.layers.0.mlp.up_proj.weight"].mean().item()


for kind in KINDS:
    table, twice, others = train(kind, True)
    old, usual = ages(kind)
    print(f"{kind}, tied: the table is off an average with {DECAY} by {table:.3f}, and with {DECAY ** 2:.4f} by {twice:.3f}; "
          f"others off by {others:.3f}; age of the table {old:.1f} steps, of others {usual:.1f}")
    doubles = "buffers" not in kind and "torch" not in kind
    assert others < 1e-3 and abs(usual - 99) < 0.5
    if doubles:
        assert twice < 1e-3 and table > 0.2 and abs(old - 49.25) < 0.5, "the behaviour changed"
    else:
        assert table < 1e-3 and twice > 0.2 and abs(old - 99) < 0.5
table, twice, others = train("ModelEmaV3", False)
print(f"ModelEmaV3, untied: the table is off an average with {DECAY} by {table:.3f}; others by {others:.3f}")
assert table < 1e-3 and others < 1e-3
END
