# SPDX-License-Identifier: Apache-2.0
"""Training steps in PyTorch on a GPU: torch.compile, bf16, fused AdamW, its fastest attention. Prints tokens per second.

Usage: torch_gpu.py MODEL.json SEQUENCE MICRO_BATCH MICRO_BATCHES STEPS [TEXT]. The model is one of models/zoo: GPT-2 or Llama
style. Tokens are the bytes of TEXT, as mpt-run --data reads them; without it they are drawn from the vocabulary.
Without a GPU, or a PyTorch that can use it, prints why and ends with code 3.
"""

import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/support"))

from flat_model import flat  # noqa: E402

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError:
    print("no PyTorch here")
    sys.exit(3)

SPEC = flat(json.load(open(sys.argv[1])))
SEQUENCE, MICRO_BATCH, MICRO_BATCHES, STEPS = map(int, sys.argv[2:6])
TEXT = sys.argv[6] if len(sys.argv) > 6 else None


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if SPEC["norm"] == "layer_norm" else None

    def forward(self, x):
        if self.bias is not None:
            return F.layer_norm(x, x.shape[-1:], self.weight.to(x.dtype), self.bias.to(x.dtype), SPEC.get("norm_epsilon", 1e-5))
        return F.rms_norm(x, x.shape[-1:], self.weight.to(x.dtype), SPEC.get("norm_epsilon", 1e-5))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        hidden, ffn, bias = SPEC["hidden"], SPEC["ffn_hidden"], bool(SPEC.get("mlp_bias", False))
        self.heads, self.kv_heads, self.dim = SPEC["heads"], SPEC["kv_heads"], SPEC["head_dim"]
        self.gated = bool(SPEC["gated_mlp"])
        self.norm1, self.norm2 = Norm(hidden), Norm(hidden)
        self.qkv = nn.Linear(hidden, (self.heads + 2 * self.kv_heads) * self.dim, bias=bias)
        self.output = nn.Linear(self.heads * self.dim, hidden, bias=bias)
        self.up, self.down = nn.Linear(hidden, ffn * (2 if self.gated else 1), bias=bias), nn.Linear(ffn, hidden, bias=bias)

    def forward(self, x, cosine, sine):
        batch, sequence, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, sequence, -1, self.dim).transpose(1, 2).split(
            [self.heads, self.kv_heads, self.kv_heads], dim=1)
        if cosine is not None:
            turn = lambda t: t * cosine + torch.cat((-t[..., self.dim // 2:], t[..., :self.dim // 2]), -1) * sine
            q, k = turn(q), turn(k)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        x = x + self.output(out.transpose(1, 2).reshape(batch, sequence, -1))
        up = self.up(self.norm2(x))
        if self.gated:
            gate, up = up.chunk(2, dim=-1)
            up = F.silu(gate) * up
        else:
            up = F.gelu(up, approximate="tanh")
        return x + self.down(up)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(SPEC["vocab"], SPEC["hidden"])
        learned = SPEC["position"] == "learned"
        self.places = nn.Embedding(SPEC["max_positions"], SPEC["hidden"]) if learned else None
        self.layers = nn.ModuleList(Layer() for _ in range(SPEC["layers"]))
        self.norm = Norm(SPEC["hidden"])
        self.head = None if SPEC["tied_embeddings"] else nn.Linear(SPEC["hidden"], SPEC["vocab"], bias=False)
        if not learned:
            frequencies = SPEC.get("rotary_base", 10000.0) ** (-torch.arange(0, SPEC["head_dim"], 2) / SPEC["head_dim"])
            angles = torch.arange(SEQUENCE)[:, None] * frequencies[None].repeat(1, 2)
            self.register_buffer("cosine", angles.cos().bfloat16())
            self.register_buffer("sine", angles.sin().bfloat16())

    def forward(self, ids, targets):
        x = self.tokens(ids)
        cosine = sine = None
        if self.places is not None:
            x = x + self.places.weight[:SEQUENCE]
        else:
            cosine, sine = self.cosine, self.sine
        for layer in self.layers:
            x = layer(x, cosine, sine)
        x = self.norm(x)
        logits = F.linear(x, self.tokens.weight if self.head is None else self.head.weight)
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.reshape(-1))


def tokens(shape):
    if TEXT is None:
        return torch.randint(SPEC["vocab"], shape)
    count = shape[0] * shape[1] * shape[2]
    with open(TEXT, "rb") as file:
        data = file.read(count)
    return torch.tensor(list(data * (count // len(data) + 1))[:count]).view(shape)


def main():
    if not torch.cuda.is_available():
        print("PyTorch finds no GPU")
        return 3
    torch.manual_seed(1)
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    step_model = torch.compile(model)
    text = tokens((MICRO_BATCHES, MICRO_BATCH, SEQUENCE + 1)).cuda()
    times = []
    for _ in range(STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for part in text:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = step_model(part[:, :-1], part[:, 1:]) / MICRO_BATCHES
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    print(f"PyTorch {torch.__version__}")
    print(text[..., :-1].numel() / statistics.median(times[3:]))
    return 0


sys.exit(main())
