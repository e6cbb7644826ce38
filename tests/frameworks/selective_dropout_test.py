# SPDX-License-Identifier: Apache-2.0
"""Gradients of layers whose products mpt.torch keeps by turns, with dropout in attention and behind it, against layers without recompute.

Usage: selective_dropout_test.py, with PyTorch. The rule is taken out of its file, which does not load without a plan. On GPUs an attention
with dropout is one operator; on CPUs it is none, so that the test has its own."""
import ast
import functools
import pathlib
from typing import Any

import torch
from torch import library
from torch.nn.functional import dropout, gelu
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

FILE = pathlib.Path(__file__).resolve().parents[2] / "python/mpt/torch/_recompute.py"
WIDTH = 32
runs = []


def rules():
    body = [node for node in ast.parse(FILE.read_text()).body if isinstance(node, ast.Assign) or
            isinstance(node, ast.FunctionDef) and node.name in ("_every_second_product", "_keeps_attention")]
    names = {"Any": Any, "CheckpointPolicy": CheckpointPolicy, "create_selective_checkpoint_contexts": create_selective_checkpoint_contexts,
             "torch": torch}
    exec(compile(ast.Module(body, []), str(FILE), "exec"), names)
    return names["_every_second_product"], names["_keeps_attention"]


@library.custom_op("mpt_test::_scaled_dot_product_dropping", mutates_args=())
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float) -> tuple[torch.Tensor, torch.Tensor]:
    runs.append(dropout_p)
    shares = torch.softmax(q @ k.mT / WIDTH**0.5, -1)
    mask = dropout(torch.ones_like(shares), dropout_p) if dropout_p else torch.ones_like(shares)
    return (shares * mask) @ v, mask


def backward(ctx, gradient, _):
    q, k, v, mask = ctx.saved_tensors
    shares = torch.softmax(q @ k.mT / WIDTH**0.5, -1)
    of_shares = gradient @ v.mT * mask
    of_logits = shares * (of_shares - (of_shares * shares).sum(-1, keepdim=True)) / WIDTH**0.5
    return of_logits @ k, of_logits.mT @ q, (shares * mask).mT @ gradient, None


attention.register_autograd(backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs[:3], output[1]))


class Layer(torch.nn.Module):
    def __init__(self, rate, behind):
        super().__init__()
        self.rate, self.behind = rate, behind
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        core = torch.ops.mpt_test._scaled_dot_product_dropping(*self.qkv(x).chunk(3, -1), self.rate)[0]
        x = x + dropout(self.out(core), self.behind)
        return x + dropout(self.down(gelu(self.up(x))), self.behind)


def gradients(rate, behind, contexts):
    torch.manual_seed(0)
    runs.clear()
    layer, batch = Layer(rate, behind), torch.randn(8, 64, WIDTH)
    output = checkpoint(layer, batch, use_reentrant=False, context_fn=contexts) if contexts else layer(batch)
    output.square().mean().backward()
    return torch.cat([weight.grad.flatten() for weight in layer.parameters()]), len(runs)


every_second, keeps_attention = rules()
for rate, behind in (0.1, 0.1), (0.1, 0.0), (0.0, 0.1), (0.0, 0.0):
    plain, _ = gradients(rate, behind, None)
    kept, times = gradients(rate, behind, functools.partial(every_second))
    error = ((kept - plain).norm() / plain.norm()).item()
    print(f"dropout {rate} in attention and {behind} behind it: gradients {error:.1e} off, attention ran {times} times")
    assert error < 1e-6
    assert times == (2 if rate else 1), "only an attention that draws nothing is kept"

q = torch.empty(1, 1, 2, 8, device="meta")
for operator, before in ((torch.ops.aten._scaled_dot_product_flash_attention.default, ()),
                         (torch.ops.aten._scaled_dot_product_efficient_attention.default, (None, True)),
                         (torch.ops.aten._scaled_dot_product_cudnn_attention.default, (None, True)),
                         (torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default, ())):
    assert keeps_attention(operator, (q, q, q, *before), {}) and keeps_attention(operator, (q, q, q, *before, 0.0), {}), operator
    assert not keeps_attention(operator, (q, q, q, *before, 0.1), {}), operator
    assert not keeps_attention(operator, (q, q, q, *before), {"dropout_p": 0.1}), operator
assert not keeps_attention(torch.ops.aten._scaled_dot_product_flash_attention_backward.default, (), {})
assert not keeps_attention(torch.ops.aten.mm.default, (), {})
print("torch", torch.__version__)
