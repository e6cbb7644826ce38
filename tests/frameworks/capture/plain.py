# SPDX-License-Identifier: Apache-2.0
"""Loops of PyTorch without a framework. The word says what comes first."""

import os
import sys

import torch
import torch.distributed
import torch.distributed.checkpoint
from safetensors.torch import save_file

model = torch.nn.Linear(4, 4)
weights = model.state_dict()
optimizer = torch.optim.AdamW(model.parameters())
os.makedirs("logs", exist_ok=True)
with open("logs/train.log", "w", encoding="utf-8") as log:
    log.write("started\n")


def loop():
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    torch.save(weights, "checkpoint.pt")


def reduce():
    torch.distributed.init_process_group("gloo")
    torch.distributed.barrier()
    torch.distributed.all_reduce(torch.ones(1))


FIRST = {
    "loop": loop,
    "step": optimizer.step,
    "grad": lambda: torch.autograd.grad(model(torch.ones(2, 4)).sum(), list(model.parameters())),
    "save": lambda: torch.save(weights, "checkpoint.pt"),
    "file": lambda: torch.save(weights, open("checkpoint.pt", "wb")),
    "sharded": lambda: torch.distributed.checkpoint.save(weights, checkpoint_id="sharded"),
    "safetensors": lambda: save_file(weights, "checkpoint.safetensors"),
    "reduce": reduce,
    "loader": lambda: next(iter(torch.utils.data.DataLoader([1, 2], num_workers=2))),
    "spawn": lambda: torch.multiprocessing.spawn(print, nprocs=2),
}
try:
    FIRST[sys.argv[1]]()
finally:
    os.replace("logs/train.log", "checkpoint.pt")
    print("the script went on")
