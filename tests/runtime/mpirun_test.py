# SPDX-License-Identifier: Apache-2.0
"""Training under mpirun, over MPI and over TCP: the same losses to the bit as with threads, in processes of one and of two
ranks, on one host and on two; a process that is killed or hangs ends the others; a signal stops and saves; wrong uses are refused.

Exits with 77, a skip for ctest, where mpirun is missing. Without the MPI module what needs it is left out. Usage: mpirun_test.py BIN_FOLDER
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from linked_hosts import LinkedHosts

BIN = os.path.abspath(sys.argv[1])
HAS_MPI = os.path.exists(f"{BIN}/libmpt_mpi.so")
OVER = {"mpi": "messages go over Open MPI", "sockets": "4 ranks"}  # what a run says
# The variables of srun instead of mpirun's. Those of PMIx stay, as under srun --mpi=pmix.
AS_SRUN = "export SLURM_PROCID=$OMPI_COMM_WORLD_RANK SLURM_STEP_NUM_TASKS=$OMPI_COMM_WORLD_SIZE SLURM_LOCALID=$OMPI_COMM_WORLD_LOCAL_RANK; " \
          "unset ${!OMPI_COMM_WORLD_*}; "
# Every process on this machine, however few cores it has.
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np"]


def done(*command, **options):
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240,
                          **options)


def must(right, what, process):
    if not right:
        sys.exit(f"FAILED {what}: exit code {process.returncode}\n{process.stdout}")


def losses(log):
    return [(row["loss"], row["gradient_norm"]) for row in map(json.loads, open(log)) if "loss" in row]


def train(plan, log, *options, steps=3):
    return [f"{BIN}/mpt-run", plan, "--data", __file__, "--steps", str(steps), "--log", log, *options]


def struck(plan, folder, transport, blow, seconds):
    """A signal to one process; the others end in time, and so does mpirun. What they print."""
    log = f"{folder}/{transport}-{blow.name}.jsonl"
    started = subprocess.Popen([*MPIRUN, "2", *train(plan, log, "--timeout", "30", "--transport", transport, steps=100000)],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for _ in range(1800):
        if os.path.exists(log) and len(open(log).read().splitlines()) > 2:
            break
        time.sleep(0.1)
    children = done("pgrep", "-f", f"mpt-run .*{log}").stdout.split()
    ranks = [int(p) for p in children if open(f"/proc/{p}/comm").read().strip() == "mpt-run"]
    if not ranks:
        sys.exit(f"FAILED {blow.name}: the run ended before\n{started.communicate()[0]}")
    os.kill(ranks[-1], blow)
    begin = time.monotonic()
    output, _ = started.communicate(timeout=120)
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


def stopped(plan, folder, transport):
    """SIGTERM to all processes: they save, and the run goes on from there with the losses of one that was never stopped."""
    log, saved = f"{folder}/{transport}-stopped.jsonl", f"{folder}/{transport}-saved"
    words = train(plan, log, "--transport", transport, "--checkpoints", saved, steps=100000)
    started = subprocess.Popen([*MPIRUN, "2", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for _ in range(1800):
        if os.path.exists(log) and len(open(log).read().splitlines()) > 4:
            break
        time.sleep(0.1)
    for process in done("pgrep", "-f", f"mpt-run .*{log}").stdout.split():
        if open(f"/proc/{process}/comm").read().strip() == "mpt-run":
            os.kill(int(process), signal.SIGTERM)
    output, _ = started.communicate(timeout=120)
    if started.returncode != 130 or "as asked; saved" not in output:
        sys.exit(f"FAILED stop over {transport}: exit code {started.returncode}\n{output}")
    steps = len(losses(log))
    further = done(*train(plan, log, "--checkpoints", saved, "--resume", "auto", steps=steps + 2))
    must(further.returncode == 0 and len(losses(log)) == steps + 2, f"resuming what {transport} saved", further)


def on_two_hosts(plan, folder, expected):
    """Two network namespaces. mpirun starts its daemon in the second one by a stand-in for ssh."""
    hosts = LinkedHosts("mpt-mpi", 3, bits_per_s=1e9)
    try:
        if missing := hosts.set_up():
            return print(f"LEFT OUT two hosts: {missing}")
        agent, log = f"{folder}/agent", f"{folder}/hosts.jsonl"
        with open(agent, "w") as script:
            script.write(f'#!/bin/sh\nshift\nexec ip netns exec {hosts.hosts[1]} unshare --uts sh -c "hostname mpt-mpi-b; $*"\n')
        os.chmod(agent, 0o700)
        addresses = [f"{hosts.network}.{i + 1}" for i in range(2)]
        run = done("ip", "netns", "exec", hosts.hosts[0], *MPIRUN[:-1], "--mca", "plm_rsh_agent", agent, "--host", ",".join(f"{a}:1" for a in addresses),
                   "-x", f"MASTER_ADDR={addresses[0]}", "-np", 2, *train(plan, log, "--transport", "mpi"))
        must(run.returncode == 0 and OVER["mpi"] in run.stdout and losses(log) == expected, "two hosts", run)
    finally:
        hosts.tear_down()


def refuse_without_module(plan, folder):
    """A program without the module beside it says so, and goes on over TCP unless MPI was asked for."""
    os.mkdir(f"{folder}/bin")
    shutil.copy(f"{BIN}/mpt-run", f"{folder}/bin/mpt-run")
    alone = [f"{folder}/bin/mpt-run", *train(plan, f"{folder}/alone.jsonl")[1:]]
    run = done(*MPIRUN, 2, *alone)
    must(run.returncode == 0 and "messages go over TCP, not MPI: this program has no libmpt_mpi.so" in run.stdout, "no module", run)
    run = done(*MPIRUN, 2, *alone, "--transport", "mpi")
    must(run.returncode == 2 and "leave --transport out" in run.stdout, "no module, MPI asked for", run)


def over_mpi(plan, folder, expected):
    under_srun = lambda more: ["bash", "-c", f'{AS_SRUN}{more}exec "$@"', "srun", *train(plan, f"{folder}/srun.jsonl")]
    run = done(*MPIRUN, 2, *under_srun(""))
    must(run.returncode == 0 and OVER["mpi"] in run.stdout and losses(f"{folder}/srun.jsonl") == expected, "srun with PMIx", run)
    run = done(*MPIRUN, 2, *under_srun("unset ${!PMIX_*}; "))
    must(run.returncode == 0 and "not MPI: srun did not start the processes for MPI (PMIX_RANK is not set)" in run.stdout, "srun without PMIx", run)
    for options, finding in ((["--transport", "mpi"], "a single process"),):
        run = done(*train(plan, f"{folder}/refused.jsonl", *options))
        must(run.returncode == 2 and finding in run.stdout, finding, run)
    run = done(*MPIRUN, 2, *train(plan, f"{folder}/refused.jsonl", "--transport", "mpi", "--checkpoints", folder, "--max-restarts", "1"))
    must(run.returncode == 2 and "given with --max-restarts" in run.stdout, "restarts", run)
    collectives = f"{BIN}/runtime_mpi_test"
    for processes in (2, 3):
        run = done(*MPIRUN, processes, collectives, "--gtest_color=no")  # its last case leaves MPI as a failed run does
        must(run.stdout.count("[  PASSED  ] 4 tests") == processes, f"collectives of {processes} processes", run)
    on_two_hosts(plan, folder, expected)


def main():
    if shutil.which("mpirun") is None:
        print("SKIPPED: no mpirun (package openmpi-bin)")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        plan = f"{folder}/plan.json"
        # Activations of 512 kB between stages, halves of them between tensor ranks: MPI carries both.
        made = done(f"{BIN}/mpt-plan", "--model", "tiny-gpt", "--cluster", "this-machine:4", "--global-batch", 8, "--seq", 256, "--tp", 2,
                    "--pp", 2, "--micro-batch", 4, "--memory", "2GiB", "--overlap", "tensor,transfer", "-o", plan)
        must(made.returncode == 0, "plan", made)
        threads = done(*train(plan, f"{folder}/threads.jsonl"))
        must(threads.returncode == 0, "threads", threads)
        expected = losses(f"{folder}/threads.jsonl")
        for transport in ("mpi", "sockets") if HAS_MPI else ("sockets",):
            for processes in (4, 2):
                log = f"{folder}/{processes}-{transport}.jsonl"
                run = done(*MPIRUN, processes, *train(plan, log, "--transport", transport))
                must(run.returncode == 0 and f"{processes} processes started by mpirun" in run.stdout, f"{processes} processes", run)
                must(OVER[transport] in run.stdout and ("messages go over" in run.stdout) == (transport == "mpi"), transport, run)
                must(losses(log) == expected and len(expected) == 3, f"{processes} processes, losses", run)
            struck(plan, folder, transport, signal.SIGKILL, 10)
            hung = struck(plan, folder, transport, signal.SIGSTOP, 60)
            if "step " not in hung or "waiting for rank" not in hung and "cannot be reached" not in hung:
                sys.exit(f"FAILED a hung process: nobody says who was waited for\n{hung}")
            stopped(plan, folder, transport)
        refuse_without_module(plan, folder)
        if HAS_MPI:
            over_mpi(plan, folder, expected)
        else:
            print("LEFT OUT all over MPI: built without it")
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
