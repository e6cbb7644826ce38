# SPDX-License-Identifier: Apache-2.0
"""The model in plain PyTorch."""

import functools
import math

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.nn.attention.bias import causal_lower_right
from torch.utils.checkpoint import checkpoint

from plan import ATTENTION, AXIS, DEVICE, KINDS, LAYERS, MICRO_BATCHES, MODEL, RECOMPUTED, SEQUENCE, STAGES  # part

# body
# The model ---------------------------------------------------------------------------------------------------------------------------

ACTIVATIONS = {"gelu": F.gelu, "gelu_tanh": functools.partial(F.gelu, approximate="tanh"), "silu": F.silu, "relu": F.relu,
               "squared_relu": lambda x: F.relu(x).square()}


def make_norm():
    if MODEL["norm"] == "rms_norm":
        return nn.RMSNorm(MODEL["hidden"], eps=MODEL["norm_epsilon"])
    return nn.LayerNorm(MODEL["hidden"], eps=MODEL["norm_epsilon"], bias=MODEL["norm_bias"])


@functools.cache
def local_positions(context_rank):
    """Which tokens of a sequence a context rank holds."""
    # if context ring
    # Two pieces, one from either end: with causal attention every rank has as much to do.
    piece = SEQUENCE // AXIS["cp"] // 2
    last = 2 * AXIS["cp"] - 1 - context_rank
    return torch.cat((torch.arange(piece) + context_rank * piece, torch.arange(piece) + last * piece))
    # end
    # if not context ring
    own = SEQUENCE // AXIS["cp"]
    return torch.arange(own) + context_rank * own
    # end


# if rotary
def rotary_frequencies():
    rotary = ATTENTION["rotary"]
    rotated = int(ATTENTION["head_dim"] * rotary.get("fraction", 1.0)) // 2 * 2
    frequencies = rotary["base"] ** (-torch.arange(0, rotated, 2, dtype=torch.float64) / rotated)
    scaling = rotary.get("scaling")
    if scaling is None:
        return frequencies
    if scaling["kind"] == "linear":
        return frequencies / scaling["factor"]
    if scaling["kind"] != "llama3":
        raise ValueError(f"rotary scaling {scaling['kind']}")
    turns = scaling["original_positions"] * frequencies / (2 * math.pi)  # slow frequencies fall, fast ones stay
    low, high = scaling["low_frequency_factor"], scaling["high_frequency_factor"]
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return frequencies * (kept + (1 - kept) / scaling["factor"])


@functools.cache
def rotary_table(context_rank):
    """Cosines and sines, [tokens, 1, frequencies]."""
    angles = torch.outer(local_positions(context_rank).double(), rotary_frequencies()).unsqueeze(1)
    return angles.cos().float().to(DEVICE), angles.sin().float().to(DEVICE)


def rotate(x, context_rank):
    """Queries or keys, [batch, tokens, heads, size]."""
    cosine, sine = rotary_table(context_rank)
    half = cosine.shape[-1]
    a, b, rest = x[..., :half].float(), x[..., half : 2 * half].float(), x[..., 2 * half :]
    return torch.cat(((a * cosine - b * sine).type_as(x), (b * cosine + a * sine).type_as(x), rest), dim=-1)


# end
def attend(q, k, v, mask=None):
    """Causal attention of [batch, tokens, heads, size]; a mask says how queries stand to keys where these are more."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=q.shape[1] != k.shape[1])
    return y.transpose(1, 2)


# if context ring
def gather_over_context(x, mesh):
    """Keys or values of all context ranks in the order of their tokens."""
    order = torch.cat([local_positions(rank) for rank in range(mesh.size())]).argsort().to(x.device)
    whole = DTensor.from_local(x, mesh, [Shard(1)], run_check=False).redistribute(placements=[Replicate()])
    return whole.to_local(grad_placements=[Partial()]).index_select(1, order)


def kept_in_part(own, mesh):
    """Hooks by which the backward gathers keys and values again: until then a rank keeps its own part of them, as in a ring."""
    again = {}

    def pack(tensor):
        part = own.get(tensor.untyped_storage()._cdata)
        return tensor if part is None else (*part, tensor.size(), tensor.stride(), tensor.storage_offset())

    def unpack(kept):
        if isinstance(kept, torch.Tensor):
            return kept
        name, part, *view = kept
        is_first = name not in again
        whole = gather_over_context(part, mesh) if is_first else again.pop(name)
        if is_first:
            again[name] = whole  # for the other half of the queries
        return whole.as_strided(*view)

    return pack, unpack


# end
# if context
def attend_over_context(q, k, v, mesh):
    """Causal attention over the tokens of all context ranks, [batch, tokens of this rank, heads, size]."""
    # if context all_to_all
    # Ranks exchange heads for tokens, attend to whole sequences, and exchange back.
    q, k, v = (DTensor.from_local(x, mesh, [Shard(1)], run_check=False).redistribute(placements=[Shard(2)]).to_local() for x in (q, k, v))
    y = DTensor.from_local(attend(q, k, v), mesh, [Shard(2)], run_check=False)
    return y.redistribute(placements=[Shard(1)]).to_local()
    # end
    # if context ring
    # Ranks gather keys and values. Each half of a rank's queries attends to the tokens before it.
    whole = {"k": gather_over_context(k, mesh), "v": gather_over_context(v, mesh)}
    own = {x.untyped_storage()._cdata: (name, mine.detach()) for (name, x), mine in zip(whole.items(), (k, v))}
    piece = q.shape[1] // 2
    parts = []
    with torch.autograd.graph.saved_tensors_hooks(*kept_in_part(own, mesh)):
        for half, begin in ((q[:, :piece], mesh.get_local_rank()), (q[:, piece:], 2 * mesh.size() - 1 - mesh.get_local_rank())):
            end = (begin + 1) * piece
            parts.append(attend(half, whole["k"][:, :end], whole["v"][:, :end], causal_lower_right(piece, end)))
    return torch.cat(parts, dim=1)
    # end


# end
class Attention(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        queries, keys = ATTENTION["heads"] * ATTENTION["head_dim"], ATTENTION["kv_heads"] * ATTENTION["head_dim"]
        self.q_proj = nn.Linear(MODEL["hidden"], queries, bias=ATTENTION.get("qkv_bias", False))
        self.k_proj = nn.Linear(MODEL["hidden"], keys, bias=ATTENTION.get("qkv_bias", False))
        self.v_proj = nn.Linear(MODEL["hidden"], keys, bias=ATTENTION.get("qkv_bias", False))
        self.o_proj = nn.Linear(queries, MODEL["hidden"], bias=ATTENTION.get("output_bias", False))
        # if query key norm
        self.q_norm = nn.RMSNorm(ATTENTION["head_dim"], eps=MODEL["norm_epsilon"])
        self.k_norm = nn.RMSNorm(ATTENTION["head_dim"], eps=MODEL["norm_epsilon"])
        # end
        self.context = mesh["cp"]

    def forward(self, x):
        q, k, v = (project(x).unflatten(-1, (-1, ATTENTION["head_dim"])) for project in (self.q_proj, self.k_proj, self.v_proj))
        # if query key norm
        q, k = self.q_norm(q), self.k_norm(k)
        # end
        # if rotary
        q, k = rotate(q, self.context.get_local_rank()), rotate(k, self.context.get_local_rank())
        # end
        # if context
        y = attend_over_context(q, k, v, self.context)
        # end
        # if not context
        y = attend(q, k, v)
        # end
        return self.o_proj(y.flatten(-2))


class MLP(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        width, bias = sizes["ffn_hidden"], sizes.get("bias", False)
        # if gated
        self.gate_proj = nn.Linear(MODEL["hidden"], width, bias=bias)
        # end
        self.up_proj = nn.Linear(MODEL["hidden"], width, bias=bias)
        self.down_proj = nn.Linear(width, MODEL["hidden"], bias=bias)
        self.activation = ACTIVATIONS[sizes["activation"]]

    def forward(self, x):
        # if gated
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))
        # end
        # if not gated
        return self.down_proj(self.activation(self.up_proj(x)))
        # end


# if experts
class AddedLoss(torch.autograd.Function):
    """Passes its first argument on. The backward gives the second one, a loss, the gradient that the loss of the tokens has."""

    scale = 1.0

    @staticmethod
    def forward(ctx, x, loss):
        ctx.save_for_backward(loss)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, torch.full_like(ctx.saved_tensors[0], AddedLoss.scale / MICRO_BATCHES)


class Experts(nn.Module):
    """Routed experts, all of them on each rank."""

    def __init__(self, moe, mesh):
        super().__init__()
        self.moe, width = moe, moe["expert"]["ffn_hidden"]
        self.activation = ACTIVATIONS[moe["expert"]["activation"]]
        self.gate = nn.Linear(MODEL["hidden"], moe["experts"], bias=False)
        # if gated
        self.w1 = nn.Parameter(torch.empty(moe["experts"], width, MODEL["hidden"]))
        # end
        self.w3 = nn.Parameter(torch.empty(moe["experts"], width, MODEL["hidden"]))
        self.w2 = nn.Parameter(torch.empty(moe["experts"], MODEL["hidden"], width))
        self.context = mesh["cp"]

    def route(self, x):
        """Weights and numbers of the experts of each token, and the loss that balances experts over each sequence."""
        moe = self.moe
        probabilities = self.gate(x).float().softmax(dim=-1)
        allowed = probabilities
        # if expert groups
        # A token chooses from the groups with the best experts.
        groups = probabilities.unflatten(-1, (moe["expert_groups"], -1))
        best = groups.amax(dim=-1)
        chosen = torch.zeros_like(best).scatter(-1, best.topk(moe.get("groups_per_token", 1), dim=-1).indices, 1.0)
        allowed = (groups * chosen.unsqueeze(-1)).flatten(-2)
        # end
        weights, chosen = allowed.topk(moe["experts_per_token"], dim=-1)
        counts = F.one_hot(chosen, moe["experts"]).sum(dim=(1, 2)).float()  # of each sequence
        # if context
        dist.all_reduce(counts, group=self.context.get_group())
        # end
        share = counts / (SEQUENCE * moe["experts_per_token"])
        balance = moe["balance_loss"] * moe["experts"] * (share * probabilities.mean(dim=1)).sum(dim=-1).mean()
        # if normalized weights
        weights = weights / weights.sum(dim=-1, keepdim=True)
        # end
        return (weights * moe.get("routed_scale", 1.0)).flatten(0, 1), chosen.flatten(0, 1), balance

    def forward(self, x):
        weights, chosen, balance = self.route(x)
        order = chosen.flatten().argsort(stable=True)  # copies of tokens by expert
        tokens = order // chosen.shape[1]
        ends = F.one_hot(chosen.flatten(), self.moe["experts"]).sum(dim=0).cumsum(0).to(torch.int32)
        copies = x.flatten(0, 1)[tokens]
        inner = F.grouped_mm(copies, self.w3.transpose(1, 2), offs=ends)
        # if gated
        inner = self.activation(F.grouped_mm(copies, self.w1.transpose(1, 2), offs=ends)) * inner
        # end
        # if not gated
        inner = self.activation(inner)
        # end
        y = F.grouped_mm(inner, self.w2.transpose(1, 2), offs=ends) * weights.flatten()[order].unsqueeze(-1).type_as(x)
        # Unlike index_add, it keeps no copy of y.
        y = torch.zeros_like(x.flatten(0, 1)).scatter_add(0, tokens.unsqueeze(-1).expand_as(y), y).view_as(x)
        return AddedLoss.apply(y, balance)


# end
class Layer(nn.Module):
    def __init__(self, number, recomputes, mesh):
        super().__init__()
        self.input_layernorm = make_norm()
        self.self_attn = Attention(mesh)
        self.post_attention_layernorm = make_norm()
        # if experts
        self.mlp = Experts(KINDS[number]["moe"], mesh) if "moe" in KINDS[number] else MLP(KINDS[number]["mlp"])
        # end
        # if not experts
        self.mlp = MLP(KINDS[number]["mlp"])
        # end
        self.recomputes = recomputes

    def block(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))

    def forward(self, x):
        # if recompute
        if self.recomputes:
            return checkpoint(self.block, x, use_reentrant=False, preserve_rng_state=False)
        # end
        return self.block(x)


# if learned
class Positions(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(MODEL["max_positions"], MODEL["hidden"]))
        self.context_rank = mesh["cp"].get_local_rank()

    def forward(self, x):
        index = local_positions(self.context_rank).to(DEVICE)
        # if tensor
        if isinstance(self.weight, DTensor):
            index = DTensor.from_local(index, self.weight.device_mesh, [Replicate()], run_check=False)
        # end
        return x + F.embedding(index, self.weight)


# end
class Model(nn.Module):
    """One stage. Without a pipeline it is the whole model."""

    def __init__(self, stage, mesh):
        super().__init__()
        if stage == 0:
            self.embed_tokens = nn.Embedding(MODEL["vocab"], MODEL["hidden"])
            # if learned
            self.positions = Positions(mesh)
            # end
        first = sum(LAYERS[:stage])
        self.layers = nn.ModuleDict({str(first + i): Layer(first + i, i < RECOMPUTED[stage], mesh) for i in range(LAYERS[stage])})
        if stage == STAGES - 1:
            self.norm = make_norm()
            self.lm_head = nn.Linear(MODEL["hidden"], MODEL["vocab"], bias=False)

    def forward(self, x, targets=None):
        """Of tokens, or of what the stage before sent. The last stage returns the mean loss of its tokens, [1]."""
        if hasattr(self, "embed_tokens"):
            x = self.embed_tokens(x)
            # if learned
            x = self.positions(x)
            # end
        for layer in self.layers.values():
            x = layer(x)
        if not hasattr(self, "lm_head"):
            return x
        loss = F.cross_entropy(self.lm_head(self.norm(x)).flatten(0, 1).float(), targets.flatten())
        # if tensor
        if isinstance(loss, DTensor):
            loss = loss.to_local()
        # end
        return loss.reshape(1)
