# SPDX-License-Identifier: Apache-2.0
"""The small models of parallelize_test.py: some written here, some of transformers as they come, but for their sizes."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 96, "vocab_size": 128,
         "max_position_embeddings": 64, "tie_word_embeddings": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_OLD = {"n_layer": 4, "n_head": 8, "vocab_size": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False}
_GPT2 = {**_OLD, "n_embd": 64, "n_positions": 64}
# Their configurations: type, and what is not of SIZES.
CONFIGS = {
    "llama": ("llama", {}), "qwen3": ("qwen3", {"head_dim": 8}), "granite": ("granite", {"embedding_multiplier": 4.0, "logits_scaling": 2.0}),
    "cohere2": ("cohere2", {}), "gemma2": ("gemma2", {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8}),
    "nanochat": ("nanochat", {}), "apertus": ("apertus", {}), "olmo2": ("olmo2", {}), "stablelm": ("stablelm", {}),
    "mixtral aux": ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": True}),
    "mixtral": ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}), "starcoder2": ("starcoder2", {"residual_dropout": 0.1, "embedding_dropout": 0.1}),
    "bloom": ("bloom", {**_OLD, "hidden_size": 64}), "gpt2": ("gpt2", {**_GPT2, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}),
    "gpt2 dropout": ("gpt2", {**_GPT2, "tie_word_embeddings": True}),
    "opt": ("opt", {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8, "ffn_dim": 96, "vocab_size": 128, "max_position_embeddings": 64,
                    "word_embed_proj_dim": 64, "dropout": 0.0, "tie_word_embeddings": False})}
WHOLE = ("bloom", "gpt2", "opt")  # types whose configurations have names of their own


def config_of(kind):
    from transformers import AutoConfig
    name, more = CONFIGS[kind]
    return AutoConfig.for_model(name, **({} if name in WHOLE else SIZES), **more)


def of_transformers(kind):
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_config(config_of(kind), dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():  # away from one and zero
            parameter.add_(torch.randn_like(parameter) * 0.1) if parameter.ndim == 1 else parameter.mul_(2.0)
    return model.train()


class Attention(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.fused = nn.Linear(64, 128, bias=False) if kind == "fused" else None
        if self.fused is None:
            self.wq, self.wk, self.wv = nn.Linear(64, 64, bias=True), nn.Linear(64, 32), nn.Linear(64, 32)
        self.back = nn.Linear(64, 64, bias=True)

    def forward(self, x, mask=None):
        parts = self.fused(x).split((64, 32, 32), dim=-1) if self.fused is not None else (self.wq(x), self.wk(x), self.wv(x))
        q, k, v = (part.unflatten(-1, (-1, 8)).transpose(1, 2) for part in parts)
        if self.kind == "named heads":
            q, k, v = (part.reshape(len(x), -1, heads, 8).transpose(1, 2) for part, heads in zip(parts, (8, 4, 4)))
        if self.kind == "rotary":  # of positions that it counts itself
            angles = torch.arange(x.shape[1]).outer(torch.tensor([1.0, 0.3, 0.1, 0.03]))
            q, k = (torch.cat([u * angles.cos() - w * angles.sin(), u * angles.sin() + w * angles.cos()], -1) for u, w in (q.chunk(2, -1), k.chunk(2, -1)))
        if self.kind == "plain":
            mask = torch.full((x.shape[1],) * 2, float("-inf")).triu(1)
            y = ((q @ k.repeat_interleave(2, 1).mT) / 8**0.5 + mask).softmax(-1) @ v.repeat_interleave(2, 1)
        elif mask is not None:
            y = F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
        elif self.kind == "masked":
            y = F.scaled_dot_product_attention(q, k, v, torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(), enable_gqa=True)
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.back(y.transpose(1, 2).reshape(*x.shape[:2], -1))


class Mlp(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.one, self.two, self.three = nn.Linear(64, 96, bias=False), nn.Linear(96, 64, bias=False), nn.Linear(64, 96, bias=False)
        if kind in ("gains", "used twice"):
            self.gain = nn.Parameter(torch.tensor([1.3]))

    def forward(self, x):
        if self.kind == "used twice":  # a gradient that is a rank's part in one place and whole in the other
            x = x * self.gain
        y = F.silu(self.one(x)) * self.three(x)
        return self.two(y * self.gain if self.kind in ("gains", "used twice") else y)


class Block(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.a, self.b, self.mix, self.feed = nn.RMSNorm(64), nn.LayerNorm(64), Attention(kind), Mlp(kind)
        self.drop = nn.Dropout(0.2 if kind == "dropout" else 0.0)
        if kind == "gains":
            self.scale = nn.Parameter(torch.ones(64) * 0.7)

    def forward(self, x, mask=None):
        x = x + self.drop(self.mix(self.a(x), mask))
        y = self.drop(self.feed(self.b(x)))
        y = x + (y * self.scale if self.kind == "gains" else y)
        return y.view(*y.shape) if self.kind == "views" else y


class Decoder(nn.Module):
    """Kinds: what stands before the layers and behind the head ("dressed"), between them ("mixed"), or goes
    past them ("skip"), or is left out for some sequences ("picks"); attention
    that cannot be split; weights between columns and rows ("gains"); a mask that is made of the tokens ("documents", "pads")."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.words = nn.Embedding(128, 64)
        self.places = nn.Embedding(64, 64) if kind == "learned" else None
        self.blocks = nn.ModuleList(Block(kind) for _ in range(4))
        self.final, self.out = nn.RMSNorm(64), nn.Linear(64, 128, bias=False)
        if kind == "tied":
            self.out.weight = self.words.weight
        if kind == "dressed":
            self.at, self.dressing = nn.Parameter(torch.randn(64, 64)), nn.LayerNorm(64)
        if kind == "picks":
            self.picked = nn.ModuleList(nn.Linear(64, 64, bias=False) for _ in range(3))
        if kind == "mixed":
            self.shares = nn.Parameter(torch.full((4,), 0.9))

    def forward(self, tokens):
        x = self.words(tokens)
        if self.places is not None:
            x = x + self.places(torch.arange(tokens.shape[1]))
        if self.kind == "dressed":
            x = 3 * self.dressing(x + self.at[: tokens.shape[1]])
        mask = None
        if self.kind in ("documents", "pads"):
            of, before = (tokens < 15).cumsum(1)[:, None], torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
            mask = (of.mT == of) & before if self.kind == "documents" else (tokens >= 15)[:, None] & before | torch.eye(len(before), dtype=torch.bool)
        for number, block in enumerate(self.blocks):
            x = block(self.shares[number] * x if self.kind == "mixed" else x, *([] if mask is None else [mask[:, None]]))
        for number, expert in enumerate(self.picked if self.kind == "picks" else ()):
            chosen = x[:, 0].argmax(-1) % 3 == number
            if chosen.any():  # else a rank has no gradient of this one, where another rank has
                x = x + expert(x) * chosen[:, None, None]
        x = self.out(self.final(x))
        if self.kind == "skip":
            x = x + 2 * F.one_hot(tokens, 128)
        return 5 * torch.tanh(2 * x / 5) if self.kind == "dressed" else x


def make_model(kind):
    torch.manual_seed(3)
    return of_transformers(kind) if kind in CONFIGS else Decoder(kind)
