# SPDX-License-Identifier: Apache-2.0
"""Runs exported launch scripts with stand-ins for the programs that they start, from a folder that is not theirs."""

import json
import os
import subprocess
import tempfile

# Writes down how it was started.
RECORDER = """#!/usr/bin/env python3
import json, os, sys
with open(os.environ["MPT_STARTED"], "a") as file:
    file.write(json.dumps({"program": os.path.basename(sys.argv[0]), "arguments": sys.argv[1:], "environment": dict(os.environ)}) + "\\n")
"""
# One task on each node, as Slurm's srun with --ntasks-per-node=1.
SRUN = """#!/usr/bin/env bash
for node in $(seq 0 $((SLURM_JOB_NUM_NODES - 1))); do SLURM_NODEID=$node SLURM_PROCID=$node "$@"; done
"""
SCONTROL = """#!/usr/bin/env bash
[ "$*" = "show hostnames $SLURM_JOB_NODELIST" ] || exit 1
for node in $(seq 0 $((SLURM_JOB_NUM_NODES - 1))); do echo "node$node"; done
"""
PROGRAMS = {"torchrun": RECORDER, "accelerate": RECORDER, "srun": SRUN, "scontrol": SCONTROL}


def run(command, environment):
    """What the stand-ins were started with, in order."""
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in PROGRAMS.items():
            path = os.path.join(scratch, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(path, 0o755)
        started = os.path.join(scratch, "started")
        variables = {"PATH": scratch + ":/usr/bin:/bin", "HOME": scratch, "MPT_STARTED": started, **environment}
        result = subprocess.run(command, cwd=scratch, env=variables, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if result.returncode != 0 or not os.path.exists(started):
            raise RuntimeError(f"{command[:2]}: {result.stderr.strip()}")
        with open(started, encoding="utf-8") as file:
            return [json.loads(line) for line in file]


def read_by_shells(path):
    """Throws where bash or shellcheck finds fault with a script."""
    for command in (["bash", "-n", path], ["shellcheck", path]):
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            raise RuntimeError(f"{command[0]}: {result.stdout.strip() or result.stderr.strip()}")
