# SPDX-License-Identifier: Apache-2.0
"""PyTorch: mpt_train.py trains the plan's model on CPU processes over gloo. Its losses are those of mpt-run, from the same weights and
data in the same layout."""

import contextlib
import json
import multiprocessing
import os
import runpy
import socket
import subprocess
import sys

from judging import judge

import stubs  # noqa: E402

stubs.use()
import torch  # noqa: E402
import torch.distributed.fsdp  # noqa: E402, F401
import torch.distributed.pipelining  # noqa: E402, F401
import torch.distributed.tensor.parallel  # noqa: E402, F401

STEPS = 20
# fp32 sums in another order; measured are differences below 1e-5.
TOLERANCE = 1e-4
LIMIT_S = 300


def mpt_run(folder, *arguments):
    program = os.path.join(os.environ["MPT_PROGRAMS"], "mpt-run")
    result = subprocess.run([program, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=folder)
    if result.returncode != 0:
        raise RuntimeError(f"mpt-run: {' '.join((result.stdout + result.stderr).split())[-300:]}")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_rank(folder, rank, ranks, port, arguments):
    """What torchrun starts, without importing PyTorch again."""
    said = os.open(os.path.join(folder, f"rank{rank}.txt"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.chdir(folder)
    sys.argv = ["mpt_train.py", *arguments]
    torch.set_num_threads(1)
    runpy.run_path("mpt_train.py", run_name="__main__")


def train(folder, ranks, arguments):
    context = multiprocessing.get_context("fork")
    port = free_port()
    processes = [context.Process(target=run_rank, args=(folder, rank, ranks, port, arguments)) for rank in range(ranks)]
    for process in processes:
        process.start()
    with contextlib.suppress(ValueError):
        multiprocessing.connection.wait([p.sentinel for p in processes], LIMIT_S)
        for process in processes:
            process.join(LIMIT_S if processes[0].exitcode in (None, 0) else 5)
    for process in processes:
        process.kill()
        process.join()
    failed = [rank for rank, process in enumerate(processes) if process.exitcode != 0]
    if failed:
        texts = []
        for rank in failed:
            with open(os.path.join(folder, f"rank{rank}.txt"), encoding="utf-8") as file:
                lines = [line for line in file.read().split("\n") if "Error" in line]
            texts += lines[-1:]
        raise RuntimeError(f"ranks {failed} failed: {(texts or ['no message'])[0]}")


def rows(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return [json.loads(line) for line in file][1:]


def read_json(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return json.load(file)


def loss_of(folder, weights):
    """Of the first samples, with the weights of a Hugging Face folder."""
    mpt_run(folder, "plan.json", "--data", "data.txt", "--steps", "1", "--lr", "0", "--min-lr", "0", "--init", weights, "--log", weights + ".jsonl", "--quiet")
    return rows(folder, weights + ".jsonl")[0]["loss"]


def check(folder, c):
    with open(os.path.join(folder, "data.txt"), "w", encoding="ascii") as file:
        file.write(" ".join(str(n) for n in range(1, 4000)))
    mpt_run(folder, "plan.json", "--data", "data.txt", "--steps", "1", "--lr", "0", "--min-lr", "0", "--checkpoints", "first", "--quiet")
    mpt_run(folder, "export", "first", "weights")
    training = ["--data", "data.txt", "--steps", str(STEPS), "--init", "weights"]
    mpt_run(folder, "plan.json", *training, "--log", "mpt.jsonl", "--checkpoints", "last", "--quiet")
    mpt_run(folder, "export", "last", "expected")
    train(folder, c.ranks, [*training, "--log-file", "pytorch.jsonl", "--save", "trained"])
    ours, theirs = rows(folder, "mpt.jsonl"), rows(folder, "pytorch.jsonl")
    c.same("steps", STEPS, len(theirs))
    for key in ("loss", "gradient_norm"):
        difference = max(abs(a[key] - b[key]) for a, b in zip(ours, theirs))
        c.same(f"{key} within {TOLERANCE}", True, difference <= TOLERANCE)
        print(f"{os.path.basename(folder)}: {key} differs by {difference:.1e}", file=sys.__stderr__)
    difference = abs(loss_of(folder, "trained") - loss_of(folder, "expected"))
    c.same(f"loss of the saved weights within {TOLERANCE}", True, difference <= TOLERANCE)
    c.same("config.json", read_json(folder, "expected/config.json"), read_json(folder, "trained/config.json"))


if __name__ == "__main__":
    judge(check)
