#!/usr/bin/env bash
# prodigyopt 1.1.2, torch 2.15.0: under FSDP2 each rank estimates a learning rate of its own, from its own parts of the weights.
#
# Expected: Prodigy estimates one rate, d, for the whole model. Its documentation says that it tries to detect PyTorch's own sharding.
# Seen, 2 ranks, a small model, 50 steps on equal data: d is 0.0497 on rank 0, 0.0258 on rank 1, and 0.0407 in one process.
#   The weights end off those of one process by 0.75 of the way that these went. Controls: AdamW ends at the same weights.
#   With item() made to sum over the ranks first Prodigy has 0.0407 on both ranks, and weights are off by 0.02.
# Why: d comes from a dot product and a sum over all weights, read by item(). Of a partial sum of DTensor it reads the rank's part.
#   The detection looks for a mark that FSDP 1 sets on weights. fsdp_in_use=True, which sums over ranks on CUDA alone, was not tried.
# Why it matters: parts of one matrix are updated at rates that differ by a factor of two. The result depends on
#   the number of ranks. The loss falls, and nothing warns.
# Usage: ./prodigy_has_a_rate_for_each_rank_on_fsdp2.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 prodigyopt==1.1.2 numpy==2.4.6
cat >"$folder/rates.py" <<'END'
import importlib.metadata
import os

import torch
from prodigyopt import Prodigy
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

WORDS, STEPS = 512, 50


def build():
    torch.manual_seed(0)
    layers = torch.nn.Embedding(WORDS, 32), torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, WORDS, bias=False)
    return torch.nn.Sequential(*layers)


def whole(model):
    weights = [weight.full_tensor() if isinstance(weight, DTensor) else weight for weight in model.parameters()]
    return torch.cat([weight.detach().flatten() for weight in weights])


def train(make, mesh=None):
    """The weights and the estimated rate. Words are as frequent as in a text, and all ranks see the same."""
    model, draws = build(), torch.Generator().manual_seed(1)
    if mesh is not None:
        fully_shard(model, mesh=mesh)
    optimizer, frequencies = make(model.parameters()), 1 / torch.arange(1.0, WORDS + 1)
    for _ in range(STEPS):
        words = torch.multinomial(frequencies, 256, True, generator=draws)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(words), (words * 3 + 1) % WORDS).backward()
        optimizer.step()
    return whole(model), float(optimizer.param_groups[0].get("d", 0))


def run(rank):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29641")
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    mesh, start = torch.distributed.device_mesh.init_device_mesh("cpu", (2,)), whole(build())
    for name in ("AdamW", "Prodigy", "Prodigy, item() sums"):
        make = (lambda weights: torch.optim.AdamW(weights, lr=1e-3)) if name == "AdamW" else Prodigy
        alone, rate = train(make)
        if name.endswith("sums"):
            DTensor.item = lambda tensor: tensor.full_tensor().item()
        sharded, mine = train(make, mesh)
        rates = [None, None]
        torch.distributed.all_gather_object(rates, mine)
        off = ((sharded - alone).norm() / (alone - start).norm()).item()
        if rank == 0:
            print(f"{name}: d in one process {rate:.4f}, on ranks {rates[0]:.4f} and {rates[1]:.4f};",
                  f"weights off by {off:.4f} of their way", flush=True)
        if name == "AdamW":
            assert off < 1e-3
        elif name == "Prodigy":
            assert rates[0] > 1.5 * rates[1] and rates[0] > 1.1 * rate > 1.2 * rates[1] and off > 0.3, "the behaviour changed"
        else:
            assert rates[0] == rates[1] and abs(rates[0] / rate - 1) < 0.02 and off < 0.1
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    print("prodigyopt", importlib.metadata.version("prodigyopt"), "torch", torch.__version__, flush=True)
    assert torch.__version__.startswith("2.15.0")
    torch.multiprocessing.spawn(run, nprocs=2)
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/rates.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
