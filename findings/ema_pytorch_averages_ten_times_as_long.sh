#!/usr/bin/env bash
# ema-pytorch 0.8.3, torch 2.15.0: update_every, 10 by default, makes the average up to ten times as old.
#
# Expected: beta=0.9999 averages some 10,000 steps. The README says that update_every=10 is there to save compute, so one expects about
#   the same average from a tenth of the updates. The class says that gamma=1 and power=1 is a simple average of all steps.
# Seen, a weight that grows by 1 in each step, so that its distance to the average is the average's age in steps.
#   Defaults, 10,000 steps: 3,394 steps with update_every=10, and 446 with 1. power=1, "simple average", 10,000 steps: 9,000 with 10, and
#   4,950 with 1, as it should be. A constant decay of 0.999: 9,806 steps with 10, and 999 with 1.
#   With power=1 0.477 of the average are weights of the first 100 steps, and 0.0001 with 1. After 1,000 steps with defaults 0.089 are, and 2e-12.
# Control: with the decay of an update raised to the power of 10 the average that is updated every 10 steps is 442, 4,948 and 995 steps old.
# Why: the decay of a step is used once in update_every steps, as it is. The warmup counts steps for its decay and decays once in ten.
# Why it matters: one who takes a decay from a paper, or sets update_every to save time, gets an average that is some 8 to 10 times as old.
#   In short runs it holds the first weights: samples and validation lag behind the model. Nothing warns.
# Usage: ./ema_pytorch_averages_ten_times_as_long.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 ema-pytorch==0.8.3 numpy==2.4.6
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore - 2>"$folder/errors" <<'PYTHON' || { tail "$folder/errors"; exit 1; }
import importlib.metadata

import torch
from ema_pytorch import EMA

torch.set_num_threads(1)
print("ema-pytorch", importlib.metadata.version("ema-pytorch"), "torch", torch.__version__)
assert importlib.metadata.version("ema-pytorch") == "0.8.3" and torch.__version__.startswith("2.15.0")


class Mended(EMA):
    """The decay of all steps since the last update, not of one."""

    def get_current_decay(self):
        return super().get_current_decay() ** self.update_every


def age(steps, kind=EMA, **options):
    """How many steps the average is behind a weight that grows by 1 in each step."""
    model = torch.nn.Linear(1, 1, bias=False, dtype=torch.float64)
    average = kind(model, **options)
    for step in range(steps + 1):
        model.weight.data.fill_(float(step))
        average.update()
    return steps - average.ema_model.weight.item()


CASES = {"defaults, 10,000 steps": (10000, {}), "power=1, a simple average, 10,000 steps": (10000, {"power": 1.0}),
         "a constant decay of 0.999, 40,000 steps": (40000, {"beta": 0.999, "min_value": 0.999})}
ages = {}
for name, (steps, options) in CASES.items():
    usual, each, mended = age(steps, **options), age(steps, **options, update_every=1), age(steps, Mended, **options)
    ages[name] = usual, each, mended
    print(f"{name}: the average is {usual:,.0f} steps old with update_every=10, the default, {each:,.0f} with 1,",
          f"and {mended:,.0f} with 10 and the decay to the power of 10", flush=True)
    assert abs(mended / each - 1) < 0.02, "the control is off"
usual, each, _ = ages["defaults, 10,000 steps"]
assert abs(usual - 3394) < 2 and abs(each - 446) < 2, "the behaviour changed"
usual, each, _ = ages["power=1, a simple average, 10,000 steps"]
assert abs(usual - 9000) < 2 and abs(each - 4950) < 2
usual, each, _ = ages["a constant decay of 0.999, 40,000 steps"]
assert 9.7 < usual / each < 10.1


def share(steps, **options):
    """The part of the average that are the weights of step 100 and of those before."""
    model = torch.nn.Linear(1, 1, bias=False, dtype=torch.float64)
    average = EMA(model, **options)
    for step in range(steps + 1):
        model.weight.data.fill_(float(step <= 100))
        average.update()
    return average.ema_model.weight.item()


usual, each = share(10000, power=1.0), share(10000, power=1.0, update_every=1)
print(f"power=1, 10,000 steps: {usual:.3f} of the average are weights of steps up to 100, with update_every=1 {each:.4f}")
assert usual > 0.4 and each < 0.011
usual, each = share(1000), share(1000, update_every=1)
print(f"defaults, 1,000 steps: {usual:.3f} of the average are weights of steps up to 100, with update_every=1 {each:.1e}")
assert usual > 0.03 and each < 1e-6
PYTHON
