# SPDX-License-Identifier: Apache-2.0
"""What `mpt-plan tune` chooses on two CPU ranks of this machine, against all layouts of a small grid, which are run several times, in turn.
It is `./scripts/bench tune-ranks`, and no test of the gate: on a busy machine times say nothing, so it ends with 77 there.

Usage: tune_ranks.py FOLDER_OF_PROGRAMS [--repeats N] [--steps N] [--tunings N] [--busy]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

JOB = ["--model", "tiny-gpt", "--cluster", "this-machine:2", "--global-batch", "8", "--seq", "64"]
GRID = [["--dp", "2", "--zero", str(zero), "--micro-batch", str(size)] for zero in (0, 1, 3) for size in (1, 4)] + \
       [["--tp", "2", "--sp", switch, "--micro-batch", "4"] for switch in ("off", "on")] + \
       [["--pp", "2", "--micro-batch", str(size)] for size in (1, 4)]
QUIET, WITHIN = 0.5, 0.03  # load of other programs


def done(*words):
    ended = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if ended.returncode:
        sys.exit(f"{' '.join(map(str, words))}: {ended.stdout}")
    return ended.stdout


def step_s(programs, folder, plan, steps):
    """Median seconds of a step, without the first two."""
    log = os.path.join(folder, "log.jsonl")
    if os.path.exists(log):
        os.remove(log)
    done(f"{programs}/mpt-run", plan, "--data", os.path.join(folder, "text"), "--steps", steps, "--log", log)
    with open(log, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return statistics.median([row["step_time_s"] for row in rows if "step_time_s" in row][2:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--tunings", type=int, default=3)
    parser.add_argument("--busy", action="store_true", help="run on a busy machine, too, to see that it works")
    o = parser.parse_args()
    if not o.busy and os.getloadavg()[0] > QUIET:
        print(f"SKIPPED: other programs have a load of {os.getloadavg()[0]:.1f}; it needs one below {QUIET}")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "text"), "w", encoding="utf-8") as text:
            text.write("".join(chr(32 + n * n % 91) for n in range(1 << 18)))
        plans = []
        for number, options in enumerate(GRID):
            plans.append(os.path.join(folder, f"{number}.json"))
            done(f"{o.programs}/mpt-plan", "estimate", *JOB, *options, "-o", plans[-1])
        times = [[] for _ in GRID]
        for _ in range(o.repeats):  # in turn, so that a busy minute affects all of them
            for plan, found in zip(plans, times):
                found.append(step_s(o.programs, folder, plan, o.steps))
        medians = [statistics.median(found) for found in times]
        best = min(medians)
        noise = statistics.median((max(found) - min(found)) / 2 / statistics.median(found) for found in times)
        for options, median in sorted(zip(GRID, medians), key=lambda row: row[1]):
            print(f"{' '.join(options):44}{median * 1e3:9.2f} ms{median / best - 1:+8.1%}")
        job = os.path.join(folder, "job.json")
        done(f"{o.programs}/mpt-plan", *JOB, "-o", job)
        for number in range(o.tunings):
            tuned = os.path.join(folder, f"tuned{number}.json")
            done(f"{o.programs}/mpt-plan", "tune", job, "--runs", 6, "--steps", o.steps, "--folder", f"{folder}/tune{number}", "-o", tuned)
            chosen = statistics.median(step_s(o.programs, folder, tuned, o.steps) for _ in range(o.repeats))
            kept = chosen <= (1 + noise + WITHIN) * best
            with open(tuned, encoding="utf-8") as file:
                layout = json.load(file)["ranking"][0]["layout"]
            name = " ".join(f"{key}{layout[key]}" for key in ("tensor", "context", "pipeline", "data", "zero", "micro_batch"))
            print(f"tuned: {name}, {chosen / best - 1:+.1%} over the best; {'within' if kept else 'beyond'} the noise of {noise:.1%} and {WITHIN:.0%}")


if __name__ == "__main__":
    main()
