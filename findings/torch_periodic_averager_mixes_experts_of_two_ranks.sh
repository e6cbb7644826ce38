#!/usr/bin/env bash
# torch 2.15.0: PeriodicModelAverager averages what one rank used in its last step with what another rank used, though these are different weights.
#
# Expected: averaging a model over ranks gives each weight the mean of this weight over the ranks. A weight that had no gradient is averaged, too.
# Seen, 2 ranks, a model with one adapter for each of two languages, batches of one language, averaged each 4 steps as in the documentation's
#   example. If rank 0's batch is of language 0 and rank 1's of language 1, rank 0's adapter 0 becomes the mean of it and of rank 1's adapter 1.
#   The loss after the last 25 averagings of 300 steps is 0.54, and 0.04 if all weights are averaged.
# Controls: the library's own average_parameters of all weights, and batches of one language on both ranks at each averaging, are right.
# Why: weights whose .grad is None are left out, and those that are left are joined to one vector. Ranks that leave out different weights
#   of the same size sum vectors of equal length with different contents. DDP in subgroups does not help, as each subgroup has its own gradients.
# Why it matters: adapters or heads of languages, experts in lists and dropped layers are all of one size. Post-local SGD and training
#   of nodes apart mix them, in silence. An expert that no rank used in the very step of averaging is not averaged, whatever it learned before.
# Usage: ./torch_periodic_averager_mixes_experts_of_two_ranks.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6
cat >"$folder/average.py" <<'END'
import os
import socket

import torch
import torch.distributed as dist
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.algorithms.model_averaging.utils import average_parameters
from torch.nn.parallel import DistributedDataParallel

WORDS, WIDTH, STEPS, PERIOD, FACTORS = 64, 32, 301, 4, (3, 5)


class Model(torch.nn.Module):
    """An embedding and a head that both languages share, and an adapter for each."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head = torch.nn.Embedding(WORDS, WIDTH), torch.nn.Linear(WIDTH, WORDS)
        self.adapters = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()) for _ in FACTORS)

    def forward(self, words, language):
        return self.head(self.adapters[language](self.table(words)))


def loss_of(model, words, language):
    return torch.nn.functional.cross_entropy(model(words, language), (words * FACTORS[language] + 1) % WORDS)


def train(way, rank, subgroup):
    """The loss over both languages after each averaging, and what the first averaging of different languages did to the adapter of this rank's batch."""
    model, draws, seen, losses = Model(), torch.Generator().manual_seed(1), None, []
    # Each subgroup is a node that trains alone between two averagings; here a node has one rank.
    local = DistributedDataParallel(model, process_group=subgroup, find_unused_parameters=True)
    averager, optimizer = PeriodicModelAverager(period=PERIOD), torch.optim.AdamW(local.parameters(), lr=3e-3)
    for step in range(STEPS):
        languages = torch.randint(2, (2,), generator=draws).tolist()
        if way == "same language" and step % PERIOD == 0:
            languages[1] = languages[0]
        batches = torch.randint(WORDS, (2, 64), generator=draws)
        optimizer.zero_grad()
        loss_of(local, batches[rank], languages[rank]).backward()
        optimizer.step()
        before = [None, None]
        if seen is None and step % PERIOD == 0 and languages[0] != languages[1]:
            dist.all_gather_object(before, [adapter[0].weight.detach().clone() for adapter in model.adapters])
        if way == "all weights":
            if step % PERIOD == 0:
                average_parameters(iter(model.parameters()), dist.group.WORLD)
        else:
            averager.average_parameters(model.parameters())
        if before[0] is not None:
            mine, other = languages[rank], languages[1 - rank]
            now = model.adapters[mine][0].weight
            seen = [torch.allclose(now, (before[rank][mine] + before[1 - rank][which]) / 2, atol=1e-6) for which in (mine, other)]
        if step % PERIOD == 0:
            with torch.no_grad():
                losses.append(torch.stack([loss_of(model, torch.arange(WORDS), language) for language in (0, 1)]).mean().item())
    both = [None, None]
    dist.all_gather_object(both, losses)
    return sum(sum(part[-25:]) for part in both) / 50, seen


def run(rank, port):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    subgroup = dist.new_subgroups(group_size=1)[0]
    for way in ("averager", "all weights", "same language"):
        loss, seen = train(way, rank, subgroup)
        if rank == 0:
            print(f"{way}: loss after the last 25 averagings {loss:.4f}", flush=True)
            if seen is not None:
                print(f"  rank 0's adapter became the mean with rank 1's same adapter: {seen[0]}, with rank 1's other one: {seen[1]}", flush=True)
        if way == "averager":
            assert seen == [False, True] and loss > 0.3, "the behaviour changed"
        else:
            assert loss < 0.08 and (seen == [True, False] if way == "all weights" else seen is None)
    dist.destroy_process_group()


if __name__ == "__main__":
    print("torch", torch.__version__, flush=True)
    assert torch.__version__.startswith("2.15.0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    torch.multiprocessing.spawn(run, (number,), nprocs=2)
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/average.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
