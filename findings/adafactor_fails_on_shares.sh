#!/usr/bin/env bash
# torch 2.15.0, transformers 5.24.0: both Adafactors end at their first step on weights that FSDP2 shares out.
#
# Expected: the Trainer takes optim="adafactor" with FSDP2 as it takes AdamW, so its step works on shares, or is refused by name.
# Seen: nothing is refused. The first step of a matrix raises an error. In transformers' Adafactor sums over rows and columns are plain
#   tensors, and the gradient is a DTensor. torch.optim.Adafactor squares a norm over ranks in place, which DTensor does not have, one
#   by one and with foreach. A vector takes the step: its moment is not factored.
# Why it matters: the error comes after the model was loaded on all GPUs, at the end of the first step.
# Usage: ./adafactor_fails_on_shares.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0
cat >"$folder/step.py" <<'END'
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers.optimization import Adafactor

dist.init_process_group("gloo")
torch.manual_seed(0)
OURS = dict(lr=1e-3, scale_parameter=False, relative_step=False)  # as the Trainer makes it


def outcome(model, optimizer):
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    step = optimizer(model.parameters())
    model(torch.randn(4, 64)).sum().backward()
    try:
        step.step()
    except RuntimeError as error:
        return next((why for why in ("mixed torch.Tensor and DTensor", "in-place operations") if why in str(error)), str(error))
    return "a step"


def matrix():
    return torch.nn.Linear(64, 64, bias=False)


seen = {"matrix, transformers": outcome(matrix(), lambda p: Adafactor(p, **OURS)),
        "vector, transformers": outcome(torch.nn.LayerNorm(64), lambda p: Adafactor(p, **OURS)),
        "matrix, torch": outcome(matrix(), lambda p: torch.optim.Adafactor(p, foreach=False)),
        "matrix, torch foreach": outcome(matrix(), lambda p: torch.optim.Adafactor(p, foreach=True)),
        "vector, torch": outcome(torch.nn.LayerNorm(64), lambda p: torch.optim.Adafactor(p))}
dist.destroy_process_group()
print("\n".join(f"{what:22}{how}" for what, how in seen.items()))
if list(seen.values()) != ["mixed torch.Tensor and DTensor", "a step", "in-place operations", "in-place operations", "a step"]:
    raise SystemExit("another outcome than was seen")
END
"$folder/env/bin/python" -c "import torch, transformers; print('torch', torch.__version__, 'transformers', transformers.__version__)"
OMP_NUM_THREADS=1 "$folder/env/bin/python" -m torch.distributed.run --nproc-per-node 2 "$folder/step.py"
