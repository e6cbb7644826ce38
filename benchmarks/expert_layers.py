#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time of a layer of experts for one micro-batch in published runs of Megatron-Core without CUDA graphs, the shortest first: step time over
micro-batches (and the pipeline's fill) and a rank's layers. It uses no cost model. The device's work differs by a factor of three. If the
shortest times are about equal, those runs wait for the host.

    python3 benchmarks/expert_layers.py [RUNS.jsonl]
"""

import sys

import records


def has_graphs(request):
    return any(change.startswith(("graphs=true", "expert_layer_us=")) for change in request.get("execution", []))


def milliseconds(run):
    request, seconds = run["request"], run["observed"].get("seconds")
    layout, model = request["layout"], records.model_of(run)
    moe = model.get("moe")
    megatron = request["framework"].startswith("megatron") and run["facts"]["hardware.gpu"][0] not in "mv"
    if not (seconds and moe and megatron) or run.get("unknown") or has_graphs(request) or moe["layers"] != sorted(moe["layers"]):
        return None
    slots = request["global_batch"] / layout["data"] / layout["micro_batch"] + (layout["pipeline"] - 1) / layout["chunks"]
    return 1e3 * seconds / slots / (model["layers"] / layout["pipeline"])


def main():
    rows = sorted((ms, run["id"]) for run in records.read(*sys.argv[1:]) if (ms := milliseconds(run)))
    for ms, name in rows[:20]:
        print(f"{ms:6.2f} ms  {name}")
    print(f"{len(rows)} runs")


if __name__ == "__main__":
    main()
