#!/usr/bin/env bash
# torch 2.15.0: get_optimizer_state_dict before the first step of AdamW makes that step a quarter smaller.
#
# Expected: a function that returns a state changes nothing.
# Seen: asked before training, it makes the state by a step with gradients of zero and a rate of zero, and leaves the count of steps at 1.
#   The first real step is then the second of the bias correction: with a rate of 0.01 a weight moves by 0.0074, not by 0.0100.
#   The next steps are smaller, too: after 10 steps a weight has moved 0.93 times as far. SGD with momentum is as it was.
# Why it matters: code that asks for the state to fill it from a checkpoint, and finds no checkpoint, trains on with the count at 1. Who asks and who
#   does not get different losses from the same seed.
# Usage: ./asking_for_optimizer_state_counts_a_step.sh (seconds, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'END'
import torch
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

assert torch.__version__.startswith("2.15.0")
print("torch", torch.__version__)


def path(make, asks):
    """How far the weights are from their start after 1 and after 10 steps with a gradient of 1."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4, bias=False)
    start = model.weight.detach().clone()
    optimizer = make(model.parameters())
    if asks:
        get_optimizer_state_dict(model, optimizer)
    moved = []
    for step in range(10):
        model.weight.grad = torch.ones_like(model.weight)
        optimizer.step()
        moved.append((start - model.weight.detach()).mean().item())
    return moved[0], moved[-1]


for name, make in {"AdamW": lambda weights: torch.optim.AdamW(weights, lr=0.01, weight_decay=0.0),
                   "SGD": lambda weights: torch.optim.SGD(weights, lr=0.01, momentum=0.9)}.items():
    usual, asked = path(make, False), path(make, True)
    print(f"{name}: the first step moves weights by {usual[0]:.5f}, and by {asked[0]:.5f} after the question; ten steps by {usual[1]:.4f} and {asked[1]:.4f}")
    if name == "SGD":
        assert usual == asked
    else:
        assert abs(usual[0] - 0.01) < 1e-5 and abs(asked[0] - 0.00744) < 2e-5, "the behaviour changed"
        assert abs(asked[1] / usual[1] - 0.933) < 0.002, "the behaviour changed"
END
