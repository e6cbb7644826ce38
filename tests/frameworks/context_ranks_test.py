# SPDX-License-Identifier: Apache-2.0
"""Starts what mpt-plan exports for context ranks on two CPU processes over gloo. Loss and norm of the gradients of two steps of DeepSpeed's
engine are those of one process without a framework; the Trainer has to start and to take its steps.

Usage: context_ranks_test.py PROGRAMS [NAMES], with an interpreter that has DeepSpeed, accelerate and transformers; it skips with a reason elsewhere.
"""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "acceptance/models")
sys.path.insert(0, os.path.join(HERE, "acceptance"))
from training import free_port  # noqa: E402

TRAINER, ENGINE = "transformers-deepspeed", "deepspeed"
# Framework, model, and more options of mpt-plan. A model by name has an id of the hub in the export.
CASES = {
    "trainer llama": (TRAINER, f"{MODELS}/tiny-llama3.json", "--zero 3"),
    "trainer qwen3": (TRAINER, f"{MODELS}/tiny-qwen.json", "--zero 3"),
    "trainer gemma": (TRAINER, f"{MODELS}/tiny-gemma.json", "--zero 3 --recompute full"),
    "engine llama": (ENGINE, f"{MODELS}/tiny-llama3.json", "--zero 3"),
    "engine qwen3": (ENGINE, f"{MODELS}/tiny-qwen.json", "--zero 3"),
    "engine gemma": (ENGINE, f"{MODELS}/tiny-gemma.json", "--zero 3"),
    "engine, a model of the hub": (ENGINE, "llama3.2-1b", "--zero 3"),
}
# With micro-batches of more sequences DeepSpeed 0.19.8 hands transformers' loss a view of labels that it cannot flatten, on CPUs alone.
OPTIONS = "--cluster dgx-h100:1 --gpus 2 --cp 2 --cp-method all_to_all --seq 64 --global-batch 4 --micro-batch 1 --offload off --precision fp32"
RANKS, STEPS = 2, 2
# Relative. With ZeRO 0 to 2 gradients would be off by the number of ranks, and no plan has these. In the engine's trial the last rank of a sequence has one target less and counts as much.
TOLERANCE = {"losses": 1e-4, "norms": 2e-3}


def children_of(process):
    """All below it: launchers start each rank in a session of its own."""
    found = []
    for one in subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True).stdout.split():
        found += [int(one), *children_of(one)]
    return found


def run(command, timeout=600, **options):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    try:
        said, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        for one in [process.pid, *children_of(process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        raise RuntimeError(f"{os.path.basename(command[0])} took over {timeout} s") from None
    if process.returncode != 0:
        words = [line for line in said.splitlines() if "Error: " in line and "ChildFailedError" not in line]
        raise RuntimeError(f"{os.path.basename(command[0])} ended with {process.returncode}: {(words or [said[-600:]])[0]}")


def start(framework, folder, report):
    """Both ranks, as the exported script starts them; an engine's by torchrun."""
    tools = os.path.dirname(sys.executable)
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "",
                   "MASTER_PORT": str(free_port()), "HUB_CONFIG": f"{MODELS}/tiny-llama3.json", "HF_HUB_OFFLINE": "1"}
    rank = os.path.join(HERE, "context_ranks", "trainer_rank.py" if framework == TRAINER else "engine_rank.py")
    launcher = [os.path.join(folder, "run_accelerate.sh")]
    if framework == ENGINE:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--master-port", environment["MASTER_PORT"]]
    run([*launcher, rank, folder, report], env=environment)


def judge(program, framework, model, options):
    """What differs; nothing where the ranks train as one process does."""
    with tempfile.TemporaryDirectory() as scratch:
        plan, folder, report = (os.path.join(scratch, name) for name in ("plan.json", "export", "report.json"))
        run([program, "--model", model, "--framework", framework, *OPTIONS.split(), *options.split(), "-o", plan])
        run([program, "export", plan, "--to", framework, "-o", folder])
        start(framework, folder, report)
        with open(report, encoding="utf-8") as file:
            said = json.load(file)
    differ = []
    for what, tolerance in TOLERANCE.items():
        there, here = said["framework"][what], said.get("plain", {}).get(what)
        if here is None:  # the Trainer's: it starts and takes its steps
            if len(there) != STEPS or not all(0.0 < float(value) < 100.0 for value in there):
                differ.append(f"{what} {there} of {STEPS} steps")
            continue
        if len(there) != len(here) or any(abs(a - b) > tolerance * b for a, b in zip(there, here)):
            differ.append(f"{what} {there}; of one process {here}")
    return "; ".join(differ)


def main():
    missing = [name for name in ("deepspeed", "accelerate", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"context_ranks_test: skipped, because {sys.executable} has no {missing[0]}: run ./scripts/install-frameworks")
        return
    failed = 0
    for name, case in CASES.items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        for last in (False, True):  # what does not start, starts once more: launchers have limits of time and ports that others take
            try:
                why = judge(os.path.join(sys.argv[1], "mpt-plan"), *case)
                break
            except RuntimeError as error:
                why = str(error)
                print(f"{name}: {why}{'' if last else '; once more'}", flush=True)
        print(f"{name}: {why or ('starts and trains' if case[0] == TRAINER else 'trains as one process does')}", flush=True)
        failed += bool(why)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
