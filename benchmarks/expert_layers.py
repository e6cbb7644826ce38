#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time of a layer of experts for one micro-batch in published runs of Megatron-Core that name no CUDA graphs, the shortest first: step
time over micro-batches (and the pipeline's fill) and a rank's layers. No cost model is in it. What the device has to do differs by a
factor of three; where the shortest lie together, the host is what they wait for.

    python3 benchmarks/expert_layers.py reports/validation/*_runs.json
"""
import json
import sys


def names_graphs(run):
    text = " ".join((run.get("notes") or "", json.dumps(run.get("recipe") or {}), json.dumps(run["layout"].get("options") or {}))).lower()
    for denied in ("no cuda graph", "cuda graphs off", "without cuda graph", "no graphs"):
        text = text.replace(denied, "")
    return "graph" in text


def milliseconds(run):
    layout, time = run["layout"], run["measured"].get("iter_time_s")
    degrees = [layout.get(name) for name in ("dp", "micro_batch", "global_batch")]
    tables = "performance-summary" in json.dumps(run["source"]) and not run.get("recipe")  # which may have graphs
    megatron = any(word in run["framework"] for word in ("Megatron", "NeMo")) and run["hardware"]["gpu"][0] not in "mv"
    moe = run["model"].get("moe")
    if not (time and all(degrees) and moe and megatron) or tables or names_graphs(run) or moe.get("moe_every", 1) > 1:
        return None
    data, micro_batch, batch = degrees
    stages = layout.get("pp") or 1
    slots = batch / data / micro_batch + (stages - 1) / (layout.get("vpp") or 1)
    return 1e3 * time / slots / (run["model"]["layers"] / stages)


def main():
    runs = [run for path in sys.argv[1:] for run in json.load(open(path))]
    rows = sorted((ms, run["id"]) for run in runs if (ms := milliseconds(run)))
    for ms, name in rows[:20]:
        print(f"{ms:6.2f} ms  {name}")
    print(f"{len(rows)} runs")


if __name__ == "__main__":
    main()
