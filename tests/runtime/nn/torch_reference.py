# SPDX-License-Identifier: Apache-2.0
"""The forward pass, the loss and every gradient of a model, computed again by PyTorch from a reference written here.

Usage: torch_reference.py DUMP_PROGRAM. Exits with 77, which ctest takes for a skip, where PyTorch is missing.
"""

import json
import math
import subprocess
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("SKIPPED: python3-torch is not installed")
    sys.exit(77)

torch.set_default_dtype(torch.float64)


def norm(x, model, weights, name):
    if model["norm"] == "rms_norm":
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + model["norm_epsilon"]) * weights[name + ".scale"]
    return F.layer_norm(x, (x.shape[-1],), weights[name + ".scale"], weights[name + ".bias"], model["norm_epsilon"])


def rotate(x, base):
    """x [batch, heads, sequence, d]; pairs are (i, i + d/2)."""
    sequence, half = x.shape[2], x.shape[3] // 2
    frequency = base ** (-torch.arange(half) / half)
    angle = torch.arange(sequence)[:, None] * frequency[None, :]
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


def linear(x, weights, name):
    y = x @ weights[name + ".weight"].T
    return y + weights[name + ".bias"] if name + ".bias" in weights else y


def attention(x, model, weights, name):
    batch, sequence, _ = x.shape
    heads, kv, d = model["heads"], model["kv_heads"], model["head_dim"]
    qkv = linear(x, weights, name + ".qkv").view(batch, sequence, heads + 2 * kv, d).transpose(1, 2)
    q, k, v = qkv[:, :heads], qkv[:, heads:heads + kv], qkv[:, heads + kv:]
    if model["position"] == "rotary":
        q, k = rotate(q, model["rotary_base"]), rotate(k, model["rotary_base"])
    k, v = (t.repeat_interleave(heads // kv, 1) for t in (k, v))
    score = q @ k.transpose(-1, -2) / math.sqrt(d)
    score = score.masked_fill(torch.ones(sequence, sequence, dtype=torch.bool).triu(1), -math.inf)
    out = (score.softmax(-1) @ v).transpose(1, 2).reshape(batch, sequence, heads * d)
    return linear(out, weights, name + ".output")


def mlp(x, model, weights, name):
    up = linear(x, weights, name + ".up")
    if model["gated_mlp"]:
        gate, up = up.chunk(2, -1)
        return linear(F.silu(gate) * up, weights, name + ".down")
    cubic = math.sqrt(2 / math.pi) * (up + 0.044715 * up ** 3)
    return linear(0.5 * up * (1 + torch.tanh(cubic)), weights, name + ".down")


def loss_of(dump, weights):
    model = dump["model"]
    tokens = torch.tensor(dump["tokens"]).view(dump["batch"], dump["sequence"])
    x = weights["embedding.weight"][tokens]
    if model["position"] == "learned":
        x = x + weights["positions.weight"][:dump["sequence"]]
    for layer in range(model["layers"]):
        name = f"layers.{layer}"
        x = x + attention(norm(x, model, weights, name + ".attention.norm"), model, weights, name + ".attention")
        x = x + mlp(norm(x, model, weights, name + ".mlp.norm"), model, weights, name + ".mlp")
    head = weights["embedding.weight" if model["tied_embeddings"] else "head.weight"]
    logits = norm(x, model, weights, "head.norm") @ head.T
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), torch.tensor(dump["targets"]))


def check(program, style):
    dump = json.loads(subprocess.run([program, style], stdout=subprocess.PIPE, check=True).stdout)
    weights = {}
    for name, entry in dump["weights"].items():
        rows, columns = entry["shape"]
        value = torch.tensor(entry["value"])
        weights[name] = (value.view(rows, columns) if columns > 1 else value).requires_grad_()
    loss = loss_of(dump, weights)
    loss.backward()
    worst = abs(loss.item() - dump["loss"]) / loss.item()
    print(f"{style}: loss {dump['loss']:.12f}, PyTorch {loss.item():.12f}")
    for name, entry in dump["weights"].items():
        want = weights[name].grad.reshape(-1)
        got = torch.tensor(entry["gradient"])
        # Both in double: rounding of sums of some thousand terms, relative to the largest element.
        error = ((got - want).abs().max() / want.abs().max()).item()
        worst = max(worst, error)
        if not error < 1e-11:
            sys.exit(f"{style}: gradient of {name} differs by {error:.2e} of its largest element")
    if not worst < 1e-11:
        sys.exit(f"{style}: the loss differs by {worst:.2e}")
    print(f"{style}: {len(weights)} gradients, the worst differs by {worst:.1e}")


for style in ("gpt", "llama"):
    check(sys.argv[1], style)
