# SPDX-License-Identifier: Apache-2.0
"""Every file of docs/clusters.md is understood as the page says, and its commands work on them.

Usage: clusters_test.py SOURCES BIN
"""

import os
import re
import subprocess
import sys
import tempfile

SOURCES, BIN = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
# Words of what mpt-plan cluster prints of each file.
UNDERSTOOD = {
    "two-racks.json": ["two racks: 128 GPUs in 16 nodes of 8", "a100-sxm-40gb, 40 GiB", "1 port for the 8 GPUs", "8.44 GB/s (67.5 of about 100 Gbit/s)"],
    "oversubscribed.json": ["2 ports for the 8 GPUs", "oversubscribed 2:1", "20 us a step"],
    "four-a-node.json": ["16 GPUs in 4 nodes of 4", "180 GB/s"],
    "like-h100.json": ["h100-96gb-600w, 96 GiB", "bf16 850 TFLOP/s", "measured kernels of h100-sxm-80gb, at 0.86 times", "600 W"],
    "generations.json": ["old and new: 48 GPUs", "old: 32 GPUs", "new: 16 GPUs", "12.5 GB/s (100 Gbit/s) each way"],
    "whole.json": ["my cluster: 16 GPUs in 2 nodes of 8", "my-gpu, 40 GiB", "measured kernels of a100-sxm-80gb", "1 port for the 8 GPUs"],
}


def run(folder, command):
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{command}\nexit code {done.returncode}\n{done.stdout}")
    return done.stdout


page = open(os.path.join(SOURCES, "docs/clusters.md")).read()
blocks = re.findall(r"^```json *(\S*)\n(.*?)^```$", page, re.M | re.S)
commands = re.findall(r"^    (mpt-plan .*)$", page, re.M)
if sorted(name for name, text in blocks) != sorted(UNDERSTOOD):
    sys.exit(f"blocks {[name for name, text in blocks]}: each has a name, and a row in this test")
if len(commands) < 7:
    sys.exit(f"{len(commands)} commands; is the form of the page another one?")
with tempfile.TemporaryDirectory() as scratch:
    for name, text in blocks:
        with open(os.path.join(scratch, name), "w") as file:
            file.write(text)
    for name, words in UNDERSTOOD.items():
        output = run(scratch, f"mpt-plan cluster {name}")
        missing = [part for part in words if part not in output]
        if missing:
            sys.exit(f"mpt-plan cluster {name} does not print {missing}:\n{output}")
        # What it writes means the same.
        run(scratch, f"mpt-plan cluster {name} -o again.json")
        if run(scratch, "mpt-plan cluster again.json") != output:
            sys.exit(f"{name} written and read again is another cluster")
    for command in commands:
        run(scratch, command)
print(f"docs/clusters.md: {len(blocks)} files, {len(commands)} commands")
