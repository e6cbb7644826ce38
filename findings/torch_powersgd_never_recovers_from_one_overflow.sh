#!/usr/bin/env bash
# torch 2.15.0: with DistributedDataParallel's PowerSGD hook and GradScaler one overflow ends the training: no later step is taken.
#
# Expected: GradScaler skips the step with an inf, halves the scale, and takes the next step, as with the plain all-reduce.
# Seen, two ranks, 30 steps; in step 10 the gradients of one rank overflow. The plain all-reduce and the bf16 hook skip step 10 alone.
#   PowerSGD of rank 4 from step 2 on skips all 20 steps from 10 to 29. The scale falls from 1,024 to 0.001. Losses stay finite.
#   Nothing raises, and no warning is given. Without an overflow PowerSGD takes all 30 steps.
#   With use_error_feedback=False and warm_start=False it skips step 10 alone. Either of them alone does not help.
# Why: the hook keeps the error of its compression and its factor Q for the next step. Both are NaN after an inf, and nothing resets them.
# Why it matters: GradScaler raises its scale until gradients overflow, again and again. start_powerSGD_iter covers the first ones only.
#   The first one after it ends the training, while the GPUs stay busy and the logged losses look sound.
# Usage: ./torch_powersgd_never_recovers_from_one_overflow.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6
cat >"$folder/overflow.py" <<'END'
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

assert torch.__version__.startswith("2.15.0")
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
STEPS, OVERFLOW, WIDTH = 30, 10, 64


def power(**options):
    return lambda: (powerSGD_hook.PowerSGDState(None, 4, start_powerSGD_iter=2, **options), powerSGD_hook.powerSGD_hook)


def train(hook, overflows):
    """The steps that no weight took, the last scale, and whether all other losses were finite."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, WIDTH)
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    if hook:
        model.register_comm_hook(*hook())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    draw = torch.Generator().manual_seed(rank)
    skipped, finite = [], True
    for step in range(STEPS):
        batch = torch.randn(32, WIDTH, generator=draw)
        loss = (model(batch) - batch).square().mean()
        finite = finite and bool(loss.isfinite())
        if overflows and step == OVERFLOW and rank == 1:
            loss = loss * 1e38  # finite, but not times the scale
        before = [weight.detach().clone() for weight in model.parameters()]
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if all(torch.equal(old, new) for old, new in zip(before, model.parameters())):
            skipped.append(step)
    return skipped, scaler.get_scale(), finite


LATER = list(range(OVERFLOW, STEPS))
for name, hook, overflows, expected in (
        ("plain all-reduce", None, True, [OVERFLOW]),
        ("bf16 hook", lambda: (None, default_hooks.bf16_compress_hook), True, [OVERFLOW]),
        ("PowerSGD, no overflow", power(), False, []),
        ("PowerSGD", power(), True, LATER),
        ("PowerSGD without error feedback", power(use_error_feedback=False), True, LATER),
        ("PowerSGD without warm start", power(warm_start=False), True, LATER),
        ("PowerSGD without both", power(use_error_feedback=False, warm_start=False), True, [OVERFLOW])):
    skipped, scale, finite = train(hook, overflows)
    if rank == 0:
        which = f" ({skipped[0]} to {skipped[-1]})" if skipped else ""
        print(f"{name}: {len(skipped)} of {STEPS} steps skipped{which}, last scale {scale:.4g}, losses finite: {finite}", flush=True)
    assert finite and skipped == expected, "the behaviour changed"
if rank == 0:
    print("torch", torch.__version__)
dist.barrier()
dist.destroy_process_group()
END
OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo timeout 200 "$folder/env/bin/python" -W ignore \
  -m torch.distributed.run --standalone --nproc-per-node 2 "$folder/overflow.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
