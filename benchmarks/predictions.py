# SPDX-License-Identifier: Apache-2.0
"""Predictions of published runs: the answers of `mpt-plan estimate --requests` to their requests, with the observations."""

import itertools
import json
import os
import pathlib
import subprocess
import tempfile

import records

FRAMEWORKS = os.path.join(records.FOLDER, "..", "frameworks")
CONSTANTS = os.path.join(records.FOLDER, "..", "..", "..", "planner", "cost", "calibration.json")
EVIDENCE = os.path.join(records.FOLDER, "..", "..", "..", "planner", "explain", "evidence.json")
OPEN = ("chunks", "micro_batch", "zero", "recompute")  # fields of a layout that a source may leave open
GIB = 2**30


def answers(programs, requests, *options):
    """mpt-plan's answer to each request; {"error": text} for a request that it cannot price."""
    if not requests:
        return []
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        records.write(requests, file)
        done = subprocess.run([os.path.join(programs, "mpt-plan"), "estimate", "--requests", file.name, *options], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if len(found) != len(requests):
        raise RuntimeError(f"mpt-plan estimate --requests answered {len(found)} of {len(requests)} requests: {done.stderr.strip()}")
    return found


def with_constants(programs, constants, runs):
    """predict() with other values of these constants of the cost model, by name."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(constants, file)
        file.flush()
        return predict(programs, runs, "--calibration", file.name)


def request_of(run):
    """The run's request. Software used by published runs only has its values in its layout, since mpt-plan does not know its name."""
    request = dict(run["request"])
    values = os.path.join(FRAMEWORKS, f"{request['framework']}.json")
    if os.path.exists(values):
        del request["framework"]
        request["layout"] = {**request["layout"], "execution": json.loads(pathlib.Path(values).read_text())}
    return request


# What older releases did otherwise than today's, which frameworks/ describes: nobody set it.
OF_OLDER_RELEASES = {"attention=flash2", "loss_chunks=0", "one_product_of_queries_keys_values=false", "shards_whole_experts=false"}


def as_a_user_asks(run):
    """The run without settings of its software that only its record has: a user names model, machine, layout and framework. What its
    release did otherwise than today's stays."""
    request = run["request"]
    of_release = OF_OLDER_RELEASES | ({"loss=fused", "loss=fp32"} if request["framework"] == "torchtitan" else set())
    return {**run, "request": {**request, "execution": ([setting for setting in request.get("execution", []) if setting in of_release])}}


def even_stages(layers, stages):
    """Like even_stages() in core/layout.cpp. If only one layer less at the ends divides, it is split so, as by most frameworks."""
    if stages > 1 and layers % stages and (layers + 2) % stages == 0:
        each = (layers + 2) // stages
        return [each - 1] + [each] * (stages - 2) + [each - 1]
    first = (stages - layers % stages) // 2
    return [layers // stages + (first <= i < first + layers % stages) for i in range(stages)]


def changed(layout, layers, chunks, micro_batch, zero, recompute):
    other = {**layout, "micro_batch": micro_batch}
    if chunks != layout["chunks"]:
        other |= {"chunks": chunks, "schedule": "interleaved" if chunks > 1 else "1f1b", "recomputed_layers": [],
                  "layers_per_stage": even_stages(layers, layout["pipeline"] * chunks)}
    if zero != layout["zero"]:
        other |= {"zero": zero, "shard": layout["data"] * layout["context"] if zero else 1}
    if recompute != layout["recompute"]:
        other |= {"recompute": recompute, "recomputed_layers": []}
    return other


def other_layouts(run, answer):
    """The layouts that the source leaves open, without the request's own."""
    own, layers = answer["layout"], records.flat(answer["model"])["layers"]
    values = [run.get("unknown", {}).get(field) or [own[field]] for field in OPEN]
    return [other for chosen in itertools.product(*values) if (other := changed(own, layers, *chosen)) != own]


def observed_gib(observed, answer):
    """The predicted peak in the measurement's terms: of tensors, with the allocator's share, or of the whole device. The allocator gives
    its cache back when the device is full."""
    execution, ranks = answer["layout"]["execution"], observed.get("of")
    tensors = max((m["peak_bytes"] for m in answer["prediction"]["memory"] if not ranks or m["rank"] in ranks), default=0) / GIB
    how = observed.get("how", "allocated")
    used = tensors * (1 + execution["allocator_slack"]) + (execution["context_gib"] if how == "device" else 0)
    kept = min(used + tensors * execution["allocator_cache"], answer["cluster"]["device"]["memory_bytes"] / GIB)
    return tensors if how == "allocated" else max(used, kept)


def range_of(answer, others):
    """Whether a layout fits with some values of the open fields, and the shortest and the longest time of those that do. Layouts that do
    not divide the model or the batch cannot have been run: they have no answer."""
    told = [a for a in (answer, *others) if "error" not in a]
    fits = any(a["fits"] for a in told)
    times = [a["prediction"]["step_time_s"] for a in told if a["fits"] or not fits]
    return fits, min(times), max(times)


def line_of(run, answer, others):
    """A run's prediction and observation. "range_s": the source leaves fields open, and they matter."""
    observed, unmodelled = run["observed"], run.get("unmodelled", {})
    line = {"id": run["id"], "family": run["family"], "skipped": None, "out_of_memory": observed.get("out_of_memory", False),
            "unknown": [field for field in OPEN if run.get("unknown", {}).get(field)],
            "measured_iter_time_s": None if "seconds" in unmodelled else observed.get("seconds"),
            "measured_peak_mem_gib": None if "gib" in unmodelled else observed.get("gib")}
    if "error" in answer:
        return line | {"skipped": answer["error"].split("\n")[0], "predicted_iter_time_s": None, "predicted_peak_mem_gib": None}
    layout, prediction, model = answer["layout"], answer["prediction"], records.flat(answer["model"])
    fits, least, most = range_of(answer, others)
    sure = prediction["confidence"]
    tokens = answer["workload"]["global_batch"] * answer["workload"]["sequence"]
    line |= {"predicted_iter_time_s": prediction["step_time_s"], "predicted_peak_mem_gib": observed_gib(observed, answer),
             "model": f"{model['name']} ({model['layers']} layers x {model['hidden']})", "gpu": answer["cluster"]["device"]["name"],
             "framework": layout["execution"]["framework"], "experts": bool(model["moe"]), "precision": layout["precision"],
             "kind": answer["kind"],
             "tokens_per_device": tokens / (layout["tensor"] * layout["context"] * layout["pipeline"] * layout["data"]), "fits": fits,
             "limit_bytes": answer["memory_limit_bytes"], "safe_bytes": answer["safe_bytes"], "memory": prediction["memory"],
             "priced_by": answer["cost"]["source"], "features": answer["features"]}
    if least < most:
        line["range_s"] = [least, most]
    if sure.get("least_s") is not None:
        line["expected_s"] = [sure["least_s"], sure["most_s"]]
    if sure.get("new_in"):
        line["new_in"] = sure["new_in"]
    if sure.get("fits") is not None:
        line["likely_to_fit"] = sure["fits"]
    return line | ({"unmodelled": unmodelled["gib"]} if "gib" in unmodelled else {})


def predict(programs, runs, *options, apart=False):
    """The line of each run. `apart`: the confidence of a prediction uses other sources' runs only."""
    requests = [request_of(run) for run in runs]
    if apart:
        found = [None] * len(runs)
        known = {source["source"] for row in json.loads(pathlib.Path(EVIDENCE).read_text())["runs"] for source in row["sources"]}
        for family in {run["family"] for run in runs}:
            places = [i for i, run in enumerate(runs) if run["family"] == family]
            without = ("--without-source", family) if family in known else ()
            for i, answer in zip(places, answers(programs, [requests[i] for i in places], *without, *options)):
                found[i] = answer
    else:
        found = answers(programs, requests, *options)
    others = [[request | {"layout": layout} for layout in other_layouts(run, answer)] if "error" not in answer else []
              for run, request, answer in zip(runs, requests, found)]
    more = iter(answers(programs, [request for of_run in others for request in of_run], *options))
    return [line_of(run, answer, list(itertools.islice(more, len(of_run)))) for run, answer, of_run in zip(runs, found, others)]
