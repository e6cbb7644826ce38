# SPDX-License-Identifier: Apache-2.0
"""Emulated against simulated step times over schedules, stages and micro-batches, as a table in Markdown.

Usage: emulation.py BIN_FOLDER [--quick]. The best of a few emulated steps counts, because load on the machine can only lengthen a sleep.
--quick has one size of each schedule and shorter steps.
"""

import datetime
import json
import os
import subprocess
import sys
import tempfile

BIN = sys.argv[1]
QUICK = "--quick" in sys.argv[2:]
GRID = [(schedule, pipeline, batches)
        for schedule in ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe-v")
        for pipeline, batches in ([(2, 4)] if QUICK else [(2, 4), (4, 8), (8, 16)])]
STEP_S = 0.1 if QUICK else 1.2  # of an emulated step: long compared with a wake-up


def run(*command):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def measure(scratch, schedule, pipeline, batches):
    plan, log = f"{scratch}/plan.json", f"{scratch}/run.jsonl"
    run(f"{BIN}/mpt-plan", "--model", "gpt2-1.5b", "--cluster", "dgx-h100:1", "--ranks", pipeline, "--tp", 1, "--dp", 1,
        "--pp", pipeline, "--schedule", schedule, "--micro-batch", 1, "--global-batch", batches, "--seq", 1024,
        "--framework", "mpt", "--recompute", "none", "-o", plan)
    simulated = json.load(open(plan))["prediction"]["step_time_s"]
    emulated = []
    for _ in range(2):
        run(f"{BIN}/../tests/emulate_plan", plan, "--steps", 3, "--time-scale", STEP_S / simulated, "--log", log)
        emulated += [row["step_time_s"] for row in map(json.loads, open(log)) if "step_time_s" in row]
    return simulated, min(emulated)


def main():
    rows, errors = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for schedule, pipeline, batches in GRID:
            simulated, emulated = measure(scratch, schedule, pipeline, batches)
            errors.append(emulated / simulated - 1)
            rows.append(f"| {schedule} | {pipeline} | {batches} | {simulated * 1e3:.2f} | {emulated * 1e3:.2f} | "
                        f"{errors[-1]:+.2%} |")
    print(f"# Emulated against simulated, {datetime.date.today()}\n")
    print("gpt2-1.5b on H100s, one sequence a micro-batch: the real executor with its threads, queues and meetings of")
    print(f"ranks, durations slept (stretched to about {STEP_S} s a step), beside the simulator. Best of two runs of three steps.")
    print("What threads wake late, up to 5 ms each time, is made up for; anything else that ranks wait for shows.")
    print(f"`./scripts/bench emulation`, {os.cpu_count()} cores.\n")
    print(f"Mean {sum(map(abs, errors)) / len(errors):.2%}, worst {max(map(abs, errors)):.2%} over {len(errors)}.\n")
    print("| schedule | stages' ranks | micro-batches | simulated, ms | emulated, ms | error |")
    print("| --- | --- | --- | --- | --- | --- |")
    print("\n".join(rows))


main()
