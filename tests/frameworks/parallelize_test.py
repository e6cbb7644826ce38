# SPDX-License-Identifier: Apache-2.0
"""mpt.torch.parallelize on CPU processes over gloo, against one process: losses and gradients of the first step, and a second step's loss.

Usage: parallelize_test.py PROGRAMS [NAMES], with an interpreter that has torch, and transformers for some cases.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))

SIZES = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
         "intermediate_size": 96, "vocab_size": 128, "max_position_embeddings": 64, "tie_word_embeddings": False}
BASE = ["--seq", "16", "--global-batch", "8", "--precision", "fp32", "--framework", "pytorch", "--micro-batch", "1", "--sp", "off", "--recompute", "none"]
# Model, processes, options of mpt-plan estimate, and the text with which it is refused.
CASES = {
    "zero3": ("own", 2, "--dp 2 --zero 3", ""),
    "zero0": ("own", 2, "--dp 2 --zero 0", ""),
    "zero1 recompute": ("own", 4, "--dp 4 --zero 1 --recompute full", ""),
    "tensor": ("own", 2, "--tp 2 --zero 0", ""),
    "sequence": ("own", 2, "--tp 2 --zero 0 --sp on", ""),
    "sequence zero3": ("own", 4, "--tp 2 --dp 2 --zero 3 --sp on --recompute full", ""),
    "1f1b": ("own", 2, "--pp 2 --zero 0 --schedule 1f1b", ""),
    "interleaved": ("own", 2, "--pp 2 --zero 0 --schedule interleaved --chunks 2", ""),
    "zero bubble": ("own", 2, "--pp 2 --zero 0 --schedule zb-v --chunks 2", ""),
    "pipeline tensor": ("own", 4, "--pp 2 --tp 2 --zero 0 --schedule 1f1b --sp on", ""),
    "pipeline zero1": ("own", 4, "--pp 2 --dp 2 --zero 1 --schedule gpipe", ""),
    "learned positions": ("learned", 2, "--pp 2 --zero 0 --schedule 1f1b", ""),
    "llama zero3": ("llama", 2, "--dp 2 --zero 3", ""),
    "llama sequence": ("llama", 4, "--tp 2 --dp 2 --zero 3 --sp on", ""),
    "llama pipeline": ("llama", 4, "--pp 2 --tp 2 --zero 0 --schedule 1f1b", ""),
    "norms of heads": ("qwen3", 2, "--tp 2 --zero 0", ""),
    "norms of heads, sequence": ("qwen3", 4, "--tp 2 --dp 2 --zero 3 --sp on", ""),
    "fused": ("fused", 2, "--tp 2 --zero 0", "one matrix for queries, keys and values"),
    "matrices of a class of their own": ("gpt2", 2, "--tp 2 --zero 0", "outside of an nn.Linear"),
    "gpt2 zero3": ("gpt2", 2, "--dp 2 --zero 3", ""),
    "tied": ("tied", 2, "--tp 2 --zero 0", ""),
    "context ring": ("own", 2, "--cp 2 --zero 0 --cp-method ring", ""),
    "context ring zero3": ("own", 4, "--cp 2 --dp 2 --zero 3 --cp-method ring --recompute full", ""),
    "context heads": ("own", 2, "--cp 2 --zero 2 --cp-method all_to_all", ""),
    "context tensor": ("own", 4, "--cp 2 --tp 2 --zero 0 --sp on --cp-method ring", ""),
    "context learned positions": ("learned", 2, "--cp 2 --zero 3 --cp-method ring", ""),
    "llama context": ("llama", 4, "--cp 2 --dp 2 --zero 3 --cp-method ring", ""),
    "llama context tensor": ("llama", 4, "--cp 2 --tp 2 --zero 0 --sp on --cp-method all_to_all", ""),
    "context, own positions": ("rotary", 2, "--cp 2 --zero 3", "positions that blocks.0 counts itself"),
    "context, a mask": ("masked", 2, "--cp 2 --zero 3", "attention with a mask in blocks.0"),
    "context stages": ("own", 4, "--cp 2 --pp 2 --zero 0 --schedule 1f1b", "context ranks beside pipeline stages"),
    "core again": ("own", 2, "--dp 2 --zero 1 --framework megatron-core --recompute selective", ""),
    "llama core again": ("llama", 2, "--tp 2 --zero 0 --framework megatron-core --recompute selective --sp on", ""),
    "every second product": ("own", 2, "--dp 2 --zero 3 --framework torchtitan --recompute selective", ""),
    "every second product, tensor": ("own", 4, "--dp 2 --tp 2 --zero 3 --sp on --framework torchtitan --recompute selective", ""),
    "every second product, stages": ("own", 2, "--pp 2 --zero 0 --schedule 1f1b --framework torchtitan --recompute selective", ""),
    "core again in context ranks": ("own", 2, "--cp 2 --zero 1 --framework megatron-core --recompute selective --cp-method all_to_all", ""),
    "norms again": ("own", 2, "--dp 2 --zero 1 --framework megatron-core --recompute selective --recompute-modules layernorm", "selective recompute of norms, no attention core"),
    "no core to run again": ("plain", 2, "--dp 2 --zero 1 --framework megatron-core --recompute selective", "without torch.nn.functional.scaled_dot_product_attention"),
    "the documents' lines": ("documents", 2, "--dp 2 --zero 3", ""),
    "tied stages": ("tied", 2, "--pp 2 --zero 0 --schedule 1f1b", "on two stages"),
}


def make_model(kind):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    torch.manual_seed(3)
    if kind == "gpt2":
        from transformers import AutoModelForCausalLM, GPT2Config
        sizes = GPT2Config(n_embd=64, n_layer=4, n_head=8, vocab_size=128, n_positions=64, use_cache=False, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
        return AutoModelForCausalLM.from_config(sizes, attn_implementation="sdpa", dtype=torch.float32)
    if kind in ("llama", "qwen3"):
        from transformers import AutoConfig, AutoModelForCausalLM
        values = {**SIZES, **({"head_dim": 8} if kind == "qwen3" else {})}
        values.pop("model_type")
        config = AutoConfig.for_model(kind, use_cache=False, **values)
        return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.float32)

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.fused = nn.Linear(64, 128, bias=False) if kind == "fused" else None
            if self.fused is None:
                self.wq, self.wk, self.wv = nn.Linear(64, 64, bias=True), nn.Linear(64, 32), nn.Linear(64, 32)
            self.back = nn.Linear(64, 64, bias=True)

        def forward(self, x):
            parts = self.fused(x).split((64, 32, 32), dim=-1) if self.fused is not None else (self.wq(x), self.wk(x), self.wv(x))
            q, k, v = (part.unflatten(-1, (-1, 8)).transpose(1, 2) for part in parts)
            if kind == "rotary":  # of positions that it counts itself
                angles = torch.arange(x.shape[1]).outer(torch.tensor([1.0, 0.3, 0.1, 0.03]))
                q, k = (torch.cat([u * angles.cos() - w * angles.sin(), u * angles.sin() + w * angles.cos()], -1) for u, w in (q.chunk(2, -1), k.chunk(2, -1)))
            if kind == "plain":
                mask = torch.full((x.shape[1],) * 2, float("-inf")).triu(1)
                y = ((q @ k.repeat_interleave(2, 1).mT) / 8**0.5 + mask).softmax(-1) @ v.repeat_interleave(2, 1)
            elif kind == "masked":
                y = F.scaled_dot_product_attention(q, k, v, torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(), enable_gqa=True)
            else:
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            return self.back(y.transpose(1, 2).flatten(-2))

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.three = nn.Linear(64, 96, bias=False), nn.Linear(96, 64, bias=False), nn.Linear(64, 96, bias=False)

        def forward(self, x):
            return self.two(F.silu(self.one(x)) * self.three(x))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.mix, self.feed = nn.RMSNorm(64), nn.LayerNorm(64), Attention(), Mlp()

        def forward(self, x):
            x = x + self.mix(self.a(x))
            return x + self.feed(self.b(x))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(128, 64)
            self.places = nn.Embedding(64, 64) if kind == "learned" else None
            self.blocks = nn.ModuleList(Block() for _ in range(4))
            self.final, self.out = nn.RMSNorm(64), nn.Linear(64, 128, bias=False)
            if kind == "tied":
                self.out.weight = self.words.weight

        def forward(self, tokens):
            x = self.words(tokens)
            if self.places is not None:
                x = x + self.places(torch.arange(tokens.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.out(self.final(x))

    return Decoder()


def loss_of(result, targets):
    import torch.nn.functional as F
    logits = getattr(result, "logits", result)
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def data(step):
    import torch
    rows = torch.randint(0, 128, (8, 17), generator=torch.Generator().manual_seed(step))
    return rows[:, :-1], rows[:, 1:]


def one_process(kind):
    """Losses of two steps, and the gradients of the first one."""
    import torch
    model = make_model(kind)
    optimizer, losses, gradients = torch.optim.SGD(model.parameters(), lr=0.1), [], None
    for step in range(2):
        tokens, targets = data(step)
        loss = loss_of(model(tokens), targets)
        loss.backward()
        losses.append(loss.item())
        gradients = gradients or {name: p.grad.clone() for name, p in model.named_parameters()}
        optimizer.step()
        optimizer.zero_grad()
    return losses, gradients


def whole_gradient(parameter):
    from torch.distributed.tensor import DTensor
    return parameter.grad.full_tensor() if isinstance(parameter.grad, DTensor) else parameter.grad


def original_name(name, stage, layout, seen_layers):
    """Of a parameter in a stage, whose layers are counted anew."""
    name = name.replace("_checkpoint_wrapped_module.", "")
    name = name.removeprefix("model.") if len(layout["layers_per_stage"]) > 1 else name
    if name.startswith(seen_layers + "."):
        number, _, rest = name[len(seen_layers) + 1 :].partition(".")
        name = f"{seen_layers}.{int(number) + sum(layout['layers_per_stage'][:stage])}.{rest}"
    return name


def documents(plan):
    """The lines of docs/python.md on a model of one's own."""
    import torch.distributed as dist
    with open(os.path.join(ROOT, "docs/python.md"), encoding="utf-8") as file:
        (lines,) = [one for one in re.findall(r"^```python\n(.*?)^```", file.read(), re.M | re.S) if "mpt.torch" in one]
    half = slice(dist.get_rank() * 4, dist.get_rank() * 4 + 4)
    names = {"model": make_model("own"), "batches": [tuple(rows[half] for rows in data(0)) for _ in range(3)], "loss_of": loss_of}
    exec(compile(lines.replace("plan.json", plan), "docs/python.md", "exec"), names)
    loss = names["loss"].clone()
    dist.all_reduce(loss)
    assert 0 < loss / 2 < one_process("own")[0][0], loss  # it learns


def count_calls(act):
    """Attention cores and products that a step computes on this rank, forward and again. Under modes of checkpoints: these do not call what they kept."""
    from torch.utils._python_dispatch import TorchDispatchMode
    cores, products = [], []

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, arguments=(), named=None):
            name = str(operator)
            (cores if "_scaled_dot_product_" in name and "backward" not in name else products if name.startswith(("aten.mm.", "aten.addmm.")) else []).append(name)
            return operator(*arguments, **(named or {}))
    with Count():
        act()
    return len(cores), len(products)


def check_recompute(plan, parallel):
    """A step runs again what the plan says, and no more: seven products of a layer and its core; backward has two of each product."""
    layout = plan["layout"]
    sequences = 8 // layout["data"]
    layers = sum(layout["layers_per_stage"][stage] for stage in parallel.parts)
    heads = int(len(layout["layers_per_stage"]) - 1 in parallel.parts)
    cores, products = count_calls(lambda: parallel.step(*(rows[:sequences] for rows in data(0)), loss_of))
    micro_batches = sequences // layout["micro_batch"]
    alternate = layout["execution"].get("keeps_every_second_product", False)
    wanted = (layers * micro_batches * (1 if alternate else 2), micro_batches * (layers * (7 * 3 + (3 if alternate else 0)) + 3 * heads))
    assert (cores, products) == wanted, f"cores and products: {(cores, products)}, expected {wanted}"


def compare(kind, plan):
    """Two steps of all ranks against those of one process."""
    import torch
    import torch.distributed as dist

    import mpt.torch
    layout = plan["layout"]
    layers = {"llama": "model.layers", "qwen3": "model.layers", "gpt2": "transformer.h"}.get(kind, "blocks")
    losses, gradients = one_process(kind)
    parallel = mpt.torch.parallelize(make_model(kind), plan)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    replica, own = parallel.replica, 8 // layout["data"]
    for step in range(2):
        loss = parallel.step(*(rows[replica * own : (replica + 1) * own] for rows in data(step)), loss_of)
        sums = torch.tensor([0.0 if loss is None else loss.item(), loss is not None], dtype=torch.float64)
        dist.all_reduce(sums)
        assert abs(sums[0] / sums[1] - losses[step]) < 2e-5, (step, sums[0] / sums[1], losses[step])
        checked = 0
        for stage, part in parallel.parts.items() if step == 0 else ():
            for name, parameter in part.named_parameters():
                name = original_name(name, stage, layout, layers)
                torch.testing.assert_close(whole_gradient(parameter), gradients[name], rtol=1e-4, atol=2e-6, msg=lambda text: f"{name}: {text}")
                checked += 1
        assert step > 0 or checked >= len(gradients) // layout["pipeline"] // 2, checked
        optimizer.step()
        optimizer.zero_grad()
    if layout["recompute"] == "selective" and kind == "own" and layout["context"] == 1:
        check_recompute(plan, parallel)


def rank(path):
    """All cases of a number of processes."""
    import datetime

    import torch
    import torch.distributed as dist

    import mpt
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
    with open(path, encoding="utf-8") as file:
        cases = json.load(file)
    wrong = 0
    for name, plan in cases:
        kind, _, _, refused = CASES[name]
        with open(plan, encoding="utf-8") as file:
            fields = json.load(file)
        said, is_wrong = "as one process", False
        try:
            documents(plan) if kind == "documents" else compare(kind, fields)
            is_wrong = refused != ""
        except mpt.InputError as error:
            said, is_wrong = f"refused: {error}", refused == "" or refused not in str(error)
        except Exception:  # the other ranks wait, up to the limit
            said, is_wrong = traceback.format_exc()[-1500:], True
        wrong += is_wrong
        if dist.get_rank() == 0 or is_wrong:
            print(f"{name}: {'FAILED: ' if is_wrong else ''}{said}", flush=True)
        dist.barrier()
    dist.destroy_process_group()
    sys.exit(wrong > 0)


def make_plan(name, program, folder):
    kind, ranks, options, _ = CASES[name]
    config = os.path.join(folder, f"{kind}.json")
    sizes = {**SIZES, **({"model_type": "qwen3", "head_dim": 8} if kind == "qwen3" else {}), "tie_word_embeddings": kind == "tied"}
    with open(config, "w", encoding="utf-8") as file:
        json.dump(sizes, file)
    extra = options.split()
    words = [word for pair in zip(BASE[::2], BASE[1::2]) if pair[0] not in extra for word in pair]
    plan = os.path.join(folder, f"plan of {name}.json")
    done = subprocess.run([program, "estimate", "--model", config, "--cluster", "dgx-h100", "--gpus", str(ranks), *words, *extra, "-o", plan],
                          capture_output=True, text=True)
    assert done.returncode == 0, f"{name}: {done.stderr}"
    return plan


def launch(ranks, path):
    """As torchrun does; returns whether a rank failed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    command = [sys.executable, os.path.abspath(__file__), "--rank", path]
    processes = [subprocess.Popen(command, env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(ranks)]
    return max(process.wait() for process in processes) != 0


def main():
    program = os.path.join(os.path.abspath(sys.argv[1]), "mpt-plan")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for ranks in (2, 4):
            cases = [(name, make_plan(name, program, folder)) for name in sys.argv[2:] or CASES if CASES[name][1] == ranks]
            path = os.path.join(folder, "cases.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(cases, file)
            if cases:
                failed += launch(ranks, path)
    sys.exit(failed > 0)


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        rank(*sys.argv[2:])
    else:
        main()
