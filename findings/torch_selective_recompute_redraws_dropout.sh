#!/usr/bin/env bash
# torch 2.15.0: selective checkpointing that keeps an attention with dropout gives the dropouts behind it other masks in the backward pass.
#
# Expected: recomputation repeats the forward pass with the same random numbers. preserve_rng_state is on by default.
# Seen, a layer with attention as a custom operator and two dropouts behind it, all rates 0.1, against the layer without checkpoints:
#   The loss is equal to the last digit. The gradients are 18 % off. No error, no warning; the check of shapes cannot see it.
#   They are right with a full checkpoint, with kept linear products, and where the kept attention has no dropout.
# Why: the checkpoint sets the generator back once, at the start of the layer. A kept operator is not run again and draws nothing.
#   So each later dropout gets numbers that were others' in the forward pass.
# Why it matters: attention is what such lists keep first. Fine-tuning with dropout in attention and in the residual then trains
#   on gradients of another function than the one whose loss is logged.
# Usage: ./torch_selective_recompute_redraws_dropout.sh (seconds, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6
OMP_NUM_THREADS=1 timeout 200 "$folder/env/bin/python" -W ignore - <<'END'
import functools

import torch
from torch import library
from torch.nn.functional import dropout, gelu
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

print("torch", torch.__version__)
assert torch.__version__.startswith("2.15.0")
torch.set_num_threads(1)
WIDTH = 32


@library.custom_op("example::attention", mutates_args=())
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rate: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention as one operator with dropout inside; it hands its mask to the backward pass."""
    shares = torch.softmax(q @ k.mT / WIDTH**0.5, -1)
    mask = dropout(torch.ones_like(shares), rate) if rate else torch.ones_like(shares)
    return (shares * mask) @ v, mask


def keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:3], output[1])


def backward(ctx, gradient, _):
    q, k, v, mask = ctx.saved_tensors
    shares = torch.softmax(q @ k.mT / WIDTH**0.5, -1)
    of_shares = gradient @ v.mT * mask
    of_logits = shares * (of_shares - (of_shares * shares).sum(-1, keepdim=True)) / WIDTH**0.5
    return of_logits @ k, of_logits.mT @ q, (shares * mask).mT @ gradient, None


attention.register_autograd(backward, setup_context=keep)


class Layer(torch.nn.Module):
    def __init__(self, attention_rate):
        super().__init__()
        self.rate = attention_rate
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + dropout(self.out(torch.ops.example.attention(*self.qkv(x).chunk(3, -1), self.rate)[0]), 0.1)
        return x + dropout(self.down(gelu(self.up(x))), 0.1)


def train(attention_rate, kept):
    """The loss and all gradients of one step. kept: None without checkpoints, else the operators whose outputs are kept."""
    torch.manual_seed(0)
    layer, batch, target = Layer(attention_rate), torch.randn(8, 64, WIDTH), torch.randn(8, 64, WIDTH)
    if kept is None:
        output = layer(batch)
    else:
        options = {"context_fn": functools.partial(create_selective_checkpoint_contexts, kept)} if kept else {}
        output = checkpoint(layer, batch, use_reentrant=False, **options)
    loss = torch.nn.functional.mse_loss(output, target)
    loss.backward()
    return loss.item(), torch.cat([weight.grad.flatten() for weight in layer.parameters()])


KEPT = {"nothing kept": [], "linear products kept": [torch.ops.aten.addmm.default], "attention kept": [torch.ops.example.attention.default]}
for rate in 0.1, 0.0:
    loss, gradients = train(rate, None)
    for name, kept in KEPT.items():
        other_loss, others = train(rate, kept)
        error = ((others - gradients).norm() / gradients.norm()).item()
        print(f"attention dropout {rate}, {name}: loss {other_loss:.6f} (without checkpoint {loss:.6f}), gradients {error:.1%} off")
        assert other_loss == loss
        assert error > 0.05 if rate and name == "attention kept" else error < 1e-6, "the behaviour changed"
END
