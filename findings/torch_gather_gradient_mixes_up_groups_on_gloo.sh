#!/usr/bin/env bash
# torch 2.15.0: on gloo the gradient of torch.distributed.nn.functional.all_gather() works in the group of the first ranks alone.
#
# Expected: what gathers over a group of ranks in forward has a gradient in that group, as it has with NCCL, which scatters sums.
# Seen, four processes in the groups 0, 1 and 2, 3: all four gather the right values. Backward is right on ranks 0 and 1. On ranks 2 and 3
#   it raises "Global rank 0 is not part of group": without NCCL the gradient is made of scatters. Each gets a place in the group
#   as its source, and expects a rank of all processes.
# Why it matters: transformers sums the loss of a sequence over context ranks by this function. Context ranks with several data ranks
#   cannot be tried on CPUs, and a test on the ranks of one sequence passes.
# Usage: ./torch_gather_gradient_mixes_up_groups_on_gloo.sh (half a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0
cat >"$folder/ranks.py" <<'END'
import os

import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_gather

assert torch.__version__.startswith("2.15.0")
dist.init_process_group("gloo")
rank = dist.get_rank()
group = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
own = torch.tensor([float(rank)], requires_grad=True)
parts = all_gather(own, group=group)
try:
    (10 * parts[0] + parts[1]).backward()
    said = f"gradient {own.grad.item():g}"
except ValueError as error:
    said = str(error).partition(" <")[0]
first = 2 * (rank // 2)
print(f"rank {rank} gathers {[part.item() for part in parts]}: {said}", flush=True)
assert [part.item() for part in parts] == [first, first + 1.0], parts
assert said == {0: "gradient 20", 1: "gradient 2"}.get(rank, "Global rank 0 is not part of group"), said
dist.barrier()
dist.destroy_process_group()
END
GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore -m torch.distributed.run --nproc_per_node 4 "$folder/ranks.py" 2>"$folder/errors" | sort ||
  { tail "$folder/errors"; exit 1; }
