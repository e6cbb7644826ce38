# SPDX-License-Identifier: Apache-2.0
"""Predicted against measured step time on this machine, for layouts of one and two ranks.

In each of three rounds it profiles the machine, plans each layout with every degree fixed and runs it. It prints the median prediction and
the median step of all rounds, the error between them, the mean of its absolute values, and the difference between the rounds' own medians:
the machine's part in every error.

A shared machine changes its speed within seconds, and the profile is minutes old. So short runs of a layout take turns with short ones of
the same model on one rank, one per rank of the layout at the same time. The column "beside" is the median error of a layout's step as a
multiple of the runs before and after it: the error of predicting the split of a model, without the machine's changing speed.

Usage: predict.py FOLDER_OF_PROGRAMS [--quick]   (--quick: one round of fewer measurements, steps, sequences and layouts)
"""

import glob
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from statistics import median

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "support"))
from linked_hosts import run

QUICK = "--quick" in sys.argv[2:]
STEPS, WARM_UP, TURNS, ROUNDS = (2, 1, 1, 1) if QUICK else (4, 1, 3, 3)
BATCH, BATCH_ALONE = ("8", "4") if QUICK else ("16", "8")
ALONE = "--tp 1 --pp 1 --dp 1 --micro-batch 2 --recompute none"  # of the runs on one rank
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


def plan(programs, folder, name, ranks, options, batch):
    file = os.path.join(folder, name)
    run(os.path.join(programs, "mpt-plan"), "--model", "tiny-gpt", "--cluster", f"this-machine:{ranks}",
        "--profile", os.path.join(folder, "profile.json"), "--global-batch", batch, "--seq", "256", *options.split(), "-o", file)
    return file


def train(programs, plans, text):
    """Runs all plans at the same time; returns the rows of each run's log without warm-up steps."""
    started = [subprocess.Popen([os.path.join(programs, "mpt-run"), plan, "--data", *text, "--steps", str(STEPS), "--log",
                                 f"{plan}.{i}.jsonl", "--quiet"], stdout=subprocess.DEVNULL) for i, plan in enumerate(plans)]
    if any(process.wait() != 0 for process in started):
        sys.exit(f"mpt-run {plans[0]} failed")
    logs = [list(map(json.loads, pathlib.Path(f"{plan}.{i}.jsonl").read_text().splitlines())) for i, plan in enumerate(plans)]
    return logs[0][0], [row["step_time_s"] for log in logs for row in log[1 + WARM_UP:]]


def main():
    programs = sys.argv[1]
    text = sorted(glob.glob("core/*.cpp") + glob.glob("runtime/**/*.cpp", recursive=True))
    layouts = LAYOUTS[::4] if QUICK else LAYOUTS
    names = {}
    predicted, steps, beside = ({layout: [] for layout in layouts} for _ in range(3))
    print(f"load before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS):
            profile = os.path.join(folder, "profile.json")
            run(os.path.join(programs, "mpt-profile"), "--model", "tiny-gpt", "--seq", "256", "--max-tensor", "2",
                "--max-ranks", "2", "-o", profile, *["--quick"] * QUICK)
            rates = json.loads(pathlib.Path(profile).read_text())["rate_by_active_ranks"]
            alone = plan(programs, folder, "alone.json", 1, ALONE, BATCH_ALONE)
            for layout in layouts:
                ranks, options = layout
                whole = plan(programs, folder, "plan.json", ranks, options, BATCH)
                header, before = train(programs, [alone] * ranks, text)
                steps[layout].append([])
                for _ in range(TURNS):
                    of_layout, times = train(programs, [whole], text)
                    _, after = train(programs, [alone] * ranks, text)
                    steps[layout][-1] += times
                    expected = of_layout["predicted_step_time_s"] / (header["predicted_step_time_s"] / rates[ranks - 1])
                    beside[layout].append(expected / (median(times) / median(before + after)) - 1)
                    before = after
                names[layout] = of_layout["layout"]
                predicted[layout].append(of_layout["predicted_step_time_s"])
    print(f"{'layout':<46} {'predicted':>10} {'measured':>10} {'error':>8} {'rounds apart':>13} {'beside':>8}")
    errors, relatives = {1: [], 2: []}, {1: [], 2: []}
    for layout in layouts:
        measured = median([t for times in steps[layout] for t in times])
        rounds = sorted(map(median, steps[layout]))
        error = (median(predicted[layout]) - measured) / measured
        relative = median(beside[layout])
        errors[layout[0]].append(abs(error))
        relatives[layout[0]].append(abs(relative))
        print(f"{names[layout]:<46} {median(predicted[layout]) * 1e3:7.1f} ms {measured * 1e3:7.1f} ms {error * 100:+7.1f}% "
              f"{(rounds[-1] / rounds[0] - 1) * 100:12.1f}% {relative * 100:+7.1f}%")
    everything = errors[1] + errors[2]
    print(f"\nmean absolute error {sum(everything) / len(everything) * 100:.1f}%, worst {max(everything) * 100:.1f}%, "
          f"{len(everything)} layouts, {os.cpu_count()} cores")
    if errors[2]:
        print(f"of two ranks {sum(errors[2]) / len(errors[2]) * 100:.1f}%, worst {max(errors[2]) * 100:.1f}%; "
              f"beside {sum(relatives[2]) / len(relatives[2]) * 100:.1f}%, worst {max(relatives[2]) * 100:.1f}%")


main()
