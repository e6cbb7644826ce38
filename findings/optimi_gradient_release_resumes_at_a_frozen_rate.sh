#!/usr/bin/env bash
# torch-optimi 0.3.3, torch 2.15.0: a run with gradient release that is resumed keeps the learning rate of its checkpoint for ever.
#
# Expected: load_state_dict gives back a run. The documentation says that gradient release fits all learning rate schedulers.
# Seen, a small model, AdamW, a rate that falls from 0.01 to 0 over 200 steps, saved at step 50 and loaded again. Without gradient release
#   the resumed run ends at the weights of a run that never stopped. With it the optimizer and the scheduler say 0.0000 at the end, and
#   each step is taken at 0.0075. Weights go 1.65 times as far, and end off by 0.907 of the way since the checkpoint.
#   Lion is off by 1.087, StableAdamW by 0.909, SGD by 0.816 and Adan by 0.772. A run that is not stopped follows the schedule.
# Control: the same resume, with each state's "group" set to the optimizer's group after loading, ends at the same weights.
# Why: each weight's state holds its parameter group, by reference, and the step in the backward reads rates there. state_dict saves this
#   group with the state. Loading makes a copy of it, so that the state no longer points to what the scheduler writes to.
# Why it matters: warmup, decay and a new rate are lost from the first resume on. The logged rate is that of the scheduler and looks right.
#   A run that stops in its warmup stays at a rate near 0. One that stops at the top never decays.
# Usage: ./optimi_gradient_release_resumes_at_a_frozen_rate.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 torch-optimi==0.3.3 numpy==2.4.6 packaging==26.4
cat >"$folder/resume.py" <<'PYTHON'
import importlib.metadata
import sys

import optimi
import torch

STEPS, STOP, RATE = 200, 50, 1e-2
torch.set_num_threads(1)
print("torch-optimi", importlib.metadata.version("torch-optimi"), "torch", torch.__version__)
assert torch.__version__.startswith("2.15.0") and importlib.metadata.version("torch-optimi") == "0.3.3"
draws = torch.Generator().manual_seed(1)
inputs = torch.randn(STEPS, 32, 16, generator=draws)
targets = torch.randn(STEPS, 32, 8, generator=draws)


def build(kind, release):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
    optimizer = getattr(optimi, kind)(model.parameters(), lr=RATE, gradient_release=release, triton=False)
    if release:
        optimi.prepare_for_gradient_release(model, optimizer)
    return model, optimizer, torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, STEPS)


def train(run, first, last, release):
    model, optimizer, scheduler = run
    for step in range(first, last):
        torch.nn.functional.mse_loss(model(inputs[step]), targets[step]).backward()
        if not release:
            optimizer.step()
            optimizer.zero_grad()
        scheduler.step()
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


def compare(kind, release, mend=False):
    """How far the resumed run ends off the one that never stopped, and how far it went, both over the way of the latter."""
    run = build(kind, release)
    start = train(run, 0, STOP, release)
    torch.save([part.state_dict() for part in run], file := sys.argv[1])
    right = train(run, STOP, STEPS, release)
    model, optimizer, scheduler = resumed = build(kind, release)
    for part, state in zip(resumed, torch.load(file), strict=True):
        part.load_state_dict(state)
    if mend:
        for group in optimizer.param_groups:
            for weight in group["params"]:
                optimizer.state[weight]["group"] = group
    seen = train(resumed, STOP, STEPS, release)
    used = optimizer.state[next(model.parameters())].get("group", optimizer.param_groups[0])["lr"]
    way = (right - start).norm()
    off, far = ((seen - right).norm() / way).item(), ((seen - start).norm() / way).item()
    name = f"{kind}, gradient_release={release}" + (", groups joined again" if mend else "")
    print(f"{name}: at the end the optimizer says {optimizer.param_groups[0]['lr']:.4f} and steps at {used:.4f};",
          f"off by {off:.3f} of the way, went {far:.2f} times as far", flush=True)
    assert optimizer.param_groups[0]["lr"] < 1e-9 and scheduler.get_last_lr()[0] < 1e-9
    return off, far, used


for kind in ("AdamW", "Lion", "StableAdamW", "SGD", "Adan"):
    off, far, used = compare(kind, False)
    assert off < 1e-5
    off, far, used = compare(kind, True, mend=True)
    assert off < 1e-5 and used < 1e-9
    off, far, used = compare(kind, True)
    assert abs(used - RATE * (1 - STOP / STEPS)) < 1e-6 and off > 0.3, "the behaviour changed"
    if kind == "AdamW":
        assert off > 0.7 and far > 1.4
PYTHON
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/resume.py" "$folder/checkpoint" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
