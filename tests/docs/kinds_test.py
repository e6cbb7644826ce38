# SPDX-License-Identifier: Apache-2.0
"""Intervals and margins of mpt-plan are those of benchmarks/kinds.py, for kinds with and without records, and the deviations of new
kinds hold as many runs of kinds that are left out as is said.

Usage: kinds_test.py SOURCES BIN
"""

import json
import math
import os
import sys

SOURCES, BIN = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
sys.path.insert(0, os.path.join(SOURCES, "benchmarks"))
import kinds
import predictions

GIB = 2**30


def check(condition, what):
    if not condition:
        sys.exit(str(what))


LAYOUT = {"tensor": 2, "pipeline": 1, "data": 4, "chunks": 1, "micro_batch": 1, "zero": 1, "shard": 4, "recompute": "none", "precision": "bf16",
          "schedule": "1f1b", "layers_per_stage": [32]}


def near(a, b):
    return math.isclose(a, b, rel_tol=1e-9)


def request(framework, changes=(), **fields):
    return {"model": "llama3-8b", "cluster": "dgx-h100:1", "global_batch": 64, "framework": framework, "beyond_framework": True, **fields,
            "layout": {**LAYOUT, **dict(changes)}}


# Requests, and the words for what is new in each.
CASES = [(request("megatron-core"), []),
         (request("megatron-bridge", {"precision": "fp8"}), []),
         (request("deepspeed", lora=16), ["deepspeed"]),
         (request("megatron-bridge", {"precision": "fp8"}, lora=16), []),
         (request("deepspeed", lora=16, frozen_weights="nf4"), ["deepspeed"]),
         (request("megatron-bridge", {"precision": "fp8"}, lora=16, frozen_weights="nf4"), ["QLoRA"]),
         (request("megatron-bridge", {"precision": "mxfp8"}, cluster="dgx-b200:1"), []),
         (request("megatron-bridge", {"tensor": 1, "data": 8, "shard": 8, "expert": 8, "layers_per_stage": [52]}, model="nemotron-3-nano"), [])]


def check_program():
    with open(predictions.EVIDENCE) as file:
        evidence = json.load(file)
    rows, table = evidence["runs"], evidence["new_kinds"]
    check([entry["part"] for entry in table] == list(kinds.PARTS), table)
    requests = [asked for asked, _ in CASES]
    for left_out in ("", "mlperf"):
        without = ("--without-source", left_out) if left_out else ()
        for (asked, new), answer in zip(CASES, predictions.answers(BIN, requests, *without)):
            check("error" not in answer, answer)
            kind, prediction = answer["kind"], answer["prediction"]
            said = prediction["confidence"]
            check(said.get("new_in", []) == new == [value for _, value in kinds.new_parts(kind, rows, left_out)], (asked, said, kind))
            step = kinds.interval(kinds.spread_of(kind, rows, table, "step_time", left_out))
            check(near(said["least_s"], step[0] * prediction["step_time_s"]) and near(said["most_s"], step[1] * prediction["step_time_s"]), (asked, step, said))
            factor = kinds.quantile(kinds.spread_of(kind, rows, table, "peak_memory"), kinds.LIKELY)
            limit = answer["memory_limit_bytes"]
            check(answer["safe_bytes"] == (int(math.floor(10 * limit / factor / GIB) / 10 * GIB) if factor > 1 else limit), (asked, factor))


def source(name, *ratios):
    return {"source": name, "step_time": list(ratios), "peak_memory": list(ratios)}


def check_left_out():
    """Two kinds of layers whose runs take half and twice as long as all others: nothing narrower holds both."""
    plain = [source(f"s{i}", 0.98, 1.0, 1.02) for i in range(8)]
    rows = [{"framework": "f", "sources": plain}, {"framework": "h", "sources": [source(f"h{i}", 1.0) for i in range(3)]},
            {"framework": "f", "precision": ["fp8"], "sources": [source("p", 1.0)]},
            {"framework": "f", "layers": ["slow"], "sources": [source("a", 2.0, 2.0)]},
            {"framework": "f", "layers": ["fast"], "sources": [source("b", 0.5, 0.5)]}]
    runs = kinds.left_out_runs("layers", rows, rows, "step_time")
    added = kinds.least_deviation(runs, "step_time")
    check(kinds.share_held(runs, "step_time", added) == 1 and kinds.share_held(runs, "step_time", added - 0.05) == 0, added)
    check(0.4 < added < 0.8, added)
    table = kinds.measured(rows, {"step_time": rows, "peak_memory": rows})
    check({entry["part"]: entry["step_time"] for entry in table}["layers"] == kinds.of_few(added, 2), table)
    parts = kinds.PARTS[:-1]
    every = [(of, ratios, weight / len(list(kinds.left_out_kinds(part, rows)))) for part in parts for of, ratios, weight in kinds.left_out_runs(part, rows, rows, "step_time")]
    deviation = kinds.least_deviation(every, "step_time")
    check(table[-1]["step_time"] == kinds.of_few(deviation, len(parts)) > kinds.of_few(deviation, len(rows)), (table[-1], "three parts tell of a fourth"))
    check(kinds.of_few(0.2, 100) <= 0.21 < 0.48 == kinds.of_few(0.2, 2), "few kinds tell less")
    new = {"framework": "f", "layers": ["odd"], "precision": ["fp4"]}
    check([part for part, _ in kinds.new_parts(new, rows)] == ["layers", "precision"], kinds.new_parts(new, rows))
    check(kinds.new_parts({"framework": "g", "layers": ["slow"]}, rows) == [("software", "g")], "what other software has is new")
    check(kinds.new_parts({"framework": "f", "layers": ["slow"]}, rows, "a") == [("layers", "slow")], "a source that is left out counts")


check_program()
check_left_out()
print("intervals and margins of the program, kinds that are left out")
