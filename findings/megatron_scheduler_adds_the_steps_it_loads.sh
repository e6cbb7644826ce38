#!/usr/bin/env bash
# megatron-core 0.19.2, torch 2.15.0: OptimizerParamScheduler.load_state_dict adds the checkpoint's count of steps to its own.
#
# Expected: a loaded schedule is where the saved one was, whatever the object did before. torch.optim.lr_scheduler's are.
# Seen, a warmup of 10 and a decay to 0 in 100 steps, weight decay that rises to 0.1. Saved after 40 steps, stepped to 45 and loaded,
#   the schedule is at 85. The linear rate is 0.17 of the maximum, not 0.67; weight decay is 0.085, not 0.040. Cosine likewise.
#   Loaded once more it is at 125: the rate is 0, and training stands still. A new object that loads is right, at 40. No warning.
# Why: loading calls step() with the saved count as the increment, on top of the count that is there.
# Why it matters: some loops go back to their last checkpoint within the process, after a spike of the loss or a NaN.
#   They go on with the rate of a later step, and so does a loop that loads twice. Megatron-LM's own training loads once into a new object, and is not concerned.
# Usage: ./megatron_scheduler_adds_the_steps_it_loads.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6 packaging==26.4
# It asks for Python 3.12, and has a wheel for 3.11.
python3 -m pip install --quiet --root-user-action ignore --no-deps --ignore-requires-python --target "$folder/megatron" \
  megatron-core==0.19.2
PYTHONPATH="$folder/megatron" CUDA_VISIBLE_DEVICES="" OMP_NUM_THREADS=1 timeout 200 "$folder/env/bin/python" -W ignore - <<'END'
from importlib.metadata import version

import torch
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

assert torch.__version__.startswith("2.15.0") and version("megatron-core") == "0.19.2"
print(f"torch {torch.__version__}, megatron-core {version('megatron-core')}")
WARMUP, DECAY, SAVED, MORE = 10, 100, 40, 5


def optimizer():
    return torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))], lr=1.0)


def megatron(style):
    return OptimizerParamScheduler(optimizer(), init_lr=0.0, max_lr=1.0, min_lr=0.0, lr_warmup_steps=WARMUP, lr_decay_steps=DECAY,
                                   lr_decay_style=style, start_wd=0.0, end_wd=0.1, wd_incr_steps=DECAY, wd_incr_style="linear")


def place(scheduler):
    group = scheduler.optimizer.param_groups[0]
    return scheduler.num_steps, round(group["lr"], 4), round(group["weight_decay"], 4)


for style, at_85 in ("linear", 0.1667), ("cosine", 0.067):
    scheduler, fresh = megatron(style), megatron(style)
    for _ in range(SAVED):
        scheduler.step(increment=1)
    saved, state = place(scheduler), scheduler.state_dict()
    fresh.load_state_dict(state)
    for _ in range(MORE):
        scheduler.step(increment=1)
    scheduler.load_state_dict(state)
    back = place(scheduler)
    scheduler.load_state_dict(state)
    twice = place(scheduler)
    print(f"{style} (steps, rate, weight decay): saved at {saved}; loaded into a new object {place(fresh)}; "
          f"loaded after {MORE} more steps {back}; and once more {twice}")
    assert place(fresh) == saved and saved[0] == SAVED
    assert back == (2 * SAVED + MORE, at_85, 0.085) and twice == (3 * SAVED + MORE, 0.0, 0.1), "the behaviour changed"

control = torch.optim.lr_scheduler.LambdaLR(optimizer(), lambda step: min(step / WARMUP, 1 - (step - WARMUP) / (DECAY - WARMUP)))
for step in range(SAVED + MORE):
    control.optimizer.step()
    control.step()
    if step + 1 == SAVED:
        state = control.state_dict()
control.load_state_dict(state)
print(f"torch's LambdaLR, saved at {SAVED}, loaded after {MORE} more steps: at {control.last_epoch}, rate {control.get_last_lr()[0]:.4f}")
assert control.last_epoch == SAVED and abs(control.get_last_lr()[0] - 2 / 3) < 1e-6
END
