# SPDX-License-Identifier: Apache-2.0
"""Every command of docs/tutorial.md works, in its order, in a copy of the sources without a build of its own.

Usage: tutorial_test.py SOURCES BIN
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCES, BIN = sys.argv[1:3]
text = open(os.path.join(SOURCES, "docs/tutorial.md")).read()
commands = [line.strip() for line in re.findall(r"^    (\S.*)$", text, re.M)]
commands = [c for c in commands if not c.startswith("./scripts/build")]
if len(commands) < 12:
    sys.exit("too few commands: is the form of the page another one?")
with tempfile.TemporaryDirectory() as folder:
    os.makedirs(os.path.join(folder, "build/release"))
    os.symlink(os.path.abspath(BIN), os.path.join(folder, "build/release/bin"))
    shutil.copy(os.path.join(SOURCES, "README.md"), folder)
    shutil.copytree(os.path.join(SOURCES, "docs"), os.path.join(folder, "docs"))
    for command in commands:
        done = subprocess.run(["bash", "-c", command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"{command}\nexit code {done.returncode}\n{done.stdout[-2000:]}")
        if "diagnose gpus.json" in command and "slow rank 1" not in done.stdout:
            sys.exit(f"the slow rank was not found:\n{done.stdout}")
print(f"{len(commands)} commands")
