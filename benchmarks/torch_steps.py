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
from torch_gpu import Model


def loss_of(x, head, targets):
    """Of logits in the type that autocast gives them."""
    logits = F.linear(x, head)
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


class Steps:
    def __init__(self, size, ranks, compiled, bf16):
        self.bf16 = bf16
        layers, hidden, heads, sequence, batch, vocabulary = size
        spec = {"hidden": hidden, "ffn_hidden": 4 * hidden, "gated_mlp": False, "mlp_bias": True, "norm": "layer_norm", "heads": heads, "kv_heads": heads,
                "head_dim": hidden // heads, "position": "learned", "max_positions": sequence, "tied_embeddings": True, "layers": layers}
        self.model = Model(spec, vocabulary, sequence)
        self.model.loss = loss_of
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
            loss = self.run(self.ids, self.targets, False)
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
