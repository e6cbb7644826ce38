#!/usr/bin/env bash
# torch 2.15.0: with one DefaultStager for all async_save calls a checkpoint that is still being written gets the weights of the next one.
#
# Expected: async_save returns once the state is copied. What happens later changes nothing in that checkpoint, as its documentation says
#   of a staged copy. A stager of one's own may be used for all checkpoints: one is asked to close it after the last.
# Seen, AdamW, checkpoints of steps 10, 20 and 30, storage that takes 2 s: with one stager all three hold the weights, the moments and the
#   count of AdamW of step 30. Numbers beside them, as the step and the learning rate, are those of steps 10, 20 and 30.
# Controls: without async_stager, with a new DefaultStager for each call, or if each call waits for the last, all three are right.
# Why: the stager keeps one copy in the host's memory for each tensor and copies the next state into it. The checkpoint before, which is
#   written from this memory, is not waited for. Only tensors are kept so: other values are copied anew.
# Why it matters: the stager keeps its memory to be quick. If storage is slow once, or two checkpoints are close, the earlier one is wrong in
#   silence. A run that goes on from it has weights of step 30 and reads the data of steps 11 to 30 again. If weights change half-way
#   through the writing, one checkpoint holds weights of both steps.
# Usage: ./torch_reused_stager_writes_later_weights_to_earlier_checkpoints.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6
cat >"$folder/stage.py" <<'END'
import sys
import time

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

torch.set_num_threads(1)
print("torch", torch.__version__, flush=True)
assert torch.__version__.startswith("2.15.0")
STEPS = (10, 20, 30)


class SlowStorage(dcp.FileSystemWriter):
    """A folder that takes two seconds, as storage over a network may."""

    def write_data(self, plan, planner):
        time.sleep(2)
        return super().write_data(plan, planner)


def stager():
    return DefaultStager(StagingOptions(use_pinned_memory=False, use_shared_memory=False, use_async_staging=False,
                                        use_non_blocking_copy=False))  # all four are for GPUs or processes


def build():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 16))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def state_of(model, optimizer, step):
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}


def train(way, folder):
    """The steps whose weights, and whose count of AdamW, each of the three checkpoints holds, and the step and rate beside them."""
    model, optimizer = build()
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 40)
    one, begun, truth, opened = stager(), [], {}, []
    for step in range(1, STEPS[-1] + 1):
        inputs = torch.randn(32, 16, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), inputs.flip(1)).backward()
        optimizer.step()
        schedule.step()
        if step in STEPS:
            weight = model[0].weight
            truth[step] = weight.detach().clone(), optimizer.state[weight]["exp_avg"].clone()
            if way in ("one stager", "one stager, waits"):
                mine = {"async_stager": one}
            elif way == "new stagers":
                opened.append(stager())
                mine = {"async_stager": opened[-1]}
            else:
                mine = {}
            begun.append(dcp.async_save(state_of(model, optimizer, step), storage_writer=SlowStorage(f"{folder}/{step}"), no_dist=True, **mine))
            if way == "one stager, waits":
                begun[-1].result()
    for future in begun:
        future.result()
    for used in [one] + opened:
        used.close()
    held = []
    for step in STEPS:
        model, optimizer = build()
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
        optimizer.step()  # so that there are moments to load
        state = state_of(model, optimizer, 0)
        dcp.load(state, checkpoint_id=f"{folder}/{step}", no_dist=True)
        loaded = state["model"]["0.weight"], state["optimizer"]["state"][0]["exp_avg"]
        holds = [of for of, (weight, moment) in truth.items() if torch.equal(loaded[0], weight) and torch.equal(loaded[1], moment)]
        rate = round(state["optimizer"]["param_groups"][0]["lr"] * 4000)
        held.append((holds, int(state["optimizer"]["state"][0]["step"]), state["step"], 40 - rate))
    return held


for way in ("one stager", "no stager", "new stagers", "one stager, waits"):
    held = train(way, f"{sys.argv[1]}/{way}")
    for step, (weights, count, number, rate) in zip(STEPS, held):
        print(f"{way}, checkpoint of step {step}: weights and moments of step {weights}, AdamW's count {count}, step {number}, rate of step {rate}", flush=True)
    if way == "one stager":
        assert held == [([30], 30, step, step) for step in STEPS], "the behaviour changed"
    else:
        assert held == [([step], step, step, step) for step in STEPS]
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/stage.py" "$folder/checkpoints" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
