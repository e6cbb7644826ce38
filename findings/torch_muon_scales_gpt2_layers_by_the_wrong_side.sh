#!/usr/bin/env bash
# torch 2.15.0, transformers 5.24.0: torch.optim.Muon takes GPT-2's matrices for those of the transposed layers: rates are 2 and 0.5 times.
#
# Expected: Muon moves a layer as far, in whichever order its weight is stored. An orthogonal update of a transposed gradient is the transposed update.
# Seen, a small GPT-2, and the same model with a torch.nn.Linear in place of each Conv1D; outputs and gradients are equal. After a step of
#   Muon with its defaults the layers of GPT-2 have moved, for those as nn.Linear: mlp.c_fc 0.50 times as far, mlp.c_proj 2.00,
#   attn.c_attn 0.58, attn.c_proj 1.00. In this short run GPT-2 is none the worse for it: its loss is 2.75, and 2.81 as nn.Linear.
# Controls: with adjust_lr_fn="match_rms_adamw", and with AdamW, both models make the same steps.
# Why: the default adjust_lr_fn multiplies the rate by the root of rows / columns, if that is more than 1. In nn.Linear rows are outputs.
#   transformers' Conv1D, of GPT-2, ImageGPT, OpenAI GPT and Decision Transformer, stores inputs first. The layer that widens gets a factor of
#   1 for 2, and the one that narrows 2 for 1.
# Why it matters: the ratio of the rates of the two halves of each MLP is 4 times what Muon means it to be. A rate that was found with
#   nanoGPT's nn.Linear is another one for the same model of transformers. Nothing warns.
# Usage: ./torch_muon_scales_gpt2_layers_by_the_wrong_side.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 numpy==2.4.6
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore - 2>"$folder/errors" <<'END' || { tail "$folder/errors"; exit 1; }
import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
print("torch", torch.__version__, "transformers", transformers.__version__)
assert torch.__version__.startswith("2.15.0") and transformers.__version__ == "5.24.0"
LAYERS = {"mlp.c_fc": 0.5, "mlp.c_proj": 2.0, "attn.c_attn": 3 ** -0.5, "attn.c_proj": 1.0}
draws = torch.Generator().manual_seed(1)
BATCHES = [(torch.randint(0, 16, (8, 1), generator=draws) * 7 + torch.arange(32) * 3) % 256 for _ in range(50)]


def build(linear):
    """GPT-2 as it is, or with each Conv1D replaced by the nn.Linear that computes the same."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=32, n_embd=64, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0,
                                       attn_pdrop=0))
    if linear:
        for name, module in list(model.named_modules()):
            if isinstance(module, Conv1D):
                layer = torch.nn.Linear(*module.weight.shape)
                layer.weight.data, layer.bias.data = module.weight.detach().T.contiguous(), module.bias.detach().clone()
                model.set_submodule(name, layer)
    return model


def matrices(model):
    """The layers' matrices, inputs first."""
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, (Conv1D, torch.nn.Linear)) and "transformer.h." in name:
            found[name] = module.weight.detach().clone() if isinstance(module, Conv1D) else module.weight.detach().T.clone()
    return found


def train(linear, make):
    """How each matrix moved in the first step, and all losses. Embeddings, norms and biases are AdamW's, as Muon asks for."""
    model = build(linear)
    hidden = [weight for name, weight in model.named_parameters() if "transformer.h." in name and weight.ndim == 2]
    others = [weight for weight in model.parameters() if all(weight is not one for one in hidden)]
    optimizers, start, losses = [make(hidden), torch.optim.AdamW(others, lr=1e-3)], matrices(model), []
    for step, tokens in enumerate(BATCHES):
        loss = model(input_ids=tokens, labels=tokens).loss
        losses.append(loss.item())
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if step == 0:
            moved = {name: weight - start[name] for name, weight in matrices(model).items()}
    return moved, losses


KINDS = {"Muon": lambda weights: torch.optim.Muon(weights, lr=0.02, weight_decay=0),
         "Muon, match_rms_adamw": lambda weights: torch.optim.Muon(weights, lr=0.02, weight_decay=0, adjust_lr_fn="match_rms_adamw"),
         "AdamW": lambda weights: torch.optim.AdamW(weights, lr=1e-3, weight_decay=0)}
for kind, make in KINDS.items():
    (mine, losses), (right, usual) = train(False, make), train(True, make)
    assert abs(losses[0] - usual[0]) < 1e-4
    ratios = {layer: [(mine[name].norm() / right[name].norm()).item() for name in mine if name.endswith(layer)] for layer in LAYERS}
    angle = min(torch.nn.functional.cosine_similarity(mine[name].flatten(), right[name].flatten(), 0).item() for name in mine)
    print(f"{kind}: GPT-2's layers move, for those as nn.Linear, by "
          + ", ".join(f"{layer} {min(some):.2f}-{max(some):.2f}" for layer, some in ratios.items())
          + f"; directions agree to {angle:.3f}; loss after 20 and 49 steps {losses[20]:.3f} and {losses[49]:.3f}, "
          f"as nn.Linear {usual[20]:.3f} and {usual[49]:.3f}", flush=True)
    for layer, expected in LAYERS.items():
        for ratio in ratios[layer]:
            assert abs(ratio / (expected if kind == "Muon" else 1) - 1) < 0.03, "the behaviour changed"
    assert angle > 0.98
END
