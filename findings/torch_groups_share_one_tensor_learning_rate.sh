#!/usr/bin/env bash
# torch 2.15.0: with a tensor as the learning rate all parameter groups, and the caller, share one number. ReduceLROnPlateau cuts it twice.
#
# Expected: lr=torch.tensor(1e-3) trains as lr=1e-3 does. PyTorch's recipe for a compiled optimizer says to make the rate a tensor,
#   so that a change of it compiles nothing anew. AdamW's documentation asks for fused=True or capturable=True beside it.
# Seen, fused AdamW with the usual two groups, with and without weight decay, and one plateau that calls for one cut by 0.5:
#   a number goes from 0.001 to 0.0005, a tensor to 0.00025. With 8 groups a tensor goes to 0.0000039, 1/256 of what it was.
#   LambdaLR with a list, 1.0 for the first group and 0.1 for the second, gives both 0.0001. SWALR and CyclicLR with lists do so, too.
#   A second optimizer made from the same tensor begins at the rate to which the first one's schedule has come: 0.000125, not 0.001.
# Controls: with a number each is right. With lr=rate.clone() in each group each is right, too. A tensor and one group is right.
# Why: a group without a rate of its own gets the default by reference, and a scheduler writes a tensor's rate in place.
#   ReduceLROnPlateau reads and cuts group by group, so that it cuts what it has cut. Others compute all rates first: the last one wins.
#   A saved and loaded state keeps the sharing.
# Why it matters: with g groups each plateau multiplies the rate by the factor to the power of g, and layers with rates of their own lose them.
#   get_last_lr() and the log show a plausible fall. Nothing warns.
# Usage: ./torch_groups_share_one_tensor_learning_rate.sh (half a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore - 2>"$folder/errors" <<'END' || { tail "$folder/errors"; exit 1; }
import io

import torch
from torch.optim.lr_scheduler import CyclicLR, ExponentialLR, LambdaLR, ReduceLROnPlateau
from torch.optim.swa_utils import SWALR

torch.set_num_threads(1)
print("torch", torch.__version__)
assert torch.__version__.startswith("2.15.0")
RATE = 1e-3
torch.manual_seed(1)
inputs = torch.randn(64, 8)
labels = inputs.roll(1, 1).sin()


def build(kind, pieces=1):
    """A model and AdamW with a group of matrices and one of biases for each of `pieces` parts."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(4)])
    rate, groups = torch.tensor(RATE), []
    for piece in range(pieces):
        layers = list(model)[piece * 4 // pieces:(piece + 1) * 4 // pieces]
        groups.append({"params": [layer.weight for layer in layers], "weight_decay": 0.1})
        groups.append({"params": [layer.bias for layer in layers], "weight_decay": 0.0})
    if kind == "copies":
        for group in groups:
            group["lr"] = rate.clone()
    return model, torch.optim.AdamW(groups, lr=RATE if kind == "number" else rate, fused=True), rate


def step(model, optimizer):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs), labels).backward()
    optimizer.step()


def rates(optimizer):
    return [round(float(group["lr"]), 8) for group in optimizer.param_groups]


seen = {}
for kind in ("number", "copies", "tensor"):
    found = {}
    for pieces in (1, 4):
        model, optimizer, _ = build(kind, pieces)
        schedule = ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
        for metric in (1.0, 1.0, 1.0):  # the third in a row without progress calls for one cut
            step(model, optimizer)
            schedule.step(metric)
        found[f"plateau, {2 * pieces} groups"] = rates(optimizer)[::2 * pieces - 1]
    for name, make in {"LambdaLR": lambda o: LambdaLR(o, [lambda t: 1.0, lambda t: 0.1]),
                       "SWALR": lambda o: SWALR(o, [5e-4, 5e-5], anneal_epochs=2),
                       "CyclicLR": lambda o: CyclicLR(o, 1e-4, [1e-3, 1e-2], 2, cycle_momentum=False)}.items():
        model, optimizer, _ = build(kind)
        schedule = make(optimizer)
        for _ in range(2):
            step(model, optimizer)
            schedule.step()
        found[name] = rates(optimizer)
    saved = io.BytesIO()
    torch.save(optimizer.state_dict(), saved)
    saved.seek(0)
    other = build(kind)[1]
    other.load_state_dict(torch.load(saved))
    shared = other.param_groups[0]["lr"] is other.param_groups[1]["lr"]
    found["one object after loading"] = shared and kind != "number"
    model, first, rate = build(kind)
    schedule = ExponentialLR(first, 0.5)
    for _ in range(3):
        step(model, first)
        schedule.step()
    second = torch.optim.AdamW(build(kind)[0].parameters(), lr=RATE if kind == "number" else rate, fused=True)
    found["second optimizer"] = rates(second)
    seen[kind] = found
    print(kind, found)
one = torch.nn.Linear(8, 8)
single = torch.optim.AdamW(one.parameters(), lr=torch.tensor(RATE), fused=True)
schedule = ReduceLROnPlateau(single, factor=0.5, patience=1)
for metric in (1.0, 1.0, 1.0):
    step(one, single)
    schedule.step(metric)
print("tensor and one group, plateau:", rates(single))
assert rates(single) == [5e-4]
right = {"plateau, 2 groups": [5e-4, 5e-4], "plateau, 8 groups": [5e-4, 5e-4], "LambdaLR": [1e-3, 1e-4], "SWALR": [5e-4, 5e-5],
         "CyclicLR": [1e-3, 1e-2], "one object after loading": False, "second optimizer": [1e-3]}
wrong = {"plateau, 2 groups": [2.5e-4, 2.5e-4], "plateau, 8 groups": [3.91e-6, 3.91e-6], "LambdaLR": [1e-4, 1e-4],
         "SWALR": [5e-5, 5e-5], "CyclicLR": [1e-2, 1e-2], "one object after loading": True, "second optimizer": [1.25e-4]}
assert seen["number"] == seen["copies"] == right, "the behaviour changed"
assert seen["tensor"] == wrong, "the behaviour changed"
END
