#!/usr/bin/env bash
# torchao 0.18.0, torch 2.15.0: with bf16_stochastic_round replicas of DDP drift apart unless the generators of all ranks agree.
#
# Expected: replicas with equal weights and equal, averaged gradients stay equal. DDP rests on it: it sends weights at its start alone.
# Seen, AdamW8bit, bf16, 2 ranks, 200 steps: with a seed for each rank 94 % of the weights differ, by 0.26 of the way they went.
#   So it is with one seed for all if rank 0 draws one random number more, as for a sample of text.
#   Controls: with equal generators, and without stochastic rounding, not one weight differs.
# Why: each rank rounds its copy by numbers from the global generator of its process. Nothing makes them equal.
# Why it matters: seeds that differ by rank are usual, since dropout and augmentation should differ. Ranks then train models of their own:
#   gradients are averages over different weights, and the checkpoint is rank 0's model. Gradients, losses and shapes look right, and
#   nothing warns. Weights that are sharded without replicas have no copies to drift.
# Usage: ./torchao_stochastic_rounding_parts_replicas.sh (two minutes, and the download of PyTorch; it needs a C++ compiler)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 torchao==0.18.0 numpy==2.4.6 setuptools==80.9.0
cat >"$folder/replicas.py" <<'END'
import importlib.metadata
import os

import torch
import torch.distributed as dist

STEPS, WIDTH = 200, 256


def train(rank, stochastic, seeds, extra):
    """The share of weights that differ between two ranks, and how far, as a part of the way that they went."""
    from torchao.optim import AdamW8bit

    torch.manual_seed(0)
    model = torch.nn.Linear(WIDTH, WIDTH, bias=False).bfloat16()
    replica = torch.nn.parallel.DistributedDataParallel(model)
    start, samples = model.weight.detach().float().clone(), torch.Generator().manual_seed(rank)
    optimizer = AdamW8bit(replica.parameters(), lr=1e-4, weight_decay=0.0, bf16_stochastic_round=stochastic)
    torch.manual_seed(5 + rank * seeds)
    if extra and rank == 0:
        torch.rand(1)
    for _ in range(STEPS):
        batch = torch.randn(32, WIDTH, generator=samples).bfloat16()
        optimizer.zero_grad()
        (replica(batch) - batch).float().square().mean().backward()
        optimizer.step()
    weights, gradients = [[torch.empty_like(tensor) for _ in range(2)] for tensor in (model.weight, model.weight.grad)]
    dist.all_gather(weights, model.weight.detach())
    dist.all_gather(gradients, model.weight.grad)
    assert torch.equal(*gradients)
    one, other = (weight.float() for weight in weights)
    return (one != other).float().mean().item(), ((one - other).norm() / (one - start).norm()).item()


def run(rank):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29642")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    for stochastic, seeds, extra in ((True, True, False), (True, False, True), (True, False, False), (False, True, False)):
        share, far = train(rank, stochastic, seeds, extra)
        if rank == 0:
            generators = "a seed for each rank" if seeds else "one seed, rank 0 draws one more" if extra else "one seed"
            print(f"stochastic rounding {stochastic}, {generators}:",
                  f"{share:.3f} of the weights differ, by {far:.3f} of their way", flush=True)
        apart = stochastic and (seeds or extra)
        assert (share > 0.9 and far > 0.15) if apart else share == far == 0, "the behaviour changed"
    dist.destroy_process_group()


if __name__ == "__main__":
    print("torchao", importlib.metadata.version("torchao"), "torch", torch.__version__, flush=True)
    assert torch.__version__.startswith("2.15.0")
    torch.multiprocessing.spawn(run, nprocs=2)
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/replicas.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
