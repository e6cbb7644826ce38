#!/usr/bin/env bash
# deepspeed 0.19.8, torch 2.15.0: under ZeRO 1 and 2 gradient_clipping of the configuration is not used after a resume, the checkpoint's is.
#
# Expected: gradients are clipped as the configuration of the running job says. A checkpoint holds weights, moments and counts.
# Seen, two ranks; a run clips at 1.0, and jobs that resume it ask for 0.1, and for 0, no clipping. With SGD and lr 1 the norm of an update is
#   that of the clipped gradient. ZeRO 1 and 2, and bf16 with fp32 accumulation, clip at 1.0 in both jobs. ZeRO 3 does as it is told.
#   engine.gradient_clipping() says 0.1. No warning. With load_optimizer_states=False all is as told.
# Why it matters: to resume before a spike of the loss and to clip harder is the usual cure. It changes nothing, and looks as if it did not help.
# Usage: ./deepspeed_resumes_with_the_clipping_of_the_checkpoint.sh (about two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 deepspeed==0.19.8
cat >"$folder/clipping.py" <<'END'
import os
import sys

import deepspeed
import torch
import torch.distributed as dist

torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and deepspeed.__version__ == "0.19.8"
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # so that nothing is compiled
deepspeed.init_distributed("gloo")
rank = dist.get_rank()
MIXED = {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}


def start(stage, clipping, more):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 4))
    return deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), config={
        "train_micro_batch_size_per_gpu": 4, "gradient_clipping": clipping, "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True, **more})[0]


def weights(engine):
    return torch.cat([deepspeed.utils.safe_get_full_fp32_param(p).flatten() for p in engine.module.parameters()])


def update(engine):
    """The norm of what one step changes: that of the clipped gradient."""
    before = weights(engine)
    batch = torch.randn(4, 16, generator=torch.Generator().manual_seed(rank)).to(next(engine.module.parameters()).dtype)
    engine.backward(20 * engine(batch).float().square().mean())
    engine.step()
    return (weights(engine) - before).norm().item()


for name, stage, more in ("ZeRO 1", 1, {}), ("ZeRO 1, bf16, sums in fp32", 1, MIXED), ("ZeRO 2", 2, {}), ("ZeRO 3", 3, {}):
    first = start(stage, 1.0, more)
    assert abs(update(first) - 1) < 1e-3
    place = f"{sys.argv[1]}/{stage}{len(more)}"
    first.save_checkpoint(place, tag="saved")
    seen = []
    for clipping, with_states in (0.1, True), (0.0, True), (0.1, False):
        engine = start(stage, clipping, more)
        engine.load_checkpoint(place, tag="saved", load_optimizer_states=with_states)
        assert engine.gradient_clipping() == clipping
        seen.append(update(engine))
    if rank == 0:
        print(f"seen: {name}, saved with clipping at 1.0: asked for 0.1 the update has norm {seen[0]:.3f}, for none {seen[1]:.3f}; "
              f"for 0.1 without optimizer states {seen[2]:.3f}", flush=True)
    as_told = stage == 3
    assert abs(seen[0] - (0.1 if as_told else 1.0)) < 2e-3 and (seen[1] > 2 if as_told else abs(seen[1] - 1) < 2e-3), "the behaviour changed"
    assert abs(seen[2] - 0.1) < 2e-3, "the behaviour changed"
if rank == 0:
    print(f"seen: torch {torch.__version__}, deepspeed {deepspeed.__version__}", flush=True)
dist.barrier()
os._exit(0)
END
DS_ACCELERATOR=cpu CUDA_VISIBLE_DEVICES="" OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo timeout 200 "$folder/env/bin/python" -W ignore \
  -m torch.distributed.run --standalone --nproc-per-node 2 "$folder/clipping.py" "$folder/checkpoints" >"$folder/said" 2>"$folder/errors" ||
  { tail -40 "$folder/errors"; exit 1; }
grep -o 'seen: .*' "$folder/said" | cut -c7-
