# SPDX-License-Identifier: Apache-2.0
"""One training step (forward, backward, AdamW) of a GPT-2 style model: MPT against PyTorch, in turns, on one core and in
data parallel on two (PyTorch: DistributedDataParallel over gloo).

Usage: step_vs_torch.py TRAIN_STEP_PROGRAM [--quick]. Prints the medians and their ratio for each size, and which share of
the speed of matrix products on the same cores MPT's steps reach: products are measured before each step, and for as long.
--quick has one round of a small size. With --worker RANK PORT SIZE... it is one of PyTorch's two processes.
"""

import os
import socket
import subprocess
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
# layers, hidden, heads, sequence, batch of each rank, vocabulary
QUICK = "--quick" in sys.argv[2:]
SIZES = [(2, 64, 4, 64, 2, 256)] if QUICK else [(8, 128, 4, 256, 4, 256), (4, 256, 4, 256, 2, 256)]
ROUNDS, PAIRS = (1, 1) if QUICK else (3, 5)  # PyTorch's steps; products and steps of MPT for each


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


def median(values):
    return sorted(values)[len(values) // 2]


class TorchSteps:
    """Steps in this process; in data parallel if it is one of several."""

    def __init__(self, size, parallel=False):
        layers, hidden, heads, sequence, batch, vocabulary = size
        self.model = Model(layers, hidden, heads, sequence, vocabulary)
        if parallel:
            self.model = nn.parallel.DistributedDataParallel(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.ids = torch.arange(batch * sequence).view(batch, sequence) * 7919 % vocabulary
        self.targets = (self.ids + 1) % vocabulary

    def step(self):
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        self.model(self.ids, self.targets).backward()
        self.optimizer.step()
        return time.perf_counter() - start


class TwoTorchProcesses:
    def __init__(self, size):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.workers = [subprocess.Popen([sys.executable, __file__, "--worker", str(rank), str(port), *map(str, size)],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for rank in range(2)]

    def step(self):
        for worker in self.workers:
            worker.stdin.write("\n")
            worker.stdin.flush()
        return max(float(worker.stdout.readline()) for worker in self.workers)

    def close(self):
        for worker in self.workers:
            worker.stdin.close()
        for worker in self.workers:
            worker.wait()


def work(rank, port, size):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.distributed.init_process_group("gloo", rank=int(rank), world_size=2)
    steps = TorchSteps(size, parallel=True)
    for _ in sys.stdin:
        torch.distributed.barrier()
        print(steps.step(), flush=True)


def compare(program, size, ranks):
    ours = subprocess.Popen([program, *map(str, size), str(ranks)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    flops = float(ours.stdout.readline())

    def ask(count):
        ours.stdin.write(f"{count}\n")
        ours.stdin.flush()
        return float(ours.stdout.readline())

    torch_steps = TorchSteps(size) if ranks == 1 else TwoTorchProcesses(size)
    mine, theirs, shares = [], [], []
    for round_number in range(ROUNDS + 1):
        pairs = [(ask(0), ask(1)) for _ in range(PAIRS)]
        torch_s = torch_steps.step()
        if round_number > 0:  # the first warms up
            mine += [step_s for _, step_s in pairs]
            theirs.append(torch_s)
            shares += [flops / step_s / product_flop_per_s for product_flop_per_s, step_s in pairs]
    ours.stdin.close()
    ours.wait()
    if ranks > 1:
        torch_steps.close()
    layers, hidden, _, sequence, batch, _ = size
    name = f"{layers} layers, hidden {hidden}, sequence {sequence}, batch {batch * ranks}"
    print(f"{name:<48} {ranks} core{'s' if ranks > 1 else ' '}  MPT {median(mine) * 1e3:8.1f} ms   PyTorch {median(theirs) * 1e3:8.1f} ms   "
          f"{median(theirs) / median(mine):6.2f}x   {median(shares):5.1%} of a product's speed", flush=True)


if sys.argv[1] == "--worker":
    work(sys.argv[2], sys.argv[3], [int(v) for v in sys.argv[4:]])
else:
    print(f"PyTorch {torch.__version__}, one thread for each rank")
    for cores in (1, 2):
        for one in SIZES:
            compare(sys.argv[1], one, cores)
