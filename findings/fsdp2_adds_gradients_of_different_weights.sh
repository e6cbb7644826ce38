#!/usr/bin/env bash
# torch 2.15.0: where ranks use different weights of one unit, FSDP2 adds the gradient of one weight to that of another, and says nothing.
#
# Expected: a weight that a rank did not use counts there as a gradient of zero, or the run stops. DistributedDataParallel stops, or, with
#   find_unused_parameters=True, gives the gradients of one process.
# Seen: a layer has three experts, and each expert without tokens is left out. Rank 0 uses experts 0 and 1, rank 1 uses experts 1 and 2.
#   The errors of the gradients are 101, 87 and 121 % of their sizes. Expert 1, which both ranks used, is wrong, too.
#   Experts 0 and 2 each have a gradient on one of the two ranks alone.
#   Each rank puts the gradients that it has one after another and reduces the row. The rows are equally long, so nothing fails: the first of
#   rank 0 is expert 0's, the first of rank 1 is expert 1's. With set_reduce_scatter_unused_params(True) all are right; the default is False.
# Why it matters: experts in a loop, weights for one modality and layers that are skipped at random train on wrong gradients. Counts of used
#   weights that differ would stop the run; equal counts, as here, do not.
# Usage: ./fsdp2_adds_gradients_of_different_weights.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0
cat >"$folder/experts.py" <<'END'
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

assert torch.__version__.startswith("2.15.0")
torch.set_num_threads(1)
WIDTH = 8
CHOICES = [[0, 0, 1, 1], [1, 1, 1, 2]]  # the expert of each token, for each rank
dist.init_process_group("gloo")
rank = dist.get_rank()


class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))

    def forward(self, tokens, choices):
        result = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            chosen = choices == number
            if chosen.any():
                result[chosen] = expert(tokens[chosen])
        return result


def loss_of(model, part):
    tokens = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(part))
    return model(tokens, torch.tensor(CHOICES[part])).square().mean()


def whole(weight):
    """All ranks' rows of a gradient; a rank without a gradient has zeros."""
    rows = torch.zeros_like(weight.to_local()) if weight.grad is None else weight.grad.to_local()
    pieces = [torch.empty_like(rows) for _ in range(2)]
    dist.all_gather(pieces, rows)
    return torch.cat(pieces)


alone = Experts()
sum(loss_of(alone, part) / 2 for part in range(2)).backward()
replicas = torch.nn.parallel.DistributedDataParallel(Experts(), find_unused_parameters=True)
loss_of(replicas, rank).backward()
assert all(torch.allclose(a.grad, b.grad) for a, b in zip(alone.parameters(), replicas.parameters()))
if rank == 0:
    print("torch", torch.__version__)
for switched in (False, True):
    sharded = fully_shard(Experts())
    sharded.set_reduce_scatter_unused_params(switched)
    loss_of(sharded, rank).backward()
    errors = [((whole(b) - a.grad).norm() / a.grad.norm()).item() for a, b in zip(alone.parameters(), sharded.parameters())]
    missing = torch.tensor([weight.grad is None for weight in sharded.parameters()], dtype=torch.int)
    dist.all_reduce(missing)
    if rank == 0:
        print(f"set_reduce_scatter_unused_params({switched}): errors of the experts' gradients {', '.join(f'{error:.1%}' for error in errors)}; "
              f"ranks without one {missing.tolist()}")
    assert all(error < 1e-5 for error in errors) if switched else min(errors) > 0.8 and missing.tolist() == [1, 0, 1], "the behaviour changed"
dist.barrier()
dist.destroy_process_group()
END
OMP_NUM_THREADS=1 timeout 200 "$folder/env/bin/python" -W ignore -m torch.distributed.run --standalone --nproc-per-node 2 "$folder/experts.py" \
  2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
