# SPDX-License-Identifier: Apache-2.0
"""One training step (forward, backward, AdamW) of a GPT-2 style model on one core: MPT against PyTorch, in turns.

Usage: step_vs_torch.py TRAIN_STEP_PROGRAM [--quick]. Prints the medians and their ratio for each size.
--quick has one round of a small size.
"""

import subprocess
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
# layers, hidden, heads, sequence, batch, vocabulary
QUICK = "--quick" in sys.argv[2:]
SIZES = [(2, 64, 4, 64, 2, 256)] if QUICK else [(8, 128, 4, 256, 4, 256), (4, 256, 4, 256, 2, 256)]
ROUNDS = 1 if QUICK else 3
STEPS = 1


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


def compare(program, size):
    layers, hidden, heads, sequence, batch, vocabulary = size
    ours = subprocess.Popen([program, *map(str, size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    model = Model(layers, hidden, heads, sequence, vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.arange(batch * sequence).view(batch, sequence) * 7919 % vocabulary
    targets = (ids + 1) % vocabulary
    mine, theirs = [], []
    for round_number in range(ROUNDS + 1):
        ours.stdin.write(f"{STEPS}\n")
        ours.stdin.flush()
        times = [float(t) for t in ours.stdout.readline().split()]
        torch_times = []
        for _ in range(STEPS):
            start = time.perf_counter()
            optimizer.zero_grad(set_to_none=True)
            model(ids, targets).backward()
            optimizer.step()
            torch_times.append(time.perf_counter() - start)
        if round_number > 0:  # the first warms up
            mine += times
            theirs += torch_times
    ours.stdin.close()
    ours.wait()
    ratio = median(theirs) / median(mine)
    name = f"{layers} layers, hidden {hidden}, sequence {sequence}, batch {batch}"
    print(f"{name:<48} MPT {median(mine) * 1e3:8.1f} ms   PyTorch {median(theirs) * 1e3:8.1f} ms   {ratio:.2f}x", flush=True)


print(f"PyTorch {torch.__version__}, one thread")
for size in SIZES:
    compare(sys.argv[1], size)
