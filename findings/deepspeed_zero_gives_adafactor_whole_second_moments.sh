#!/usr/bin/env bash
# deepspeed 0.19.8, transformers 5.24.0, torch 2.15.0: under DeepSpeed's ZeRO Adafactor keeps a second moment of each weight, and trains otherwise.
#
# Expected: Adafactor keeps a row and a column of numbers for each matrix, or DeepSpeed refuses it. ZeRO shares states out and changes no update.
# Seen, three matrices of 256 x 256, two ranks, transformers' Adafactor (Trainer's optim="adafactor"; torch.optim's does the same): alone it
#   keeps 1,536 numbers. ZeRO 1, 2 and 3 keep 196,608, one for each weight, 98,304 on each rank: 128 times as many. The updates of 10 steps
#   differ by a third from those without ZeRO. AdamW's do not differ.
#   ZeRO gives an optimizer one long row for each group of parameters, and Adafactor factors matrices only.
# Why it matters: Adafactor is chosen for its small states. Here they are 4 bytes for each weight, half of AdamW's, and a loss curve of DDP is no
#   reference. The Trainer allows it without being asked: it sets zero_allow_untested_optimizer itself.
# Usage: ./deepspeed_zero_gives_adafactor_whole_second_moments.sh (about two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 deepspeed==0.19.8
cat >"$folder/moments.py" <<'END'
import os

import deepspeed
import torch
import torch.distributed as dist
import transformers
from transformers.optimization import Adafactor

torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and deepspeed.__version__ == "0.19.8" and transformers.__version__ == "5.24.0"
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # so that nothing is compiled
deepspeed.init_distributed("gloo")
rank, WIDTH = dist.get_rank(), 256


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3)])


def batch(step):
    return torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(step))


def numbers(optimizer):
    """Numbers that an optimizer keeps on this rank, without counts of steps and other single values."""
    return sum(value.numel() for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value) and value.numel() > 1)


optimizers = {"Adafactor": lambda weights: Adafactor(weights, lr=1e-3, scale_parameter=False, relative_step=False),
              "torch.optim.Adafactor": lambda weights: torch.optim.Adafactor(weights, lr=1e-3),
              "AdamW": lambda weights: torch.optim.AdamW(weights, lr=1e-3)}
for name, make in optimizers.items():
    alone = model()
    start = torch.cat([weight.detach().flatten() for weight in alone.parameters()])
    optimizer = make(alone.parameters())
    for step in range(10):
        optimizer.zero_grad()
        alone(batch(step)).square().mean().backward()
        optimizer.step()
    true = torch.cat([weight.detach().flatten() for weight in alone.parameters()])
    for stage in 1, 2, 3:
        sharded = model()
        engine = deepspeed.initialize(model=sharded, optimizer=make(sharded.parameters()), config={
            "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True})[0]
        for step in range(10):
            engine.backward(engine(batch(step).chunk(2)[rank]).square().mean())
            engine.step()
        seen = torch.cat([deepspeed.utils.safe_get_full_fp32_param(weight).flatten() for weight in sharded.parameters()])
        kept = torch.tensor(numbers(engine.optimizer.optimizer))
        dist.all_reduce(kept)
        error = ((seen - true).norm() / (true - start).norm()).item()
        if rank == 0:
            print(f"seen: {name}: {numbers(optimizer):,} numbers alone; ZeRO {stage}, 2 ranks: {kept:,} for {start.numel():,} weights, "
                  f"updates differ by {error:.1%}", flush=True)
        if name == "AdamW":
            assert numbers(optimizer) == kept == 2 * start.numel() and error < 0.001, "the behaviour changed"
        else:
            assert numbers(optimizer) == 3 * 2 * WIDTH and kept == start.numel() and 0.25 < error < 0.45, "the behaviour changed"
        engine.destroy()
if rank == 0:
    print(f"seen: torch {torch.__version__}, transformers {transformers.__version__}, deepspeed {deepspeed.__version__}", flush=True)
dist.barrier()
os._exit(0)
END
DS_ACCELERATOR=cpu CUDA_VISIBLE_DEVICES="" OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo timeout 200 "$folder/env/bin/python" -W ignore \
  -m torch.distributed.run --standalone --nproc-per-node 2 "$folder/moments.py" >"$folder/said" 2>"$folder/errors" ||
  { tail -40 "$folder/errors"; exit 1; }
grep -o 'seen: .*' "$folder/said" | cut -c7-
