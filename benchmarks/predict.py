# SPDX-License-Identifier: Apache-2.0
"""Predicted against measured step time on this machine, for layouts of one and two ranks.

Profiles once, plans each layout with every degree fixed, runs it, and prints a table with the error of each and
the mean of their absolute values. The figures are medians. The first layout runs once more at the end: how far the
two measurements lie apart is what the machine itself contributes to every error above.

Usage: predict.py FOLDER_OF_PROGRAMS [--quick]   (--quick: fewer measurements, steps and layouts)
"""

import glob
import json
import os
import subprocess
import sys
import tempfile

QUICK = "--quick" in sys.argv[2:]
STEPS, WARM_UP = (3, 1) if QUICK else (14, 4)
# ranks, options of mpt-plan
LAYOUTS = [
    (1, "--tp 1 --pp 1 --dp 1 --micro-batch 1 --recompute none"),
    (1, "--tp 1 --pp 1 --dp 1 --micro-batch 4 --recompute none"),
    (1, "--tp 1 --pp 1 --dp 1 --micro-batch 8 --recompute full"),
    (2, "--tp 2 --pp 1 --dp 1 --micro-batch 4 --recompute none"),
    (2, "--tp 1 --pp 1 --dp 2 --micro-batch 2 --recompute none"),
    (2, "--tp 1 --pp 1 --dp 2 --micro-batch 4 --recompute selective"),
    (2, "--tp 1 --pp 2 --dp 1 --micro-batch 1 --recompute none --schedule 1f1b"),
    (2, "--tp 1 --pp 2 --dp 1 --micro-batch 2 --recompute none --schedule gpipe"),
    (2, "--tp 1 --pp 2 --dp 1 --micro-batch 2 --recompute none --schedule interleaved --chunks 2"),
    (2, "--tp 1 --pp 2 --dp 1 --micro-batch 2 --recompute full --schedule 1f1b"),
]


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")


def measure(programs, folder, ranks, options, text):
    plan, log = os.path.join(folder, "plan.json"), os.path.join(folder, "run.jsonl")
    run(os.path.join(programs, "mpt-plan"), "--model", "tiny-gpt", "--cluster", f"this-machine:{ranks}",
        "--profile", os.path.join(folder, "profile.json"), "--global-batch", "16", "--seq", "256", *options.split(), "-o", plan)
    run(os.path.join(programs, "mpt-run"), plan, "--data", *text, "--steps", str(STEPS), "--log", log, "--quiet")
    with open(log) as lines:
        rows = [json.loads(line) for line in lines]
    return rows[0]["layout"], rows[0]["predicted_step_time_s"], median([r["step_time_s"] for r in rows[1 + WARM_UP:]])


def main():
    programs = sys.argv[1]
    text = sorted(glob.glob("core/*.cpp") + glob.glob("runtime/**/*.cpp", recursive=True))
    with tempfile.TemporaryDirectory() as folder:
        run(os.path.join(programs, "mpt-profile"), "--model", "tiny-gpt", "--seq", "256", "--max-tensor", "2",
            "--max-ranks", "2", "-o", os.path.join(folder, "profile.json"), *["--quick"] * QUICK)
        errors, measurements = [], []
        print(f"load before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores")
        print(f"{'layout':<46} {'predicted':>10} {'measured':>10} {'error':>8}")
        for ranks, options in LAYOUTS[::4] if QUICK else LAYOUTS:
            name, predicted, measured = measure(programs, folder, ranks, options, text)
            error = (predicted - measured) / measured
            errors.append(abs(error))
            measurements.append(measured)
            print(f"{name:<46} {predicted * 1e3:7.1f} ms {measured * 1e3:7.1f} ms {error * 100:+7.1f}%", flush=True)
        print(f"\nmean absolute error {sum(errors) / len(errors) * 100:.1f}%, worst {max(errors) * 100:.1f}%, "
              f"{len(errors)} layouts, {os.cpu_count()} cores")
        again = measure(programs, folder, *LAYOUTS[0], text)[2]
        print(f"the first layout measured again: {again * 1e3:.1f} ms, {(again / measurements[0] - 1) * 100:+.1f}%")


main()
