# SPDX-License-Identifier: Apache-2.0
"""The scripts that compare predictions with published runs (docs/validation.md), on small inputs.

Usage: validation_test.py SOURCES BIN
"""

import glob
import json
import math
import os
import re
import subprocess
import sys
import tempfile

SOURCES, BIN = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
sys.path.insert(0, os.path.join(SOURCES, "benchmarks"))
import orders
import predictions
import records
import scatter
import validate


def check(condition, what):
    if not condition:
        sys.exit(str(what))


def near(a, b):
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


LAYOUT = {"tensor": 2, "pipeline": 2, "data": 2, "chunks": 1, "micro_batch": 1, "zero": 1, "shard": 2, "recompute": "none",
          "precision": "bf16", "schedule": "1f1b", "layers_per_stage": [16, 16]}
REQUEST = {"model": "llama3-8b", "global_batch": 64, "seq": 4096, "framework": "megatron-core", "cluster": "dgx-h100:1"}


def run_of(name="small", layout=None, request=None, **changes):
    return {"id": name, "set": "other", "family": "made-up", "software": "Megatron-LM", "source": {"where": "nobody", "path": "", "version": ""},
            "request": REQUEST | (request or {}) | {"layout": LAYOUT | (layout or {})}, "observed": {"seconds": 9.0}, **changes}


def check_bytes_of_frameworks():
    """Where all published runs of a framework's own software keep other bytes than framework.json says, the file is wrong."""
    titles = {}
    for path in glob.glob(os.path.join(SOURCES, "frameworks", "*", "framework.json")):
        with open(path, encoding="utf-8") as file:
            titles[json.load(file)["title"]] = []
    for run in records.read():
        changed = any(change.split("=")[0] in ("weight_bytes", "gradient_bytes", "optimizer_bytes") for change in run["request"].get("execution", []))
        for title, runs in titles.items():
            if run["software"].startswith(title):
                runs.append(changed)
    for title, runs in titles.items():
        check(not runs or not all(runs), f"all {len(runs)} records of {title} override the bytes of its framework.json")


def check_statistics():
    e = orders.errors([-0.1, 0.3, 0.2, -0.4])
    check(e["runs"] == 4 and near(e["mean"], 0.25) and near(e["median"], 0.25) and near(e["worst"], 0.4) and orders.errors([])["runs"] == 0, e)
    # With one tie in the prediction there are 2 agreeing pairs over sqrt(3 x 2).
    for pairs, tau in (([(1, 10), (2, 20), (3, 30)], 1), ([(1, 30), (2, 20), (3, 10)], -1), ([(1, 10), (2, 30), (3, 20)], 1 / 3),
                       ([(1, 10), (2, 10), (3, 20)], 2 / math.sqrt(6)), ([(1, 1)], 0), ([(1, 20), (1.01, 10), (3, 30)], 1 / 3)):
        check(near(orders.kendall_tau(pairs), tau), pairs)
    check(orders.kendall_tau([(1, 20), (1.01, 10), (3, 30)], 0.02) == 1, "two that are too close count")
    # Two predictions a standard deviation of their difference apart keep their order with probability 0.84.
    apart = math.exp(math.sqrt(2) * 0.02)
    check(abs(orders.reachable_tau([1.0, apart], 0.02) - (2 * 0.841345 - 1)) < 1e-5, "reachable")
    check(near(orders.reachable_tau([1.0, 1.0, 4.0], 0.02), 2 / math.sqrt(6)) and orders.reachable_tau([1.0, 1.0], 0.02) == 0, "ties")
    r = orders.repetition([[0.9, 1.1], [5.0], [3.0, 3.0], [0.99, 1.01], [1.0, 1.0, 3.0]])
    check(r["runs"] == 3 and near(r["difference"], 0.2), r)
    # Half of all pairs of normal values lie within 0.954 standard deviations of each other.
    check(abs(math.erf(0.954 / 2) - 0.5) < 1e-3 and near(orders.scatter(0.954), 1), "scatter")


def check_memory():
    """Peaks of 10, 20 and 5 GiB."""
    execution = {"allocator_slack": 0.1, "allocator_cache": 0.2, "context_gib": 2.0}
    answer = {"layout": {"execution": execution}, "cluster": {"device": {"memory_bytes": 80 * predictions.GIB}},
              "prediction": {"memory": [{"rank": r, "peak_bytes": gib * predictions.GIB} for r, gib in enumerate((10, 20, 5))]}}
    for observed, gib in (({}, 20), ({"of": [0, 2]}, 10), ({"of": [0, 2], "how": "reserved"}, 13), ({"of": [0, 2], "how": "device"}, 15)):
        check(near(predictions.observed_gib(observed, answer), gib), (observed, gib))
    answer["cluster"]["device"]["memory_bytes"] = 14 * predictions.GIB
    check(near(predictions.observed_gib({"of": [0], "how": "device"}, answer), 14), "the cache of a full device is not given back")


def check_open_fields():
    """A range over the layouts that fit and divide the batch, and the request's own prediction. Three sequences do not divide 64."""
    full = {"recompute": "full"}
    runs = [run_of(), run_of(unknown={"recompute": ["none", "full"], "micro_batch": [1, 2, 3]}),
            *(run_of(layout={"recompute": r, "micro_batch": m}) for r in ("none", "full") for m in (1, 2))]
    exact, open_run, *each = predictions.predict(BIN, runs)
    times = [line["predicted_iter_time_s"] for line in each]
    check(open_run["range_s"] == [min(times), max(times)] and open_run["predicted_iter_time_s"] == exact["predicted_iter_time_s"], open_run)
    check("range_s" not in exact and open_run["unknown"] == ["micro_batch", "recompute"], exact)
    large = {"tensor": 1, "data": 4, "shard": 4, "micro_batch": 4}
    kept, fitting, either = predictions.predict(BIN, [run_of(layout=large), run_of(layout=large | full),
                                                      run_of(layout=large, unknown={"recompute": ["none", "full"]})])
    check(not kept["fits"] and fitting["fits"] and either["fits"] and "range_s" not in either, "what does not fit is part of the range")
    chunks, interleaved = predictions.predict(BIN, [run_of(unknown={"chunks": [1, 2]}), run_of(
        layout={"chunks": 2, "schedule": "interleaved", "layers_per_stage": [8] * 4})])
    check(interleaved["predicted_iter_time_s"] in chunks["range_s"], (interleaved, chunks))
    check([predictions.even_stages(*of) for of in ((32, 4), (30, 4), (31, 4), (5, 1))] == [[8] * 4, [7, 8, 8, 7], [8, 8, 8, 7], [5]], "stages")


def check_software_of_published_runs():
    request = predictions.request_of(run_of(request={"framework": "internevo", "execution": ["step_ms=40"]}))
    check("framework" not in request and request["layout"]["execution"]["framework"] == "internevo", request)
    answer, = predictions.answers(BIN, [request])
    used = answer["layout"]["execution"]
    check((used["framework"], used["attention"], used["step_ms"]) == ("internevo", "flash1", 40), used)
    check(predictions.request_of(run_of()) == run_of()["request"], "a product's request is changed")


def check_report():
    runs = [run_of(), run_of("wrong", request={"cluster": "abacus:1"}), run_of("open", unknown={"recompute": ["none", "full"]}),
            run_of("unmodelled", unmodelled={"seconds": "why"}), run_of("failed", observed={"out_of_memory": True}),
            run_of("too-much", layout={"micro_batch": 32}, observed={"out_of_memory": True})]
    found = validate.report(BIN, runs)
    s = found["summary"]
    check([line["skipped"] is None for line in found["runs"]] == [True, False] + [True] * 4, "wrong runs are not told from right ones")
    check(s["skipped"] == 1 and s["all"]["all"]["time"]["runs"] == 1 and s["ranges"]["runs"] == 1, s)
    check(s["out_of_memory"] == {"runs": 2, "accepted": ["failed"]}, s["out_of_memory"])
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        records.write(runs, file)
        done = subprocess.run([sys.executable, os.path.join(SOURCES, "benchmarks/validate.py"), BIN, file.name], stdout=subprocess.PIPE, text=True)
        none = subprocess.run([sys.executable, os.path.join(SOURCES, "benchmarks/validate.py"), BIN, file.name, "--set", "blind", "--json"],
                              stdout=subprocess.PIPE, text=True)
    for words in ("abacus", "1 runs leave fields", "2 runs failed for lack of memory: 1 of their layouts are refused; accepted: failed",
                  "6 runs, 1 skipped", " s to ", "ACCEPTED"):
        check(words in done.stdout, f"no {words!r} in\n{done.stdout}")
    check(done.returncode == 2 and none.returncode == 0 and json.loads(none.stdout)["runs"] == [], done)


def check_picture():
    def heights(groups):
        drawn = scatter.svg("time", [(1.0, 2.0, f"group {g:03}", "point") for g in range(groups)])
        found = [float(y) for y in re.findall(r'cy="([0-9.]+)" r="4"', drawn)]
        return found, f"and {groups - len(found)} others" in drawn

    for groups in (1, 15, 20, 21, 35):
        found, others = heights(groups)
        check(len(found) == groups and found[-1] < scatter.SIZE - 4 and not others, groups)
    found, others = heights(200)
    check(others and len(found) >= 30 and found[-1] < scatter.SIZE - 14 and all(b - a >= 13.9 for a, b in zip(found, found[1:])), found)
    drawn = scatter.svg("a", [(0.0, 1.0, "g", "zero"), (1.0, 2.0, "g", "good & well")])
    check("zero" not in drawn and "good &amp; well" in drawn, drawn)


check_bytes_of_frameworks()
check_statistics()
check_memory()
check_open_fields()
check_software_of_published_runs()
check_report()
check_picture()
print("bytes of frameworks, statistics, memory, open fields, other software, report, picture")
