# SPDX-License-Identifier: Apache-2.0
"""Predicted against measured step time on this machine, for layouts of one and two ranks.

In each of three rounds it profiles the machine, plans each layout with every degree fixed and runs it. It prints the
median prediction and the median step of all rounds, the error between them, the mean of its absolute values, and how far
the rounds' own medians lie apart: what the machine itself contributes to every error.

Usage: predict.py FOLDER_OF_PROGRAMS [--quick]   (--quick: one round, fewer measurements, steps and layouts)
"""

import glob
import json
import os
import subprocess
import sys
import tempfile

QUICK = "--quick" in sys.argv[2:]
STEPS, WARM_UP, ROUNDS = (3, 1, 1) if QUICK else (9, 3, 3)
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
    return rows[0]["layout"], rows[0]["predicted_step_time_s"], [r["step_time_s"] for r in rows[1 + WARM_UP:]]


def main():
    programs = sys.argv[1]
    text = sorted(glob.glob("core/*.cpp") + glob.glob("runtime/**/*.cpp", recursive=True))
    layouts = LAYOUTS[::4] if QUICK else LAYOUTS
    names, predicted, steps = {}, {layout: [] for layout in layouts}, {layout: [] for layout in layouts}
    print(f"load before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS):
            run(os.path.join(programs, "mpt-profile"), "--model", "tiny-gpt", "--seq", "256", "--max-tensor", "2",
                "--max-ranks", "2", "-o", os.path.join(folder, "profile.json"), *["--quick"] * QUICK)
            for layout in layouts:
                names[layout], prediction, times = measure(programs, folder, *layout, text)
                predicted[layout].append(prediction)
                steps[layout].append(times)
    print(f"{'layout':<46} {'predicted':>10} {'measured':>10} {'error':>8} {'rounds apart':>13}")
    errors = {1: [], 2: []}
    for layout in layouts:
        measured = median([t for times in steps[layout] for t in times])
        rounds = sorted(map(median, steps[layout]))
        error = (median(predicted[layout]) - measured) / measured
        errors[layout[0]].append(abs(error))
        print(f"{names[layout]:<46} {median(predicted[layout]) * 1e3:7.1f} ms {measured * 1e3:7.1f} ms {error * 100:+7.1f}% "
              f"{(rounds[-1] / rounds[0] - 1) * 100:12.1f}%")
    everything = errors[1] + errors[2]
    print(f"\nmean absolute error {sum(everything) / len(everything) * 100:.1f}%, worst {max(everything) * 100:.1f}%, "
          f"{len(everything)} layouts, {os.cpu_count()} cores")
    if errors[2]:
        print(f"of two ranks {sum(errors[2]) / len(errors[2]) * 100:.1f}%, worst {max(errors[2]) * 100:.1f}%")


main()
