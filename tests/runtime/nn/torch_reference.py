# SPDX-License-Identifier: Apache-2.0
"""The forward pass, the loss and every gradient of a model, computed again by PyTorch from a reference written here.

Usage: torch_reference.py DUMP_PROGRAM. Exits with 77, which ctest takes for a skip, where PyTorch is missing.
"""

import json
import math
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../support"))

from flat_model import flat  # noqa: E402

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


def frequencies(model, half):
    """Rotary frequencies, low ones divided where the model scales like Llama 3.1."""
    frequency = model["rotary_base"] ** (-torch.arange(half) / half)
    scaling = model.get("rotary_scaling")
    if scaling is None:
        return frequency
    low, high, original = (scaling[k] for k in ("low_frequency_factor", "high_frequency_factor", "original_positions"))
    out = []
    for f in frequency.tolist():
        wavelength = 2 * math.pi / f
        smooth = (original / wavelength - low) / (high - low)
        if wavelength > original / low:
            out.append(f / scaling["factor"])
        elif wavelength < original / high:
            out.append(f)
        else:
            out.append((1 - smooth) * f / scaling["factor"] + smooth * f)
    return torch.tensor(out)


def rotate(x, model):
    """x [batch, heads, sequence, d]; pairs are (i, i + d/2)."""
    sequence, half = x.shape[2], x.shape[3] // 2
    frequency = frequencies(model, half)
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
    if model["query_key_norm"] == "per_head":
        q, k = norm(q, model, weights, name + ".query_norm"), norm(k, model, weights, name + ".key_norm")
    if model["position"] == "rotary":
        q, k = rotate(q, model), rotate(k, model)
    k, v = (t.repeat_interleave(heads // kv, 1) for t in (k, v))
    score = q @ k.transpose(-1, -2) / math.sqrt(d)
    score = score.masked_fill(torch.ones(sequence, sequence, dtype=torch.bool).triu(1), -math.inf)
    out = (score.softmax(-1) @ v).transpose(1, 2).reshape(batch, sequence, heads * d)
    return linear(out, weights, name + ".output")


def experts(x, model, weights, name):
    """Every expert on every token; the chosen ones' probabilities, scaled to sum 1, weigh them. Adds the
    load-balancing loss of each sequence, by the literature's formula, to model["balance"]."""
    moe, batch = model["moe"], x.shape[0]
    probability = linear(x, weights, name + ".router").softmax(-1)
    open_to_choice = probability
    if moe.get("groups_per_token", 1) < moe.get("expert_groups", 1):
        in_groups = probability.unflatten(-1, (moe["expert_groups"], -1))
        best = in_groups.amax(-1)
        groups = torch.zeros_like(best).scatter(-1, best.topk(moe["groups_per_token"], -1)[1], 1.0)
        open_to_choice = (in_groups * groups[..., None]).flatten(-2)
    top, chosen = open_to_choice.topk(moe["experts_per_token"], -1)
    weight = torch.zeros_like(probability).scatter(-1, chosen, top / top.sum(-1, keepdim=True))
    up = weights[name + ".experts.up.weight"].view(moe["experts"], -1, x.shape[-1])
    down = weights[name + ".experts.down.weight"].view(moe["experts"], x.shape[-1], -1)
    gate, value = torch.einsum("bsh,efh->bsef", x, up).chunk(2, -1)
    out = torch.einsum("bsef,ehf->bseh", F.silu(gate) * value, down)
    share = torch.zeros_like(probability).scatter(-1, chosen, 1.0).mean(1) / moe["experts_per_token"]
    balance = moe["experts"] * (share * probability.mean(1)).sum() / batch
    model["balance"] = model.get("balance", 0) + moe["balance_loss"] * balance
    return (out * weight[..., None]).sum(2)


def mlp(x, model, weights, name):
    if model["moe"]:
        return experts(x, model, weights, name)
    up = linear(x, weights, name + ".up")
    if model["gated_mlp"]:
        gate, up = up.chunk(2, -1)
        return linear(F.silu(gate) * up, weights, name + ".down")
    cubic = math.sqrt(2 / math.pi) * (up + 0.044715 * up ** 3)
    return linear(0.5 * up * (1 + torch.tanh(cubic)), weights, name + ".down")


def decoder_layer(x, model, weights, name):
    x = x + attention(norm(x, model, weights, name + ".attention.norm"), model, weights, name + ".attention")
    return x + mlp(norm(x, model, weights, name + ".mlp.norm"), model, weights, name + ".mlp")


def next_token_loss(hidden, head, targets, model, weights):
    """Mean over modules. Each projects the embedding of the token that the head before it predicts, and what this head reads."""
    losses = []
    for depth in range(model["next_token_layers"]):
        name = f"next_token.{depth}"
        embedded = norm(weights["embedding.weight"][targets[depth]], model, weights, name + ".embedding_norm")
        both = torch.cat((embedded, norm(hidden, model, weights, name + ".norm")), -1)
        projection = torch.cat((weights[name + ".embedding_projection.weight"], weights[name + ".projection.weight"]), 1)
        x = decoder_layer(both @ projection.T, model, weights, f"layers.{model['layers'] + depth}")
        hidden = norm(x, model, weights, name + ".head_norm")
        losses.append(F.cross_entropy((hidden @ head.T).flatten(0, 1), targets[depth + 1].flatten()))
    return sum(losses) / max(1, len(losses))


def loss_of(dump, weights):
    """The loss of the next tokens, that of the balance of experts, and that of next-token modules."""
    model = flat(dump["model"])
    tokens = torch.tensor(dump["tokens"]).view(dump["batch"], dump["sequence"])
    targets = torch.tensor(dump["targets"]).view(-1, dump["batch"], dump["sequence"])
    x = weights["embedding.weight"][tokens]
    if model["position"] == "learned":
        x = x + weights["positions.weight"][:dump["sequence"]]
    for layer in range(model["layers"]):
        x = decoder_layer(x, model, weights, f"layers.{layer}")
    head = weights["embedding.weight" if model["tied_embeddings"] else "head.weight"]
    hidden = norm(x, model, weights, "head.norm")
    loss = F.cross_entropy((hidden @ head.T).flatten(0, 1), targets[0].flatten())
    further = next_token_loss(hidden, head, targets, model, weights)
    return loss, model.get("balance", 0), further


def check(program, style):
    dump = json.loads(subprocess.run([program, style], stdout=subprocess.PIPE, check=True).stdout)
    weights = {}
    for name, entry in dump["weights"].items():
        rows, columns = entry["shape"]
        value = torch.tensor(entry["value"])
        weights[name] = (value.view(rows, columns) if columns > 1 else value).requires_grad_()
    loss, balance, further = loss_of(dump, weights)
    (loss + balance + dump["next_token_weight"] * further).backward()
    worst = max(abs(loss.item() - dump["loss"]) / loss.item(), abs(float(further) - dump["next_token_loss"]))
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


for style in ("gpt", "llama", "mixtral", "grouped", "qwen", "predicting"):
    check(sys.argv[1], style)
