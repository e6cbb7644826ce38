#!/usr/bin/env bash
# deepspeed 0.19.8, torch 2.15.0: the OneCycle schedule sets Adam's second beta to 0.99, whatever the optimizer was given.
#
# Expected: OneCycle moves the rate, and the first beta between cycle_min_mom and cycle_max_mom. It has no setting for the second beta.
# Seen, AdamW with betas [0.9, 0.999], [0.9, 0.95] or [0.9, 0.9], 60 steps: all three have 0.99 from the first step on and end at
#   the same weights, to the last bit. A group with its own betas gets 0.99, too.
# Control: with "cycle_momentum": false the three keep their betas and end at different weights.
# Why: the schedule writes pairs of betas to the groups at its start and at each step. The second of each pair is a fixed 0.99 in its code.
# Why it matters: cycle_momentum is on unless it is turned off. Language models are trained with 0.95 or 0.98, and 0.999 is Adam's own.
#   The setting in the configuration is read, printed and saved, and has no effect. A search over beta2 finds no difference.
# Usage: ./deepspeed_one_cycle_replaces_beta2.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 deepspeed==0.19.8
cat >"$folder/cycle.py" <<'END'
import logging
import os

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29847", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", DS_ACCELERATOR="cpu")
import deepspeed
import torch

logging.disable(logging.WARNING)
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and deepspeed.__version__ == "0.19.8"
print("seen: deepspeed", deepspeed.__version__, "torch", torch.__version__, flush=True)
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # so that nothing is compiled
deepspeed.init_distributed("gloo", verbose=False)
WORDS, STEPS = 64, 60


def train(beta2, **more):
    """The second betas that the steps had, and the weights at the end."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(WORDS, 32), torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, WORDS))
    groups = [{"params": [weight for weight in model.parameters() if weight.ndim > 1]},
              {"params": [weight for weight in model.parameters() if weight.ndim == 1], "betas": (0.9, 0.97), "weight_decay": 0.0}]
    optimizer = {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, beta2], "weight_decay": 0.01, "torch_adam": True}}
    schedule = {"cycle_min_lr": 1e-4, "cycle_max_lr": 2e-2, "cycle_first_step_size": STEPS // 2, **more}
    engine = deepspeed.initialize(model=model, model_parameters=groups, config={
        "train_micro_batch_size_per_gpu": 16, "optimizer": optimizer,
        "scheduler": {"type": "OneCycle", "params": schedule}})[0]
    draws, seen = torch.Generator().manual_seed(1), (set(), set())
    for _ in range(STEPS):
        words = torch.randint(WORDS, (16,), generator=draws)
        engine.backward(torch.nn.functional.cross_entropy(engine(words), (words * 3 + 1) % WORDS))
        for group, betas in zip(engine.optimizer.param_groups, seen):
            betas.add(group["betas"][1])
        engine.step()
    return seen, torch.cat([weight.detach().flatten() for weight in model.parameters()])


for name, more in (("as it is", {}), ("with cycle_momentum false", {"cycle_momentum": False})):
    ends = []
    for beta2 in (0.999, 0.95, 0.9):
        seen, end = train(beta2, **more)
        ends.append(end)
        off = ((end - ends[0]).norm() / ends[0].norm()).item()
        print(f"seen: OneCycle {name}, beta2 {beta2} and 0.97 for norms and biases: steps had {sorted(seen[0])} and {sorted(seen[1])}, "
              f"weights off from those of 0.999 by {off:.4f}", flush=True)
        if more:
            assert seen == ({beta2}, {0.97}) and (off > 0.002 or beta2 == 0.999)
        else:
            assert seen == ({0.99}, {0.99}) and torch.equal(end, ends[0]), "the behaviour changed"
os._exit(0)
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/cycle.py" >"$folder/said" 2>"$folder/errors" || { cat "$folder/said"; tail "$folder/errors"; exit 1; }
grep -o 'seen: .*' "$folder/said" | cut -c7-
