# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of a comparison with mpt-run on a GPU: the same model, with attention by a backend that is named.

Usage: torch_gpu.py [--attention NAMES] [--vocabulary-multiple N] [--turns] [--on-cpu] MODEL SEQUENCE MICRO_BATCH MICRO_BATCHES STEPS [TEXT]

MODEL is a file of models/zoo: GPT-2 or Llama style. Tokens are the bytes of TEXT, as mpt-run --data reads them; without it
they are drawn from the vocabulary. STEPS optimizer steps are a turn. Turns go round the backends three times; with --turns
each line of the input names the backend of one turn, so that another program can run in between. Each turn prints a line of
JSON: its backend, tokens per second, and the PyTorch, GPU and settings that it used.

--attention NAMES        some of cudnn and flash, with commas between them (default: both)
--vocabulary-multiple N  pads the vocabulary as the plan does (128 for one GPU)
--on-cpu                 runs on the CPU, where no backend can be chosen: a test of this program, no baseline

As in mpt-run: weights of 16 bits are made once a step from the optimizer's fp32 ones, gradients of micro-batches add up in
fp32, AdamW is fused. Decoder layers, and head with loss, are compiled one by one. Without a GPU, or a PyTorch that can use
it, prints why and ends with code 3.
"""

import argparse
import functools
import json
import math
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

try:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
except (ImportError, AttributeError):  # PyTorch before 2.5
    BACKENDS = {}

TURNS = 3
FIRST_STEPS = 3  # of a backend: kernels are compiled and chosen


class Norm(nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.epsilon = spec.get("norm_epsilon", 1e-5)
        self.weight = nn.Parameter(torch.ones(spec["hidden"]))
        self.bias = nn.Parameter(torch.zeros(spec["hidden"])) if spec["norm"] == "layer_norm" else None

    def forward(self, x):
        if self.bias is not None:
            return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.epsilon)
        if hasattr(F, "rms_norm"):
            return F.rms_norm(x, x.shape[-1:], self.weight, self.epsilon)
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)).to(x.dtype) * self.weight


@functools.lru_cache
def mask_of(sequence, device, dtype):
    return torch.full((sequence, sequence), -torch.inf, device=device, dtype=dtype).triu(1)


def attend(q, k, v, native_groups):
    """Causal attention; keys are repeated for their queries where the backend shares none."""
    grouped = q.shape[1] != k.shape[1]
    if grouped and not native_groups:
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    if not hasattr(F, "scaled_dot_product_attention"):
        return (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + mask_of(q.shape[2], q.device, q.dtype)).softmax(-1) @ v
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, **({"enable_gqa": True} if grouped and native_groups else {}))


class Layer(nn.Module):
    def __init__(self, spec):
        super().__init__()
        hidden, ffn, bias = spec["hidden"], spec["ffn_hidden"], bool(spec.get("mlp_bias", False))
        self.heads, self.kv_heads, self.dim = spec["heads"], spec["kv_heads"], spec["head_dim"]
        self.gated = bool(spec["gated_mlp"])
        self.norm1, self.norm2 = Norm(spec), Norm(spec)
        self.qkv = nn.Linear(hidden, (self.heads + 2 * self.kv_heads) * self.dim, bias=bias)
        self.output = nn.Linear(self.heads * self.dim, hidden, bias=bias)
        self.up, self.down = nn.Linear(hidden, ffn * (2 if self.gated else 1), bias=bias), nn.Linear(ffn, hidden, bias=bias)

    def forward(self, x, cosine, sine, native_groups: bool):
        batch, sequence, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, sequence, -1, self.dim).transpose(1, 2).split(
            [self.heads, self.kv_heads, self.kv_heads], dim=1)
        if cosine is not None:
            turn = lambda t: t * cosine + torch.cat((-t[..., self.dim // 2:], t[..., :self.dim // 2]), -1) * sine
            q, k = turn(q), turn(k)
        x = x + self.output(attend(q, k, v, native_groups).transpose(1, 2).reshape(batch, sequence, -1))
        up = self.up(self.norm2(x))
        if self.gated:
            gate, up = up.chunk(2, dim=-1)
            up = F.silu(gate) * up
        else:
            up = F.gelu(up, approximate="tanh")
        return x + self.down(up)


def loss_of(x, head, targets):
    logits = F.linear(x, head)
    return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.reshape(-1))


class Model(nn.Module):
    def __init__(self, spec, words, sequence):
        super().__init__()
        self.sequence = sequence
        self.tokens = nn.Embedding(words, spec["hidden"])
        learned = spec["position"] == "learned"
        self.places = nn.Embedding(spec["max_positions"], spec["hidden"]) if learned else None
        self.layers = nn.ModuleList(Layer(spec) for _ in range(spec["layers"]))
        self.norm = Norm(spec)
        self.head = None if spec["tied_embeddings"] else nn.Linear(spec["hidden"], words, bias=False)
        self.loss = loss_of
        self.cosine = self.sine = None
        if not learned:
            frequencies = spec.get("rotary_base", 10000.0) ** (-torch.arange(0, spec["head_dim"], 2) / spec["head_dim"])
            angles = torch.arange(sequence)[:, None] * frequencies[None].repeat(1, 2)
            del self.cosine, self.sine
            self.register_buffer("cosine", angles.cos())
            self.register_buffer("sine", angles.sin())

    def compile_parts(self):
        for layer in self.layers:
            layer.compile()
        self.loss = torch.compile(loss_of)

    def forward(self, ids, targets, native_groups):
        x = self.tokens(ids)
        if self.places is not None:
            x = x + self.places.weight[:self.sequence]
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine, native_groups)
        return self.loss(self.norm(x), (self.tokens if self.head is None else self.head).weight, targets)


class Training:
    def __init__(self, options):
        self.options = options
        self.spec = flat(json.load(open(options.model)))
        multiple = options.vocabulary_multiple
        self.words = (self.spec["vocab"] + multiple - 1) // multiple * multiple
        self.on_gpu = not options.on_cpu
        self.device = "cuda" if self.on_gpu else "cpu"
        torch.manual_seed(1)
        if self.on_gpu and hasattr(torch, "set_default_device"):
            torch.set_default_device("cuda")  # one thread of the host would take long to draw the weights
        model = Model(self.spec, self.words, options.sequence).to(self.device)
        self.wide = [nn.Parameter(p.detach().clone()) for p in model.parameters()]
        self.model = model.bfloat16()
        self.optimizer = torch.optim.AdamW(self.wide, lr=1e-4, **({"fused": True} if self.on_gpu else {}))
        self.compiled = self.on_gpu and hasattr(nn.Module, "compile")
        if self.compiled:
            self.model.compile_parts()
        self.text = self.read_tokens().to(self.device)
        self.loss = None  # of the last step
        self.known = {}  # by backend: whether it shares keys between queries

    def read_tokens(self):
        o = self.options
        shape = (o.micro_batches, o.micro_batch, o.sequence + 1)
        if o.text is None:
            return torch.randint(self.spec["vocab"], shape)
        count = math.prod(shape)
        with open(o.text, "rb") as file:
            data = file.read(count)
        return torch.tensor(list(data * (count // len(data) + 1))[:count]).view(shape)

    def wait(self):
        if self.on_gpu:
            torch.cuda.synchronize()

    def step(self, native_groups):
        self.wait()
        start = time.perf_counter()
        narrow = list(self.model.parameters())
        with torch.no_grad():
            for wide, own in zip(self.wide, narrow):
                own.copy_(wide)
            for wide in self.wide:
                wide.grad = torch.zeros_like(wide) if wide.grad is None else wide.grad.zero_()
        losses = []
        for part in self.text:
            loss = self.model(part[:, :-1], part[:, 1:], native_groups) / self.options.micro_batches
            loss.backward()
            losses.append(loss.detach())
            for wide, own in zip(self.wide, narrow):
                wide.grad.add_(own.grad)
                own.grad = None
        nn.utils.clip_grad_norm_(self.wide, 1.0)
        self.optimizer.step()
        self.loss = float(sum(losses))
        self.wait()
        return time.perf_counter() - start

    def shares_keys(self):
        """Whether the backend that is chosen takes fewer heads of keys than of queries."""
        s = self.spec
        if s["heads"] == s["kv_heads"] or not self.on_gpu:
            return False
        q, k = (torch.zeros(1, heads, 128, s["head_dim"], device="cuda", dtype=torch.bfloat16, requires_grad=True)
                for heads in (s["heads"], s["kv_heads"]))
        try:
            attend(q, k, k, True).sum().backward()
            return True
        except (RuntimeError, TypeError):
            return False

    def turn(self, backend):
        if not self.on_gpu:
            return self.steps(backend, False)
        with sdpa_kernel([BACKENDS[backend]]):
            if backend not in self.known:
                self.known[backend] = self.shares_keys()
                for _ in range(FIRST_STEPS):
                    self.step(self.known[backend])
            return self.steps(backend, self.known[backend])

    def steps(self, backend, native_groups):
        times = [self.step(native_groups) for _ in range(self.options.steps)]
        if self.on_gpu:
            torch.cuda.empty_cache()  # others may run between turns
        return {"attention": backend if self.on_gpu else "plain", "tokens_per_s": self.text[..., :-1].numel() / statistics.median(times),
                "loss": self.loss, "compiled": "layers" if self.compiled else "no", "keys": "shared" if native_groups else "repeated",
                "vocabulary": self.words, **versions(), **({} if self.on_gpu else {"missing": "no backend was chosen: --on-cpu"})}


def versions():
    cudnn = torch.backends.cudnn.version() if torch.cuda.is_available() else None
    return {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": cudnn}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attention", default="cudnn,flash")
    parser.add_argument("--vocabulary-multiple", type=int, default=1)
    parser.add_argument("--turns", action="store_true")
    parser.add_argument("--on-cpu", action="store_true")
    parser.add_argument("model")
    for size in ("sequence", "micro_batch", "micro_batches", "steps"):
        parser.add_argument(size, type=int)
    parser.add_argument("text", nargs="?")
    options = parser.parse_args()
    options.backends = options.attention.split(",")
    if unknown := [name for name in options.backends if name not in ("cudnn", "flash")]:
        parser.error(f"--attention: {', '.join(unknown)}: expected some of cudnn, flash")
    return options


def main():
    options = parse()
    if not options.on_cpu and not torch.cuda.is_available():
        print("PyTorch finds no GPU")
        return 3
    if not options.on_cpu and not BACKENDS:
        print(f"PyTorch {torch.__version__} cannot be told its attention: 2.5 or later can")
        return 3
    training = Training(options)
    for backend in map(str.strip, sys.stdin) if options.turns else options.backends * TURNS:
        try:
            print(json.dumps(training.turn(backend)), flush=True)
        except RuntimeError as error:  # the backend has no kernel for this
            print(json.dumps({"attention": backend, "failed": str(error).splitlines()[0][:300]}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
