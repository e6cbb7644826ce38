# SPDX-License-Identifier: Apache-2.0
"""Training under mpirun: the same losses to the bit as with threads, in processes of one and of two ranks; a process that
is killed ends the others; wrong uses are refused.

Exits with 77, a skip for ctest, where mpirun is missing. Usage: mpirun_test.py BIN_FOLDER
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BIN = os.path.abspath(sys.argv[1])
# Every process on this machine, however few cores it has.
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np"]


def done(*command, **options):
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240,
                          **options)


def must(right, what, process):
    if not right:
        sys.exit(f"FAILED {what}: exit code {process.returncode}\n{process.stdout}")


def losses(log):
    return [(row["loss"], row["gradient_norm"]) for row in map(json.loads, open(log).read().splitlines()[1:])]


def train(plan, log, *options, steps=3):
    return [f"{BIN}/mpt-run", plan, "--data", __file__, "--steps", str(steps), "--log", log, *options]


def struck(plan, folder, blow, seconds):
    """A signal to one process; the others end in time, and so does mpirun. What they print."""
    log = f"{folder}/{blow.name}.jsonl"
    started = subprocess.Popen([*MPIRUN, "2", *train(plan, log, "--timeout", "3", steps=100000)],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for _ in range(600):
        if os.path.exists(log) and len(open(log).read().splitlines()) > 2:
            break
        time.sleep(0.1)
    children = done("pgrep", "-f", f"mpt-run .*{log}").stdout.split()
    ranks = [int(p) for p in children if open(f"/proc/{p}/comm").read().strip() == "mpt-run"]
    os.kill(ranks[-1], blow)
    begin = time.monotonic()
    output, _ = started.communicate(timeout=60)
    if started.returncode == 0 or time.monotonic() - begin > seconds:
        sys.exit(f"FAILED {blow.name}: exit code {started.returncode} after {time.monotonic() - begin:.1f} s\n{output}")
    # mpirun may be gone before the last of them is.
    def runs(process):
        try:
            return open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()[0] not in "ZX"
        except FileNotFoundError:
            return False
    while (left := [p for p in ranks if runs(p)]) and time.monotonic() - begin < seconds:
        time.sleep(0.05)
    if left:
        sys.exit(f"FAILED {blow.name}: {left} still run\n{output}")
    return output


def main():
    if shutil.which("mpirun") is None:
        print("SKIPPED: no mpirun (package openmpi-bin)")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        plan = f"{folder}/plan.json"
        made = done(f"{BIN}/mpt-plan", "--model", "tiny-gpt", "--cluster", "this-machine:4", "--global-batch", 8, "--seq", 64, "--tp", 2,
                    "--pp", 2, "--micro-batch", 2, "--memory", "2GiB", "--overlap", "tensor,transfer", "-o", plan)
        must(made.returncode == 0, "plan", made)
        threads = done(*train(plan, f"{folder}/threads.jsonl"))
        must(threads.returncode == 0, "threads", threads)
        for processes in (4, 2):
            log = f"{folder}/{processes}.jsonl"
            run = done(*MPIRUN, processes, *train(plan, log))
            must(run.returncode == 0 and f"{processes} processes started by mpirun" in run.stdout, f"{processes} processes", run)
            must(losses(log) == losses(f"{folder}/threads.jsonl") and len(losses(log)) == 3, f"{processes} processes, losses", run)
        struck(plan, folder, signal.SIGKILL, 10)
        hung = struck(plan, folder, signal.SIGSTOP, 20)
        if "step " not in hung or "waiting for rank" not in hung and "cannot be reached" not in hung:
            sys.exit(f"FAILED a hung process: nobody says who was waited for\n{hung}")
        uneven = done(*MPIRUN, 3, *train(plan, log))
        must(uneven.returncode != 0 and "a number that divides the plan's 4 ranks" in uneven.stdout, "three processes", uneven)
        other = f"{folder}/other.json"
        done(f"{BIN}/mpt-plan", "--model", "tiny-gpt", "--cluster", "this-machine:4", "--global-batch", 8, "--seq", 64, "--tp", 1,
             "--pp", 4, "--micro-batch", 2, "--memory", "2GiB", "-o", other)
        choice = f'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then plan={other}; else plan={plan}; fi; exec {BIN}/mpt-run $plan --data {__file__} ' \
                 '--steps 1'
        differing = done(*MPIRUN, 2, "bash", "-c", choice)
        must(differing.returncode != 0 and "was started with another one" in differing.stdout, "another plan", differing)
    print("under mpirun as in threads, to the bit")


main()
