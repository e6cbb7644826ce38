#!/usr/bin/env bash
# torch 2.15.0: ChainedScheduler of a LambdaLR and a LinearLR warm-up starts at 11 times the rate, or, in the other order, has no warm-up.
#
# Expected: chained schedulers multiply, as in its documentation's example. A warm-up from 0.001 keeps the rate below its maximum.
# Seen, maximum 1, warm-up from 0.001 over 100 steps, cosine over 1,000 steps as LambdaLR. [LambdaLR, LinearLR]: the rate of the second
#   step is 10.99, of the third 1.91, and it stays above 1 until step 74. [LinearLR, LambdaLR]: 1.000 from the first step on, no warm-up.
#   CosineAnnealingWarmRestarts in place of LambdaLR gives the same rates.
# Controls: LinearLR with CosineAnnealingLR, PolynomialLR or ExponentialLR gives the product in both orders, and the rate never exceeds 1.
#   SequentialLR with LambdaLR warms up.
# Why: a chainable scheduler multiplies the group's rate by a ratio of its factors at this step and at the last. LambdaLR and
#   CosineAnnealingWarmRestarts set the rate anew from the step. LinearLR after one of them multiplies it by 10.99, the ratio of its
#   factors at two steps. ChainedScheduler refuses ReduceLROnPlateau and takes these two.
# Why it matters: transformers' schedules are LambdaLR. The first steps of a run, which the warm-up is to protect, take the largest rate.
#   Nothing warns.
# Usage: ./torch_chained_scheduler_turns_warmup_into_a_spike.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W error - 2>"$folder/errors" <<'END' || { tail "$folder/errors"; exit 1; }
import math

import torch
from torch.optim import lr_scheduler as schedules

torch.set_num_threads(1)
print("torch", torch.__version__)
assert torch.__version__.startswith("2.15.0")
WARMUP, TOTAL, START = 100, 1000, 1e-3
MAKE = {"LinearLR": lambda optimizer: schedules.LinearLR(optimizer, START, total_iters=WARMUP),
        "LambdaLR": lambda optimizer: schedules.LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / TOTAL))),
        "WarmRestarts": lambda optimizer: schedules.CosineAnnealingWarmRestarts(optimizer, TOTAL),
        "CosineAnnealingLR": lambda optimizer: schedules.CosineAnnealingLR(optimizer, TOTAL),
        "PolynomialLR": lambda optimizer: schedules.PolynomialLR(optimizer, TOTAL),
        "ExponentialLR": lambda optimizer: schedules.ExponentialLR(optimizer, 0.999)}


def rates(names, chain=True, maximum=1.0):
    """The rates of all steps. With names of one scheduler it runs alone."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=maximum)
    made, seen = [MAKE[name](optimizer) for name in names], []
    if len(made) > 1:
        schedule = schedules.ChainedScheduler(made, optimizer) if chain else schedules.SequentialLR(optimizer, made, [WARMUP])
    else:
        schedule = made[0]
    for _ in range(TOTAL):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return seen


warmup = rates(["LinearLR"])
for name in ("LambdaLR", "WarmRestarts", "CosineAnnealingLR", "PolynomialLR", "ExponentialLR"):
    product = [one * two for one, two in zip(warmup, rates([name]))]
    for names in ((name, "LinearLR"), ("LinearLR", name)):
        seen = rates(names)
        above = max(step for step, rate in enumerate(seen) if rate > 1 + 1e-6) if max(seen) > 1 + 1e-6 else 0
        off = max(abs(one - two) for one, two in zip(seen, product))
        print(f"ChainedScheduler [{', '.join(names)}]: first rates {seen[0]:.3f}, {seen[1]:.3f}, {seen[2]:.3f}; largest {max(seen):.2f}; "
              f"last step above 1: {above}; off the product by {off:.3f}")
        if name in ("CosineAnnealingLR", "PolynomialLR", "ExponentialLR"):
            assert off < 1e-3 and above == 0
        elif names[1] == "LinearLR":
            assert abs(seen[1] - 10.99) < 0.01 and 70 < above < 80, "the behaviour changed"
        else:
            assert max(abs(one - two) for one, two in zip(seen, rates([name]))) < 1e-6, "the behaviour changed"
sequential = rates(["LinearLR", "LambdaLR"], chain=False)
print(f"SequentialLR [LinearLR, LambdaLR]: first rates {sequential[0]:.3f}, {sequential[1]:.3f}; largest {max(sequential):.2f}")
assert max(sequential) <= 1 and sequential[0] == START
END
