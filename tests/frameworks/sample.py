# SPDX-License-Identifier: Apache-2.0
"""Which cases of a test run in the gate: each third one where MPT_EVERY_CASE is 3, beginning at another with each commit."""

import os
import subprocess


def sample(names):
    every = int(os.environ.get("MPT_EVERY_CASE", "1"))
    if every == 1:
        return list(names)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False).stdout or "0"
    chosen = list(names)[int(head[:8], 16) % every :: every]
    print(f"of {len(list(names))} cases each {every}th runs: {', '.join(chosen)}", flush=True)
    return chosen
