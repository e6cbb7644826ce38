#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""benchmarks/torch_gpu.py on the CPU: it trains, takes turns, and has each turn on the GPU run by the backend that it names.

Skipped without PyTorch. What needs a GPU (cuDNN's and FlashAttention's kernels, torch.compile) does not run here.
"""

import contextlib
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.join(ROOT, "benchmarks/torch_gpu.py")
GPT, LLAMA = (os.path.join(ROOT, "models/zoo", name + ".json") for name in ("tiny-gpt", "tiny-llama"))

try:
    import torch
except ImportError:
    print("no PyTorch here")
    sys.exit(77)
if torch.cuda.is_available():
    print("here is a GPU: scripts/gpu-check runs the baseline on it")
    sys.exit(77)


def run(*arguments, text=""):
    done = subprocess.run([sys.executable, PROGRAM, "--on-cpu", *map(str, arguments)], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=200, check=False)
    return done, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def expect(condition, what, *seen):
    if not condition:
        sys.exit(f"{what}: {seen}")


def trains_in_turns():
    for model in (GPT, LLAMA):
        done, turns = run("--vocabulary-multiple", 192, model, 16, 2, 2, 2)
        expect(done.returncode == 0 and len(turns) == 6, "three turns of two backends", done)
        for turn in turns:
            expect(turn["tokens_per_s"] > 0 and turn["vocabulary"] % 192 == 0 and "no backend" in turn["missing"], "a turn", turn)
        expect(turns[-1]["loss"] < turns[0]["loss"], "the loss", turns)
    done, turns = run("--turns", GPT, 8, 1, 1, 1, text="flash\ncudnn\n")
    expect(done.returncode == 0 and len(turns) == 2, "turns by the input", done)
    alone = subprocess.run([sys.executable, PROGRAM, GPT, "8", "1", "1", "1"], stdout=subprocess.PIPE, text=True, check=False)
    expect(alone.returncode == 3 and "PyTorch finds no GPU" in alone.stdout, "without a GPU", alone)
    done, _ = run("--attention", "fast", GPT, 8, 1, 1, 1)
    expect(done.returncode == 2 and "expected some of cudnn, flash" in done.stderr, "an unknown backend", done)


def names_its_backend():
    """With the context manager of PyTorch 2.5, which says what it was given, and no GPU."""
    sys.path.insert(0, os.path.dirname(PROGRAM))
    sys.argv = [PROGRAM, "--on-cpu", GPT, "8", "1", "1", "2"]
    import torch_gpu  # pylint: disable=import-outside-toplevel

    chosen, seen = [], []

    @contextlib.contextmanager
    def choose(backends):
        chosen.append(backends)
        yield
        chosen.pop()

    torch_gpu.sdpa_kernel, torch_gpu.BACKENDS = choose, {"cudnn": "of cuDNN", "flash": "of FlashAttention"}
    torch.cuda.synchronize = torch.cuda.empty_cache = lambda: seen.append(list(chosen))
    training = torch_gpu.Training(torch_gpu.parse())
    training.on_gpu = True
    for name, backend in torch_gpu.BACKENDS.items():
        seen.clear()
        turn = training.turn(name)
        expect(turn["attention"] == name and "missing" not in turn, "the name", turn)
        expect(len(seen) > 4 and all(inside == [[backend]] for inside in seen), "steps beside the backend", seen)


trains_in_turns()
names_its_backend()
print("torch_gpu.py: trains, takes turns, names its backend")
