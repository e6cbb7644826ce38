#!/usr/bin/env bash
# deepspeed 0.19.8, torch 2.15.0: a universal checkpoint loaded under ZeRO 3 gives all parameter groups the settings of the first.
#
# Expected: after a resume each group has its learning rate and weight decay, whatever the kind of checkpoint and the stage of ZeRO.
# Seen, two ranks: matrices have lr 1e-3 and decay 0.1, norms and biases lr 1e-4 and decay 0. Under ZeRO 3 the usual checkpoint brings
#   both groups back. From the universal one both have lr 1e-3 and decay 0.1, and the norms move some ten times as far in the next 10 steps.
#   ZeRO 2 brings both back from either. The load under ZeRO 3 copies the first saved group to each group. It says nothing.
#   AdamW's count of steps is one tensor for both groups, too: it rises by 2 in each step.
# Why it matters: universal checkpoints are the way to go on with other numbers of GPUs. From there norms and biases decay, and adapters,
#   embeddings or layers with another rate train at the first group's. A scheduler that keeps its own rates hides the rate, not the decay.
# Usage: ./deepspeed_universal_load_makes_all_groups_the_first.sh (about two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 deepspeed==0.19.8
cat >"$folder/groups.py" <<'END'
import os
import subprocess
import sys

import deepspeed
import torch
import torch.distributed as dist

torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and deepspeed.__version__ == "0.19.8"
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # so that nothing is compiled
deepspeed.init_distributed("gloo")
rank = dist.get_rank()


def start(stage, universal):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))
    groups = [{"params": [p for p in model.parameters() if p.ndim > 1], "lr": 1e-3, "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.ndim == 1], "lr": 1e-4, "weight_decay": 0.0}]
    return deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(groups), config={
        "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True,
        "checkpoint": {"load_universal": universal}})[0]


def train(engine, steps):
    for step in steps:
        loss = engine(torch.randn(4, 16, generator=torch.Generator().manual_seed(2 * step + rank))).square().mean()
        engine.backward(loss)
        engine.step()


def norm_of(engine):
    return deepspeed.utils.safe_get_full_fp32_param(engine.module[1].weight).clone()


def settings(engine):
    return [(group["lr"], group["weight_decay"]) for group in engine.optimizer.param_groups]


asked = [(1e-3, 0.1), (1e-4, 0.0)]
for stage in 2, 3:
    folder = f"{sys.argv[1]}/{stage}"
    engine = start(stage, False)
    train(engine, range(5))
    engine.save_checkpoint(folder, tag="usual")
    saved = norm_of(engine)
    if rank == 0:
        subprocess.run([sys.executable, "-W", "ignore", "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder", folder + "/usual",
                        "--output_folder", folder + "/universal", "--inject_missing_state", "--num_extract_workers", "1",
                        "--num_merge_workers", "1"], check=True, stdout=subprocess.DEVNULL)
    dist.barrier()
    ways = {}
    for tag in "usual", "universal":
        engine = start(stage, tag == "universal")
        engine.load_checkpoint(folder, tag=tag)
        assert torch.equal(norm_of(engine), saved)
        groups = settings(engine)
        train(engine, range(5, 15))
        counts = {int(state["step"]) for state in engine.optimizer.optimizer.state.values()}
        ways[tag] = (norm_of(engine) - saved).norm().item()
        if rank == 0:
            print(f"seen: ZeRO {stage}, {tag} checkpoint: lr and decay {groups}, 10 steps move the norm by {ways[tag]:.5f}, "
                  f"steps counted {counts}", flush=True)
        wrong = stage == 3 and tag == "universal"
        assert groups == ([asked[0]] * 2 if wrong else asked) and counts == ({25} if wrong else {15}), "the behaviour changed"
    ratio = ways["universal"] / ways["usual"]
    if rank == 0:
        print(f"seen: ZeRO {stage}: universal / usual {ratio:.2f}", flush=True)
    assert abs(ratio - 1) < 1e-4 if stage == 2 else 6 < ratio < 15, "the behaviour changed"
if rank == 0:
    print(f"seen: torch {torch.__version__}, deepspeed {deepspeed.__version__}", flush=True)
dist.barrier()
os._exit(0)
END
DS_ACCELERATOR=cpu CUDA_VISIBLE_DEVICES="" OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo timeout 200 "$folder/env/bin/python" -W ignore \
  -m torch.distributed.run --standalone --nproc-per-node 2 "$folder/groups.py" "$folder/checkpoints" >"$folder/said" 2>"$folder/errors" ||
  { tail -40 "$folder/errors"; exit 1; }
grep -o 'seen: .*' "$folder/said" | cut -c7-
