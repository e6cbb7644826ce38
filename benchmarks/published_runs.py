# SPDX-License-Identifier: Apache-2.0
"""Layouts that experts published against the planner's pick for the same model, cluster and batch.

Usage: published_runs.py FOLDER_OF_PROGRAMS [MOST]
Both layouts are priced as Megatron-LM runs them. For each model, cluster and batch one run counts: the
fastest one per GPU as measured. Both columns of predictions come from the same cost model, so the pick
planner grants; such rows are marked.
"""

import json
import os
import subprocess
import sys
import tempfile

import records

COMMON = ("model", "cluster", "global_batch", "seq")


def usable(run):
    request = run["request"]
    return (run["observed"].get("seconds") and not run.get("unknown") and not run.get("unmodelled")
            and isinstance(request["cluster"], str) and request["layout"]["precision"] in ("bf16", "fp16", "fp8", "mxfp8"))


def chosen(runs):
    best = {}
    for run in filter(usable, runs):
        key = json.dumps([run["request"][name] for name in COMMON] + [records.precision_of(run)], sort_keys=True)
        if key not in best or run["observed"]["seconds"] < best[key]["observed"]["seconds"]:
            best[key] = run
    return sorted(best.values(), key=lambda r: (r["request"]["cluster"], r["id"]))


def plan(programs, *arguments):
    command = [os.path.join(programs, "mpt-plan"), *map(str, arguments), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip().splitlines()[0]


def name(layout):
    parts = [f"tp{layout['tensor']}" + ("+sp" if layout["sequence_parallel"] else "")]
    parts += [f"cp{layout['context']}"] if layout["context"] > 1 else []
    parts += [f"pp{layout['pipeline']}"] + ([f"x{layout['chunks']}"] if layout["chunks"] > 1 else [])
    parts += [f"dp{layout['data']}"] + ([f"ep{layout['expert']}"] if layout["expert"] > 1 else [])
    parts += [f"zero{layout['zero']}"] if layout["zero"] else []
    parts += [f"mbs{layout['micro_batch']}"] + ([layout["schedule"]] if layout["pipeline"] > 1 else [])
    return " ".join(parts + ([] if layout["recompute"] == "none" else [layout["recompute"]]))


def compare(programs, folder, run):
    request = {name: run["request"][name] for name in COMMON}
    request |= {"framework": "megatron-core", "precision": records.precision_of(run)}
    theirs, ours = (os.path.join(folder, name) for name in ("theirs.json", "ours.json"))
    for path, asked in ((theirs, request | {"layout": run["request"]["layout"], "beyond_framework": True}), (ours, request)):
        with open(path, "w") as file:
            json.dump(asked, file)
    return plan(programs, "estimate", "--request", theirs), plan(programs, "--request", ours, "--top", 1)


def main():
    programs = sys.argv[1]
    runs = chosen(records.read())[:int(sys.argv[2]) if len(sys.argv) > 2 else None]
    print("| model | GPUs | experts' layout | measured s | predicted s | planner's pick | predicted s | gain |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- |")
    rows, slower, refused = 0, 0, []
    with tempfile.TemporaryDirectory() as folder:
        for run in runs:
            theirs, ours = compare(programs, folder, run)
            if isinstance(theirs, str) or isinstance(ours, str):
                refused.append(f"{run['id']}: {theirs if isinstance(theirs, str) else ours}")
                continue
            a, b = theirs["prediction"]["step_time_s"], ours["prediction"]["step_time_s"]
            peak = max(rank["peak_bytes"] for rank in theirs["prediction"]["memory"])
            over = peak > theirs["memory_limit_bytes"]
            rows += 1
            slower += 1 if b > a and not over else 0
            print(f"| {records.model_of(run)['name']} | {run['request']['cluster']} | {name(theirs['layout'])}"
                  f"{' (over memory)' if over else ''} | {run['observed']['seconds']:.3g} | {a:.3g} | {name(ours['layout'])} "
                  f"| {b:.3g} | {(1 - b / a) * 100:+.0f} % |", flush=True)
    print(f"\n{rows} runs; the pick is predicted slower than a layout that fits in {slower} of them; {len(refused)} refused:")
    for line in refused:
        print(f"- {line[:200]}")
    return 1 if slower else 0


sys.exit(main())
