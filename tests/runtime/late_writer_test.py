# SPDX-License-Identifier: Apache-2.0
"""A process of an older run that writes late, into a step that a newer run saves.

Two processes train. The second one stops just before it writes its part of step 2 (tests/support/faulty_calls), and the first one is
killed. A newer run resumes step 1 with another learning rate and saves step 2, too. While it waits for its own second process, the old
one writes. Step 2 is then of the newer run alone: it loads, and training goes on as if there had been no other.

Usage: late_writer_test.py BIN LIBRARY
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

BIN, LIBRARY = sys.argv[1], os.path.realpath(sys.argv[2])
CONFIG = dict(model_type="llama", hidden_act="silu", hidden_size=16, intermediate_size=32, max_position_embeddings=32,
              num_attention_heads=2, num_hidden_layers=2, num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=256)
OLD, NEW = ["--lr", "0.001"], ["--lr", "0.02", "--warmup", "0", "--resume", "auto"]


def start(scratch, saved, options, second):
    """Two processes of one rank each; `second` are variables of the second one."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [f"{BIN}/mpt-run", f"{scratch}/plan.json", "--data", f"{scratch}/text.txt", "--checkpoints", saved, "--save-every", "1",
               "--keep", "1", "--log", f"{saved}.jsonl", *options]
    processes = []
    for process in (0, 1):
        environment = {**os.environ, "RANK": str(process), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        processes.append(subprocess.Popen(command, env={**environment, **(second if process else {})}, stdout=subprocess.DEVNULL,
                                          stderr=subprocess.PIPE, text=True))
    return processes


def held(saved, until):
    """Variables with which a process waits before it creates a file of step 2."""
    return {"LD_PRELOAD": LIBRARY, "MPT_FAULTS_BELOW": saved, "MPT_FAULT": "wait", "MPT_FAULT_AT": "step-00000002", "MPT_FAULT_UNTIL": until}


def await_(what, holds, seconds=60):
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            sys.exit(f"FAILED: {what} not within {seconds} s")
        time.sleep(0.02)


def finish(what, processes):
    for process in processes:
        error = process.communicate(timeout=120)[1]
        if process.returncode != 0:
            sys.exit(f"FAILED {what}: exit code {process.returncode}\n{error}")


def loss_of(saved, step):
    rows = [json.loads(line) for line in open(f"{saved}.jsonl")]
    return [row["loss"] for row in rows if row.get("step") == step][-1]


def touch(path):
    open(path, "w").close()


def main():
    with tempfile.TemporaryDirectory() as scratch:
        with open(f"{scratch}/config.json", "w") as file:
            json.dump(CONFIG, file)
        with open(f"{scratch}/text.txt", "w") as file:
            file.write("".join(f"line {i * 7919 % 997} of the text\n" for i in range(400)))
        subprocess.run([f"{BIN}/mpt-plan", "--model", f"{scratch}/config.json", "--cluster", "this-machine:2", "--pp", "2", "--global-batch", "2",
                        "--seq", "16", "--framework", "mpt", "-o", f"{scratch}/plan.json"], check=True, stdout=subprocess.DEVNULL)
        saved, alone = f"{scratch}/saved", f"{scratch}/alone"

        old = start(scratch, saved, [*OLD, "--steps", "3"], held(saved, f"{scratch}/go-old"))
        await_("the old run's second process at its part of step 2", lambda: os.path.exists(f"{scratch}/go-old.begun"))
        await_("step 1", lambda: os.path.exists(f"{saved}/step-00000001"))
        old[0].send_signal(signal.SIGKILL)
        old[0].wait()
        shutil.copytree(saved, alone, ignore=shutil.ignore_patterns(".*"))

        new = start(scratch, saved, [*NEW, "--steps", "2"], held(saved, f"{scratch}/go-new"))
        await_("the new run's second process at its part of step 2", lambda: os.path.exists(f"{scratch}/go-new.begun"))
        await_("the new run's first part", lambda: any("rank-00000.safetensors" in names and "step-00000002" in path for path, _, names in os.walk(saved)))
        if old[1].poll() is not None:
            sys.exit(f"FAILED: the old process is not late: {old[1].stderr.read()}")
        touch(f"{scratch}/go-old")
        old[1].communicate(timeout=120)  # it fails: its run is gone
        time.sleep(1.0)  # what its file would let the first process do
        touch(f"{scratch}/go-new")
        finish("the newer run", new)

        finish("a run that nobody disturbs", start(scratch, alone, [*NEW, "--steps", "2"], {}))
        for folder in (saved, alone):
            names = sorted(name for name in os.listdir(folder) if name.startswith("step-"))
            if names != ["step-00000002"]:
                sys.exit(f"FAILED: {folder} holds {names}")
            finish("what goes on from step 2", start(scratch, folder, [*NEW, "--steps", "3"], {}))
        if (disturbed := loss_of(saved, 3)) != (wanted := loss_of(alone, 3)):
            sys.exit(f"FAILED: the loss of step 3 is {disturbed}, and without the old process {wanted}")
        left = [name for name in os.listdir(saved) if name.startswith(".unfinished")]
        if left:
            sys.exit(f"FAILED: left behind: {left}")
        index = json.load(open(f"{saved}/step-00000003/checkpoint.json"))
        print(f"run {index['run']}: step 2 is of the newer run alone")


main()
