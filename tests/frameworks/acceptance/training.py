# SPDX-License-Identifier: Apache-2.0
"""Trains what a plan exported on CPU processes over gloo, and compares the losses of its steps with plain PyTorch's."""

import json
import os
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, RATE = 5, 1e-3
TOLERANCE = 1e-3  # of losses near 5.5 in fp32: sums in other orders differ by far less, another batch or rate by far more


def tokens_of(step, batch, sequence, vocab):
    """The whole batch of a step: tokens that repeat, so that there is something to learn."""
    import torch
    generator = torch.Generator().manual_seed(step)
    start = torch.randint(vocab, (batch, 1), generator=generator)
    return (start + torch.arange(sequence)) % vocab


def plain_losses(model, batch, sequence, vocab, largest_norm=0.0):
    """One process, one batch per step, no framework. `largest_norm`: gradients are clipped to it, as the framework does by default."""
    import torch
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    losses = []
    for step in range(STEPS):
        tokens = tokens_of(step, batch, sequence, vocab)
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        if largest_norm > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), largest_norm)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_ranks(script, folder, ranks, settings=None):
    """Starts the script once per rank; returns what rank 0 prints last, as JSON. Whatever one rank says last is the error."""
    common = {**os.environ, **(settings or {}), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
              "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "PYTHONPATH": HERE}
    processes = [subprocess.Popen([sys.executable, os.path.join(HERE, script), folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(ranks)]
    said = []
    try:
        for process in processes:
            said.append(process.communicate(timeout=900))
    finally:
        for process in processes:
            process.kill()
    for rank, process in enumerate(processes):
        if process.returncode != 0:
            raise RuntimeError(f"rank {rank} ended with {process.returncode}: {said[rank][1].strip()[-400:]}")
    return json.loads(said[0][0].strip().split("\n")[-1])


def compare_training(c, script, folder, settings=None):
    """Field "loss of step N": that of the exported configuration is plain PyTorch's, and it falls."""
    result = run_ranks(script, folder, c.ranks, settings)
    pairs = list(zip(result["plain"], result["losses"]))
    c.same("steps trained", STEPS, len(pairs))
    for step, (plain, loss) in enumerate(pairs):
        c.same(f"loss of step {step}", plain, plain if abs(plain - loss) < TOLERANCE else loss)
    c.same("the loss falls", True, pairs[-1][1] < pairs[0][1] - 0.1)
