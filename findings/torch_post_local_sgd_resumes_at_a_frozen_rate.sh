#!/usr/bin/env bash
# torch 2.15.0: a resumed PostLocalSGDOptimizer trains at the rate of its checkpoint for ever. The schedule and its log go on without it.
#
# Expected: model, optimizer and scheduler are loaded, and the run goes on as if it had not stopped.
# Seen, 2 ranks, DDP with the post-local SGD hook and averager, a cosine schedule over 40 steps, saved and loaded after 13:
#   the run that goes on has rates from 0.0761 to 0.0002. The resumed one has 0.0761 in all 27 steps, and get_last_lr() ends at 0.
#   Its weights are off by 0.652 of the way that the other went in these steps.
# Controls: with a scheduler of the inner optimizer, and with optimizer.param_groups set to the inner one's after loading,
#   the resumed run ends at the same weights, to the last bit. So does plain SGD under DDP.
# Why: the wrapper takes the inner optimizer's list of groups when it is made. Loading gives the inner one a new list. From then on
#   a scheduler of the wrapper writes the old groups, which no step reads.
# Why it matters: a run that restarts in warm-up stays at a tiny rate. One that restarts later never decays. The log shows the
#   schedule as it was meant. Nothing warns.
# Usage: ./torch_post_local_sgd_resumes_at_a_frozen_rate.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6
cat >"$folder/resume.py" <<'END'
import copy
import os
import socket

import torch
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

STEPS, STOP, WARMUP = 40, 13, 4  # ranks have averaged their weights in the step before the stop


def build(kind, subgroup, done=0):
    torch.manual_seed(0)
    layers = torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 8)
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduled = optimizer
    if kind != "plain":
        model.register_comm_hook(PostLocalSGDState(None, subgroup, start_localSGD_iter=max(0, WARMUP - done)), post_localSGD_hook)
        optimizer = PostLocalSGDOptimizer(optimizer, PeriodicModelAverager(period=4, warmup_steps=WARMUP))
        scheduled = scheduled if kind == "inner scheduler" else optimizer
    return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(scheduled, STEPS)


def train(model, optimizer, schedule, first, last):
    """The rates at which the steps were taken, read from the optimizer that takes them."""
    used = []
    for step in range(first, last):
        inputs = torch.randn(16, 16, generator=torch.Generator().manual_seed(100 * step + torch.distributed.get_rank()))
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), inputs[:, :8].sin()).backward()
        used.append(getattr(optimizer, "optim", optimizer).param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return used


def weights(model):
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


def run(rank, port):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    subgroup, _ = torch.distributed.new_subgroups(group_size=1)
    for kind in ("wrapper", "inner scheduler", "groups set", "plain"):
        parts = build(kind, subgroup)
        train(*parts, 0, STOP)
        start, saved = weights(parts[0]), copy.deepcopy([part.state_dict() for part in parts])
        going_on = train(*parts, STOP, STEPS)
        resumed = build(kind, subgroup, STOP)
        for part, state in zip(resumed, copy.deepcopy(saved)):
            part.load_state_dict(state)
        if kind == "groups set":
            resumed[1].param_groups = resumed[1].optim.param_groups
        used = train(*resumed, STOP, STEPS)
        off = ((weights(resumed[0]) - weights(parts[0])).norm() / (weights(parts[0]) - start).norm()).item()
        if rank == 0:
            print(f"{kind}: rates go on from {going_on[0]:.4f} to {going_on[-1]:.4f}, resumed from {used[0]:.4f} to {used[-1]:.4f}; "
                  f"get_last_lr() at the end {resumed[2].get_last_lr()[0]:.4f}; weights off by {off:.3f} of their way", flush=True)
        assert going_on[0] > 0.07 and going_on[-1] < 1e-3 and resumed[2].get_last_lr()[0] < 1e-3
        if kind == "wrapper":
            assert all(rate == going_on[0] for rate in used) and off > 0.3, "the behaviour changed"
        else:
            assert used == going_on and off == 0, kind
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    print("torch", torch.__version__, flush=True)
    assert torch.__version__.startswith("2.15.0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    torch.multiprocessing.spawn(run, args=(port,), nprocs=2)
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/resume.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
