# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's own code refuses each planted fault of planted/deepspeed.json, and takes each sound file. rules_test.cpp asks MPT the same.

Usage: planted_test.py SOURCE_FOLDER, in the environment "accelerate" of ./scripts/install-frameworks; exit code 77 without it.
"""

import copy
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1])
PYTHON = pathlib.Path(os.environ.get("MPT_FRAMEWORKS", ROOT / "build/frameworks")) / "accelerate/bin/python"
RANKS = 8


def main():
    from deepspeed.runtime import config

    config.dist.get_rank = lambda *_: 0
    config.dist.get_world_size = lambda *_: RANKS
    planted = json.loads((ROOT / "tests/frameworks/planted/deepspeed.json").read_text())
    problems = []
    for row in planted["refused"] + planted["sound"]:
        try:
            config.DeepSpeedConfig(copy.deepcopy(row["config"]))
            refused = None
        except Exception as error:  # noqa: BLE001: any refusal counts
            refused = error
        if (refused is None) == ("fault" in row):
            problems.append(f"{row.get('fault') or row['what']}: DeepSpeed {'takes it' if refused is None else f'refuses it: {refused}'}")
    print("\n".join(problems) or f"DeepSpeed refuses {len(planted['refused'])} files and takes {len(planted['sound'])}")
    sys.exit(1 if problems else 0)


if "--inside" in sys.argv:
    main()
if not PYTHON.exists():
    print(f"skipped: {PYTHON} is not installed: ./scripts/install-frameworks")
    sys.exit(77)
sys.exit(subprocess.run([PYTHON, __file__, str(ROOT), "--inside"], check=False).returncode)
