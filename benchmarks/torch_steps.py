# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of step_vs_torch.py: one process of the peer, which takes a step for every line that it reads.

Usage: torch_steps.py [--compile] [--bf16] RANK RANKS PORT LAYERS HIDDEN HEADS SEQUENCE BATCH VOCABULARY

Its first line of output is JSON: the PyTorch, the BLAS it computes with, and how far a product is off. Then each line is
the seconds of a step.
"""

import json
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

from blas_in_use import blas_of, mapped_files


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.output = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x, mask):
        batch, sequence, hidden = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, sequence, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if hasattr(F, "scaled_dot_product_attention"):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            out = ((q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5 + mask).softmax(-1) @ v
        x = x + self.output(out.transpose(1, 2).reshape(batch, sequence, hidden))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, layers, hidden, heads, sequence, vocabulary):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, hidden), nn.Embedding(sequence, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.register_buffer("mask", torch.full((sequence, sequence), -torch.inf).triu(1))

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight
        for block in self.blocks:
            x = block(x, self.mask)
        logits = self.norm(x) @ self.tokens.weight.T
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


class Steps:
    def __init__(self, size, ranks, compiled, bf16):
        self.bf16 = bf16
        layers, hidden, heads, sequence, batch, vocabulary = size
        self.model = Model(layers, hidden, heads, sequence, vocabulary)
        if ranks > 1:
            self.model = nn.parallel.DistributedDataParallel(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.run = torch.compile(self.model) if compiled else self.model
        self.ids = torch.arange(batch * sequence).view(batch, sequence) * 7919 % vocabulary
        self.targets = (self.ids + 1) % vocabulary

    def step(self):
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, self.bf16):
            loss = self.run(self.ids, self.targets)
        loss.backward()
        self.optimizer.step()
        return time.perf_counter() - start


def product_error():
    """The error of a product: older OpenBLAS compute wrong results on newer processors."""
    torch.manual_seed(1)
    a, b = torch.rand(256, 384), torch.rand(384, 512)
    exact = a.double() @ b.double()
    return ((a @ b).double() - exact).abs().max().item() / exact.abs().max().item()


def main():
    words = sys.argv[1:]
    compiled, bf16 = "--compile" in words, "--bf16" in words
    rank, ranks, port, *size = (int(word) for word in words if not word.startswith("--"))
    torch.set_num_threads(1)
    error = product_error()  # first, because it loads the BLAS
    blas = blas_of(mapped_files(), torch.__config__.show())
    print(json.dumps({"torch": torch.__version__, "blas": blas, "product_error": error}), flush=True)
    if ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    steps = Steps(size, ranks, compiled, bf16)
    for _ in sys.stdin:
        if ranks > 1:
            torch.distributed.barrier()
        print(steps.step(), flush=True)


main()
