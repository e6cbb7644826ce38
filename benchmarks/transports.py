# SPDX-License-Identifier: Apache-2.0
"""All-reduces of two ranks on this machine, in fp32: the transports of mpt-run and gloo, in turn in one run.

Usage: transports.py BIN_FOLDER [--quick] [--page FILE] [--python PYTHON]

PYTHON has a PyTorch, for gloo. Prints the time of a call and the CPU time that a rank takes for it, medians of all rounds, and both as
multiples of gloo's. A transport that cannot be had is left out. --page also writes FILE in Markdown.
"""

import argparse
import datetime
import math
import os
import shutil
import socket
import statistics
import subprocess
import sys

from commands import processor

SIZES = {"8 B": (8, 500), "64 kB": (1 << 16, 100), "1 MB": (1 << 20, 30), "16 MB": (16 << 20, 6), "64 MB": (64 << 20, 2)}
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2"]


def measured(processes, *command):
    """[(microseconds of a call, of CPU)] by size, or nothing if the command fails."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    common = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(processes))
    words = [*command, *(str(number) for pair in SIZES.values() for number in pair)]
    ranks = [subprocess.Popen(words, env=dict(common, RANK=str(rank)), text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
             for rank in range(processes)]
    lines = [rank.communicate()[0] for rank in ranks][0].splitlines()
    return [tuple(map(float, line.split())) for line in lines] if not any(rank.returncode for rank in ranks) else []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--page")
    parser.add_argument("--python", default=sys.executable)
    o = parser.parse_args()
    rounds, program, folder = 1 if o.quick else 9, f"{o.bin}/transports", os.path.dirname(os.path.abspath(__file__))
    commands = {"gloo": (2, o.python, f"{folder}/gloo_ranks.py", "auto"), "threads": (1, program, "auto"), "sockets": (2, program, "auto"),
                "MPI": (1, *MPIRUN, program, "mpi"), "MPI over TCP": (1, *MPIRUN, "--mca", "btl", "tcp,self", program, "mpi")}
    commands = {name: words for name, words in commands.items() if shutil.which(words[1]) and measured(*words)}
    taken = {name: [] for name in commands}
    for name in [*commands] * rounds:
        taken[name].append(measured(*commands[name]))
    text = f"{'all-reduce of 2 ranks':<24}{'call':>10}{'CPU of a rank':>17}{'of gloo: call':>16}{'CPU':>8}\n"
    for i, size in enumerate(SIZES):
        medians = {name: [statistics.median(column) for column in zip(*(run[i] for run in runs))] for name, runs in taken.items()}
        for name, (wall, cpu) in medians.items():
            peer = medians.get("gloo", (math.nan, math.nan))
            text += f"{size:<8}{name:<12}{wall:>11,.1f} us{cpu:>14,.1f} us{wall / peer[0]:>16.2f}{cpu / peer[1]:>8.2f}\n"
    print(text, end="")
    if o.page:
        with open(o.page, "w") as page:
            page.write("# Transports of CPU ranks\n\n`./scripts/bench transports --page reports/results/transports.md` writes this page.\n\n"
                       f"{datetime.date.today()}, {processor()}, {rounds} rounds, load {os.getloadavg()[0]:.1f}. In each round each transport has its "
                       f"turn. Figures are medians.\n\n```\n{text}```\n")


main()
