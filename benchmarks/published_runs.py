# SPDX-License-Identifier: Apache-2.0
"""Layouts that experts published against the planner's pick for the same model, cluster and batch.

Usage: published_runs.py FOLDER_OF_PROGRAMS RUNS.json [MOST]
RUNS.json is a list of runs (model, hardware, layout, measured). One run is taken for each model, cluster and batch: the
one that was measured to be the fastest per GPU. Both columns of predictions come from the same cost model, so the pick
can only be slower where the experts' layout needs more memory than this planner grants; such rows are marked.
"""

import json
import os
import subprocess
import sys
import tempfile

CLUSTERS = {"a100-sxm-80gb": "dgx-a100", "a100-sxm-40gb": "dgx-a100-40gb", "h100-sxm-80gb": "dgx-h100",
            "h200-sxm-141gb": "dgx-h200", "b200-sxm-180gb": "dgx-b200"}
PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "mxfp8": "fp8"}


def model_file(m):
    moe = m.get("moe")
    model = {
        "name": m["name"], "layers": m["layers"], "hidden": m["hidden"], "vocab": m.get("vocab") or 51200,
        "max_positions": m["seq_len"], "norm": "rms_norm" if m.get("norm") == "rmsnorm" else "layer_norm",
        "position": "rotary" if m.get("position") in ("rope", "rotary") else "learned", "heads": m["heads"],
        "kv_heads": m.get("kv_heads") or m["heads"], "head_dim": m.get("head_dim") or m["hidden"] // m["heads"],
        "gated_mlp": bool(m.get("gated_mlp")), "activation": "silu" if m.get("gated_mlp") else "gelu_tanh",
        "ffn_hidden": m.get("ffn_hidden") or 4 * m["hidden"], "tied_embeddings": bool(m.get("tied_embeddings"))}
    if moe:
        shared = (moe.get("shared_experts") or 0) * moe["expert_ffn"]
        model["moe"] = {"experts": moe["experts"], "experts_per_token": moe["topk"], "expert_ffn_hidden": moe["expert_ffn"],
                        "shared_ffn_hidden": shared, "shared_gate": False, "router_bias": False,
                        "leading_dense_layers": moe.get("dense_layers") or 0, "layer_interval": 1}
    return model


def usable(run):
    h, l, m = run["hardware"], run["layout"], run["model"]
    known = all(l.get(k) for k in ("tp", "pp", "dp", "micro_batch", "global_batch"))
    return (known and h["gpu"] in CLUSTERS and h["gpus_per_node"] == 8 and h["gpus"] % 8 == 0
            and m.get("attention") != "mla" and m.get("heads") and l.get("recompute") in ("none", "selective", "full")
            and l.get("precision") in PRECISIONS and run["measured"].get("iter_time_s"))


def chosen(runs):
    best = {}
    for run in filter(usable, runs):
        m, h, l = run["model"], run["hardware"], run["layout"]
        key = (m["layers"], m["hidden"], m["seq_len"], h["gpu"], h["gpus"], l["global_batch"], l["precision"])
        if key not in best or run["measured"]["iter_time_s"] < best[key]["measured"]["iter_time_s"]:
            best[key] = run
    return sorted(best.values(), key=lambda r: (r["hardware"]["gpu"], r["hardware"]["gpus"], r["id"]))


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
    m, h, l = run["model"], run["hardware"], run["layout"]
    path = os.path.join(folder, "model.json")
    with open(path, "w") as file:
        json.dump(model_file(m), file)
    problem = ["--model", path, "--cluster", f"{CLUSTERS[h['gpu']]}:{h['gpus'] // 8}", "--global-batch", l["global_batch"],
               "--seq", m["seq_len"], "--precision", PRECISIONS[l["precision"]]]
    chunks = l.get("vpp") or 1
    layout = ["--tp", l["tp"], "--pp", l["pp"], "--cp", l.get("cp") or 1, "--dp", l["dp"], "--micro-batch", l["micro_batch"],
              "--recompute", l["recompute"], "--ep", l.get("ep") or 1]
    # A sharded optimizer needs replicas to share it out over.
    layout += ["--zero", l["zero_stage"]] if l.get("zero_stage") and l["dp"] * (l.get("cp") or 1) > 1 else []
    layout += ["--sp", "on"] if l.get("sequence_parallel") and l["tp"] > 1 else []
    layout += ["--chunks", chunks, "--schedule", "interleaved"] if chunks > 1 and l["pp"] > 1 else []
    return plan(programs, "estimate", *problem, *layout), plan(programs, *problem, "--top", 1)


def main():
    programs, path = sys.argv[1:3]
    with open(path) as file:
        runs = chosen(json.load(file))[:int(sys.argv[3]) if len(sys.argv) > 3 else None]
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
            print(f"| {run['model']['name']} | {run['hardware']['gpus']} {run['hardware']['gpu']} | {name(theirs['layout'])}"
                  f"{' (over memory)' if over else ''} | {run['measured']['iter_time_s']:.3g} | {a:.3g} | {name(ours['layout'])} "
                  f"| {b:.3g} | {(1 - b / a) * 100:+.0f} % |", flush=True)
    print(f"\n{rows} runs; the pick is predicted slower than a layout that fits in {slower} of them; {len(refused)} refused:")
    for line in refused:
        print(f"- {line[:200]}")
    return 1 if slower else 0


sys.exit(main())
