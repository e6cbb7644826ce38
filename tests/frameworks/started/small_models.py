# SPDX-License-Identifier: Apache-2.0
"""Decoders of a few thousand weights, whose layers a pipeline can cut."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, VOCABULARY = 32, 4, 64


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.core_again = False

    def forward(self, x):
        q, k, v = (part(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = checkpoint(self.core, q, k, v, use_reentrant=False) if self.core_again else self.core(q, k, v)
        return self.o(y.transpose(1, 2).flatten(-2))

    def core(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Layer(nn.Module):
    """Nine weights: seven matrices and two norms."""

    def __init__(self):
        super().__init__()
        self.norm, self.attention, self.norm2 = nn.RMSNorm(WIDTH), Attention(), nn.RMSNorm(WIDTH)
        self.up, self.gate, self.down = nn.Linear(WIDTH, 48, bias=False), nn.Linear(WIDTH, 48, bias=False), nn.Linear(48, WIDTH, bias=False)
        self.runs = 0

    def forward(self, x):
        self.runs += 1
        x = x + self.attention(self.norm(x))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    """A stage keeps its part of `layers`, and `words` or `head` where it is the first or the last one."""

    def __init__(self, layers, tied=False):
        super().__init__()
        torch.manual_seed(3)
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleDict({str(n): Layer() for n in range(layers)})
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.words.weight
        for weight in self.parameters():
            if weight.ndim == 1:  # a norm of ones would hide that its weight is left out
                nn.init.normal_(weight, 1.0, 0.1)

    def forward(self, x):
        x = self.words(x) if self.words is not None else x
        for layer in self.layers.values():
            x = layer(x)
        return self.head(self.norm(x)) if self.head is not None else x


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def rows(count, length, vocabulary=VOCABULARY):
    """Tokens and their successors."""
    drawn = torch.randint(3, vocabulary, (count, length + 1), generator=torch.Generator().manual_seed(5))
    return drawn[:, :-1], drawn[:, 1:]


def whole(tensor):
    """A DTensor's whole value; every process of its mesh has to call this."""
    tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return tensor.detach().clone()
