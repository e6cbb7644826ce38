#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What frameworks hold in a step by mpt.verify, over what MPT predicts. It takes about 20 s for each plan on one core, and no GPU.

Usage: verified.py [NAMES] prints the table of docs/python.md, in a Python with mpt, torch, transformers and accelerate.
verified.py --drawn FRAMEWORK SEED COUNT prints a part of reports/results/verify.md, of drawn layouts that MPT exports, in the framework's Python."""

import os
import random
import statistics
import sys

import mpt

LLAMA = {"model": "llama3-8b", "cluster": "dgx-h100:1", "global_batch": 32}
PLANS = {
    "pytorch, llama3-8b, ZeRO 3": {**LLAMA, "dp": 8, "zero": 3},
    "pytorch, llama3-8b, ZeRO 3, full recompute": {**LLAMA, "dp": 8, "zero": 3, "recompute": "full"},
    "pytorch, llama3-8b, ZeRO 2": {**LLAMA, "dp": 8, "zero": 2},
    "pytorch, llama3-8b, ZeRO 3, 2 tensor ranks, sequence parallel": {**LLAMA, "dp": 4, "tp": 2, "sp": "on", "zero": 3},
    "pytorch, llama3-8b, ZeRO 2, 2 stages, 1f1b": {**LLAMA, "dp": 4, "pp": 2, "zero": 2, "schedule": "1f1b", "recompute": "none"},
    "pytorch, llama3-8b, ZeRO 3, 2 context ranks, 16k tokens": {**LLAMA, "global_batch": 16, "seq": 16384, "dp": 4, "cp": 2, "zero": 3},
    "pytorch, qwen3-8b, ZeRO 3": {**LLAMA, "model": "qwen3-8b", "dp": 8, "zero": 3},
    "pytorch, gpt2-1.5b, ZeRO 3, 1k tokens": {**LLAMA, "model": "gpt2-1.5b", "seq": 1024, "dp": 8, "zero": 3},
    "pytorch, mixtral-8x7b, ZeRO 3": {**LLAMA, "model": "mixtral-8x7b", "dp": 8, "zero": 3},
    "transformers-fsdp, llama3-8b, ZeRO 3": {**LLAMA, "dp": 8, "zero": 3},
    "transformers-fsdp, llama3-8b, ZeRO 3, full recompute": {**LLAMA, "dp": 8, "zero": 3, "recompute": "full"},
    "transformers-fsdp, llama3-8b, ZeRO 2": {**LLAMA, "dp": 8, "zero": 2},
    "transformers-fsdp, qwen3-8b, ZeRO 3": {**LLAMA, "model": "qwen3-8b", "dp": 8, "zero": 3},
    "transformers-fsdp, llama3-70b, ZeRO 3 on 64 GPUs, full recompute": {**LLAMA, "model": "llama3-70b", "cluster": "dgx-h100:8", "global_batch": 64, "dp": 64,
                                                                     "zero": 3, "recompute": "full"},
}
# Models and recomputes to draw from.
DRAWN = {
    "pytorch": (["llama3.2-1b", "llama3-8b", "qwen3-0.6b", "qwen3-4b", "qwen3-8b", "gpt2-1.5b", "phi-4", "qwen2.5-7b", "llama2-13b", "mixtral-8x7b"], ["none", "full"]),
    "transformers-fsdp": (["llama3.2-1b", "llama3-8b", "qwen3-0.6b", "qwen3-4b", "qwen3-8b", "phi-4", "qwen2.5-7b", "llama2-13b", "smollm2-1.7b", "olmoe-1b-7b"],
                          ["none", "full"]),
    "automodel": (["llama3.2-1b", "llama3-8b", "qwen3-0.6b", "qwen3-8b", "qwen2.5-7b", "llama2-13b"], ["none", "full"]),
    "torchtitan": (["llama3.2-1b", "llama3-8b", "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "llama2-13b"], ["none", "full", "selective"]),
    "torchtitan experts": (["qwen3-30b-a3b", "moonlight-16b-a3b", "deepseek-v2-lite", "mixtral-8x7b"], ["none", "full", "selective"]),
}


def verified(framework, request):
    figures = mpt.verify(mpt.estimate(framework=framework, threads=1, **request)).json
    rank = figures["ranks"][figures["fullest"]]
    return rank, {row["name"]: row for row in rank["beside"]}


def draw(kind, rng):
    models, recomputes = DRAWN[kind]
    model, nodes, stages = rng.choice(models), rng.choice([1, 1, 2, 4]), rng.choice([1, 1, 1, 2, 4])
    pp, tp = (1, 1) if kind in ("transformers-fsdp", "automodel") else (stages, rng.choice([1, 1, 1, 2, 4]))
    dp, micro_batch, rounds = nodes * 8 // pp // tp, rng.choice([1, 1, 2, 4]), rng.choice([1, 2, 4]) * pp
    request = {"model": model, "cluster": f"dgx-h100:{nodes}", "global_batch": dp * micro_batch * rounds, "dp": dp, "tp": tp, "pp": pp, "micro_batch": micro_batch,
               "seq": 1024 if model.startswith("gpt2") else rng.choice([1024, 2048, 4096]), "zero": rng.choice([2, 3, 3]) if pp == 1 else 2,
               "recompute": rng.choice(recomputes), "sp": "on" if tp > 1 else "off", **({"schedule": "1f1b"} if pp > 1 else {})}
    if kind == "torchtitan experts":
        ranks = rng.choice([1, 2, 4, 8])
        request.update({"ep": ranks, "etp": 1} if ranks > 1 else {"ep": 1})
    if kind.startswith("torchtitan"):
        request["execution"] = ["elementwise=eager", rng.choice(["loss=chunked", "loss=fp32"])]
    return request


def drawn(kind, seed, count):
    """Layouts that MPT does not plan, export or verify are drawn again."""
    rng, errors = random.Random(seed), []
    print(f"## {kind}, `verified.py --drawn '{kind}' {seed} {count}`\n\n| layout | peak, GiB | predicted | ratio |\n| --- | --- | --- | --- |")
    while len(errors) < count:
        request = draw(kind, rng)
        try:
            rank, rows = verified(kind.split()[0], request)
        except mpt.InputError as error:
            print(error, file=sys.stderr)
            continue
        errors.append(abs(rows["peak"]["ratio"] - 1))
        words = ", ".join(f"{key} {value}" for key, value in request.items() if key not in ("model", "cluster", "sp", "execution") and value != "none")
        words += "".join(f", {one}" for one in request.get("execution", [])[1:])
        print(f"| {request['model']}, {words} | {rank['peak_bytes'] / 2**30:.1f} | {rank['predicted_peak_bytes'] / 2**30:.1f} | {rows['peak']['ratio']:.3f} |", flush=True)
    print(f"\n{count} layouts, mean {100 * statistics.mean(errors):.1f} %, median {100 * statistics.median(errors):.1f} %, most {100 * max(errors):.1f} %\n")


def main():
    if sys.argv[1:2] == ["--drawn"]:
        if sys.argv[2] == "automodel":  # what tests/frameworks puts in the place of modules for GPUs
            sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/frameworks"))
            import stubs
            for stand_in in (stubs.use, stubs.untuned_kernels, stubs.older_fsdp):
                stand_in()
        drawn(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return
    print("| plan | peak, GiB | predicted | ratio | weights, gradients, states | activations | saved by a forward | collectives |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, request in PLANS.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        rank, rows = verified(name.split(",")[0], {"recompute": "none", "micro_batch": 1, **request})
        held = [rows[kind] for kind in ("weights", "gradients", "optimizer states")]
        share = sum(row["measured_bytes"] for row in held) / sum(row["predicted_bytes"] for row in held)
        saved = next(row["ratio"] for key, row in rows.items() if key.startswith("saved"))
        gib = [rank[key] / 2**30 for key in ("peak_bytes", "predicted_peak_bytes")]
        print(f"| {name} | {gib[0]:.1f} | {gib[1]:.1f} | {rows['peak']['ratio']:.3f} | {share:.3f} | {rows['activations, transfers']['ratio']:.3f} | {saved:.3f} | "
              f"{sum(one['count'] for one in rank['collectives']):,} |", flush=True)


if __name__ == "__main__":
    main()
