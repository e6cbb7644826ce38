# SPDX-License-Identifier: Apache-2.0
"""What `mpt-plan tune` finds where the time of each layout is known: drawn truths differ from the predictions by a factor for each axis and one
of each layout. Its choice is compared with the fastest of all layouts of a grid, and a tuning that is killed at random moments with one that is not.

Usage: tune.py FOLDER_OF_PROGRAMS [--truths N] [--kills N] [--page FILE]
"""

import argparse
import itertools
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

JOBS = [["--model", "llama3.2-1b", "--cluster", "dgx-h100:1", "--global-batch", "32", "--seq", "2048", "--framework", "megatron-bridge"],
        ["--model", "llama3-8b", "--cluster", "dgx-a100:2", "--global-batch", "64", "--seq", "4096", "--framework", "megatron-bridge"]]
GRID = {"--tp": (1, 2, 4, 8), "--pp": (1, 2, 4), "--micro-batch": (1, 2, 4), "--recompute": ("none", "full")}
RUNS, NOISE, WITHIN = 6, 0.01, 0.03
PRIOR = json.loads((pathlib.Path(__file__).parents[1] / "planner/observe/prior.json").read_text(encoding="utf-8"))["time"]
LEAST = 0.8  # mpt-plan refuses times that the GPUs cannot reach


def factor(layout, truth):
    """Measured over predicted, without noise: as published runs differ from the predictions."""
    def normal(part, *what):
        return PRIOR[part] * random.Random(repr((truth, part, *what))).gauss(0, 1)
    log = normal("all") + normal("layout", json.dumps(layout, sort_keys=True))
    log += sum(normal(f"{axis}_doublings") * math.log2(layout[axis]) for axis in ("tensor", "context", "pipeline", "micro_batch"))
    log += sum(normal(part) for part, holds in (("recompute_full", layout["recompute"] == "full"), ("zero3", layout["zero"] == 3),
                                                ("sequence_parallel", layout["sequence_parallel"])) if holds)
    return max(LEAST, math.exp(log))


def launched(folder, truth):
    """The launcher: prints the log of a run of the plan in the folder."""
    plan = json.loads(pathlib.Path(folder, "plan.json").read_text(encoding="utf-8"))
    seconds = plan["prediction"]["step_time_s"] * factor(plan["layout"], truth) * math.exp(random.Random(repr((plan["layout"], truth))).gauss(0, NOISE))
    for step in range(1, 12):
        print(f" [2026-01-01 00:00:00] iteration {step:8}/ 100 | consumed samples: 1 | elapsed time per iteration (ms): {1000 * seconds:.3f} | "
              f"global batch size: {plan['workload']['global_batch']} | lm loss: 1.0 |")


def planned(program, *words):
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def all_of_grid(program, job):
    """Layouts of the grid that fit, with their predicted seconds."""
    found = []
    for values in itertools.product(*GRID.values()):
        plan = planned(program, "estimate", *job, *[str(word) for pair in zip(GRID, values) for word in pair], "--zero", "1", "--json")
        if plan and plan["prediction"]["step_time_s"] > 0:
            found.append((plan["layout"], plan["prediction"]["step_time_s"]))
    return found


def tune(program, plan, folder, truth, tuned):
    return [program, "tune", plan, "--runs", str(RUNS), "--steps", "10", "--folder", folder, "-o", tuned, "--launch",
            f"{sys.executable} {os.path.abspath(__file__)} --launched {{dir}} {truth}"]


def truths(program, count, scratch):
    rows = []
    for number, job in enumerate(JOBS):
        plan = os.path.join(scratch, f"job{number}.json")
        subprocess.run([program, *job, "-o", plan], check=True, capture_output=True)
        grid = all_of_grid(program, job)
        for truth in map(str, range(number, count, len(JOBS))):
            folder, tuned = os.path.join(scratch, "of" + truth), os.path.join(scratch, truth + ".json")
            subprocess.run(tune(program, plan, folder, truth, tuned), check=True, capture_output=True)
            choice = json.loads(pathlib.Path(tuned).read_text(encoding="utf-8"))["corrected"]["layouts"][0]
            best = min(predicted * factor(of, truth) for of, predicted in grid)
            first = json.loads(pathlib.Path(folder, "run-1/plan.json").read_text(encoding="utf-8"))
            rows.append({"job": job[1], "layouts": len(grid), "runs": len(pathlib.Path(folder, "journal.jsonl").read_text(encoding="utf-8").splitlines()),
                         "untuned": first["prediction"]["step_time_s"] * factor(first["layout"], truth) / best - 1, "tuned": choice["predicted_s"] * factor(choice["layout"], truth) / best - 1})
    return rows


def kills(program, count, scratch):
    """Kills until so many have hit; returns whether the journal is that of a tuning that nobody killed."""
    plan, hits, moments = os.path.join(scratch, "job0.json"), 0, random.Random(1)
    journals = {}
    for name in ("whole", "killed"):
        folder = os.path.join(scratch, name)
        command = tune(program, plan, folder, "0", os.path.join(scratch, "end.json"))
        while name == "killed" and hits < count:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                process.wait(moments.uniform(0.0, 0.6))
                pathlib.Path(folder, "journal.jsonl").unlink()  # it has ended: from the beginning
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                hits += 1
        subprocess.run(command, check=True, capture_output=True)
        lines = pathlib.Path(folder, "journal.jsonl").read_text(encoding="utf-8").splitlines()
        journals[name] = [json.loads(line)["layout"] for line in lines]
    return journals["whole"] == journals["killed"]


def page(rows, same, count):
    kept = sum(row["tuned"] <= WITHIN + NOISE for row in rows)
    lines = ["# Choices of `mpt-plan tune` where the truth is known", "", "Written by `./scripts/bench tune --page FILE`. A launcher answers with drawn step times: "
             "the predicted time, with factors as",
             f"published runs differ from their predictions (planner/observe/prior.json), and noise of {NOISE:.0%}. \"Over the best\": the true time of a layout over that of the fastest in a grid.",
             "", "| model | layouts of the grid that fit | runs | the plan, over the best | the choice, over the best |", "| --- | ---: | ---: | ---: | ---: |"]
    lines += [f"| {row['job']} | {row['layouts']} | {row['runs']} | {row['untuned']:+.1%} | {row['tuned']:+.1%} |" for row in rows]
    lines += ["", f"In {kept} of {len(rows)} cases the choice is within the noise plus {WITHIN:.0%} of the best, after at most {RUNS} runs. A tuning that was killed "
              f"{count} times at", f"random moments ended with {'the same runs as' if same else 'other runs than'} one that was not."]
    return "\n".join(lines) + "\n"


def main():
    if sys.argv[1:2] == ["--launched"]:
        launched(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--truths", type=int, default=20)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--page")
    asked = parser.parse_args()
    program = os.path.join(asked.programs, "mpt-plan")
    with tempfile.TemporaryDirectory() as scratch:
        text = page(truths(program, asked.truths, scratch), kills(program, asked.kills, scratch), asked.kills)
    if asked.page:
        pathlib.Path(asked.page).write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
