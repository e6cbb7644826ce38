# SPDX-License-Identifier: Apache-2.0
"""Runs the command that `mpt-plan export --smoke` prints, for each framework that starts on CPU processes: it takes two steps and ends well.

Usage: smoke_test.py PROGRAMS [NAMES]. Exit code 77: no environment is installed."""

import os
import re
import socket
import subprocess
import sys
import tempfile

from sample import sample

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENVIRONMENTS = os.environ.get("MPT_FRAMEWORKS", os.path.join(ROOT, "build", "frameworks"))
LIMIT_S = 600  # DeepSpeed compiles how its CPU ranks communicate, which takes a minute
# Framework: model and layout of the plan, and what the second step prints.
CASES = {
    "pytorch": (["llama3-8b", "--pp", "2", "--zero", "0", "--schedule", "1f1b"], "step 2/2  loss"),
    "transformers-fsdp": (["gemma3-1b", "--zero", "3"], "'train_loss'"),
    "transformers-ddp": (["qwen3-0.6b"], "'train_loss'"),
    "transformers-deepspeed": (["llama3-8b", "--zero", "3"], "'train_loss'"),
    "deepspeed": (["llama3-8b", "--zero", "3", "--pp", "1"], ""),
}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def fault(program, framework, options, words):
    """What went wrong, or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        model, *layout = options
        subprocess.run([program, "--model", model, "--cluster", "dgx-h100:1", "--global-batch", "64", "--framework", framework, *layout,
                        "-o", "plan.json"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        said = subprocess.run([program, "export", "plan.json", "--smoke", "--to", framework], cwd=folder, check=True, capture_output=True, text=True).stdout
        command = re.sub(r"\\\n", " ", said.partition("in fp32:\n")[2])
        tools = os.path.join(ENVIRONMENTS, "accelerate", "bin")
        with open(os.path.join(folder, "torchrun"), "w", encoding="utf-8") as file:  # the environment sees PyTorch's, which starts another Python
            file.write(f'#!/bin/sh\nexec "{tools}/python" -m torch.distributed.run "$@"\n')
        os.chmod(file.name, 0o755)
        path = os.pathsep.join([folder, tools, os.environ["PATH"]])
        environment = {**os.environ, "PATH": path, "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode or words not in done.stdout + done.stderr:
            return f"{command.strip()} ended with {done.returncode}: {(done.stdout + done.stderr)[-1500:]}"
    return ""


def main():
    if not os.path.exists(os.path.join(ENVIRONMENTS, "accelerate", "installed")):
        print("smoke_test: skipped: ./scripts/install-frameworks accelerate")
        return 77
    failed = 0
    for framework in sys.argv[2:] or sample(CASES):
        why = fault(os.path.join(os.path.abspath(sys.argv[1]), "mpt-plan"), framework, *CASES[framework])
        print(f"{framework}: {why or 'takes two steps'}", flush=True)
        failed += bool(why)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
