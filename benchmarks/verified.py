#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What frameworks hold in a step by mpt.verify, over what MPT predicts. It takes about 15 s for each plan on one core, and no GPU.

Usage: verified.py FRAMEWORK SEED COUNT prints a part of reports/results/verify.md, of drawn layouts that MPT exports, in the framework's Python.
       verified.py layers FRAMEWORK RANK MODELS... prints the bytes of a token that one more repeat of a model's last layers keeps for its backward,
       seen and counted; RANK is that of LoRA adapters, or 0."""

import json
import os
import random
import statistics
import sys

import mpt

ZOO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../models/zoo")
# Models to draw from.
DRAWN = {
    "pytorch": ["llama3.2-1b", "llama3-8b", "qwen3-0.6b", "qwen3-4b", "qwen3-8b", "gpt2-1.5b", "phi4", "qwen2.5-7b", "llama2-13b", "mixtral-8x7b"],
    "transformers-fsdp": ["llama3.2-1b", "llama3-8b", "qwen3-0.6b", "qwen3-8b", "phi4", "qwen2.5-7b", "llama2-13b", "smollm2-1.7b", "olmoe-1b-7b", "mixtral-8x7b"],
    "transformers-ddp": ["llama3.2-1b", "qwen3-0.6b", "smollm2-1.7b", "olmo2-1b", "gemma2-2b", "phi3-mini-128k"],
    "transformers-ddp lora": ["llama3.2-1b", "llama3-8b", "qwen3-0.6b", "qwen3-8b", "qwen2.5-7b", "llama2-13b", "olmo2-7b", "gemma-7b", "phi4", "glm4-9b"],
    "transformers-fsdp lora": ["llama3.2-1b", "llama3-8b", "qwen3-0.6b", "qwen3-8b", "qwen2.5-7b", "llama2-13b", "olmo2-7b", "gemma-7b", "phi4", "glm4-9b"],
    "trl": ["llama3.2-1b", "llama3-8b", "qwen3-0.6b", "qwen3-8b", "qwen2.5-7b", "gemma-7b"],
    "trl nf4": ["llama3.2-1b", "llama3-8b", "qwen3-8b", "qwen2.5-7b", "llama2-13b", "phi4"],
    "trl-ddp nf4": ["llama3.2-1b", "llama3-8b", "qwen3-8b", "qwen2.5-7b", "llama2-13b", "phi4"],
    "automodel": ["llama3.2-1b", "llama3-8b", "qwen3-0.6b", "qwen3-8b", "qwen2.5-7b", "llama2-13b"],
    "torchtitan": ["llama3.2-1b", "llama3-8b", "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "llama2-13b"],
    "torchtitan experts": ["qwen3-30b-a3b", "moonlight-16b-a3b", "deepseek-v2-lite", "mixtral-8x7b"],
}


def verified(framework, request):
    figures = mpt.verify(mpt.estimate(framework=framework, threads=1, **request)).json
    rank = figures["ranks"][figures["fullest"]]
    return rank, {row["name"]: row for row in rank["beside"]}


def cut(name, layers):
    """A model of the zoo with so many layers of its last kind."""
    with open(os.path.join(ZOO, f"{name}.json"), encoding="utf-8") as file:
        model = {**json.load(file), "name": f"{name}-{layers}-layers", "aliases": []}
    for one in model["layers"]["order"][:-1]:
        layers -= one["repeat"] * len(one["of"])
    model["layers"]["order"][-1]["repeat"] = max(1, layers)
    return model


def kept(framework, rank, name):
    """Bytes of a token, by the difference of two models."""
    saved = []
    for repeats in (1, 2):
        with open(os.path.join(ZOO, f"{name}.json"), encoding="utf-8") as file:
            model = {**json.load(file), "name": f"{name}-{repeats}", "aliases": []}
        model["layers"]["order"][-1]["repeat"] = repeats
        tokens = min(2048, model.get("max_positions", 2048))
        _, rows = verified(framework, {"model": model, "cluster": "dgx-h100:1", "gpus": 8, "dp": 8, "micro_batch": 1, "global_batch": 8, "seq": tokens,
                                       "recompute": "none", **({"lora": rank} if rank else {}), "zero": 0 if framework.endswith("ddp") else 3})
        saved.append(rows["saved by a forward of stage 0"])
    return [(saved[1][key] - saved[0][key]) / tokens for key in ("measured_bytes", "predicted_bytes")]


def layers(framework, rank, *names):
    for name in names:
        seen, counted = kept(framework, int(rank), name)
        print(f"{name}: {seen:.0f} bytes seen, {counted:.0f} counted, {seen / counted:.3f}", flush=True)


def draw(kind, rng):
    """A layout of a model with few layers, on up to 32 GPUs, which may be no power of two."""
    model, layers = rng.choice(DRAWN[kind]), rng.choice([4, 6, 8, 12])
    gpus, splits = rng.choice([8, 8, 8, 16, 32, 3, 6, 12]), not kind.startswith(("transformers", "trl", "automodel"))
    pp = rng.choice([one for one in (1, 1, 1, 1, 2, 3, 4) if gpus % one == 0]) if splits else 1
    tp = rng.choice([one for one in (1, 1, 1, 2, 4) if gpus // pp % one == 0]) if splits or kind == "automodel" else 1
    cp = rng.choice([1, 1, 1, 2]) if kind == "pytorch" and gpus // pp // tp % 2 == 0 else 1
    dp, micro_batch, rounds = gpus // pp // tp // cp, rng.choice([1, 1, 2, 4]), rng.choice([1, 2, 4]) * pp
    request = {"model": cut(model, layers), "cluster": f"dgx-h100:{-(-gpus // 8)}", "gpus": gpus, "global_batch": dp * micro_batch * rounds, "dp": dp, "tp": tp, "pp": pp,
               "micro_batch": micro_batch, "seq": 1024 if model.startswith("gpt2") else rng.choice([1024, 2048, 4096]), "zero": rng.choice([2, 3, 3]) if pp == 1 else 2,
               "recompute": rng.choice(["none", "full", "selective"] if "torchtitan" in kind else ["none", "full"]), "sp": rng.choice(["on", "on", "off"]) if tp > 1 else "off"}
    if pp > 1:
        request["schedule"] = rng.choice(["1f1b", "1f1b", "gpipe", "interleaved", "zb-v"])
        request["chunks"] = 2 if request["schedule"] in ("interleaved", "zb-v") else 1
    if kind.endswith(("lora", "nf4")):
        request.update(lora=rng.choice([8, 16, 64]), frozen_weights="nf4" if kind.endswith("nf4") else "bf16")
    if kind == "trl nf4":
        request["execution"] = ["whole_at_start=0"]  # a step does not have the peak of the start, when weights are not sharded yet
    if "ddp" in kind:
        request["zero"] = 0
    if cp > 1:
        request.update(cp=cp, cp_method=rng.choice(["ring", "all_to_all"]))
    if kind == "torchtitan experts":
        ranks = rng.choice([1, 2, 4, 8])
        request.update({"ep": ranks, "etp": 1} if ranks > 1 else {"ep": 1})
    if kind.startswith("torchtitan"):
        request["execution"] = ["elementwise=eager", rng.choice(["loss=chunked", "loss=fp32"])]
    return request


def drawn(kind, seed, count):
    """Layouts that MPT does not plan, export or verify are drawn again."""
    rng, errors, traffic = random.Random(seed), [], []
    print(f"## {kind}, `verified.py '{kind}' {seed} {count}`\n\n| layout | peak, GiB | predicted | ratio | traffic, measured over priced |\n| --- | --- | --- | --- | --- |")
    while len(errors) < count:
        request = draw(kind, rng)
        try:
            rank, rows = verified(kind.split()[0], request)
        except mpt.InputError as error:
            print(error, file=sys.stderr)
            continue
        errors.append(abs(rows["peak"]["ratio"] - 1))
        words = ", ".join(f"{key} {value}" for key, value in request.items() if key not in ("model", "cluster", "global_batch", "execution") and value not in ("none", 1))
        words += "".join(f", {one}" for one in request.get("execution", [])[1:])
        moved = ", ".join(f"{row['name']} {row['ratio'] or 0:.3f}" for row in rank["traffic"])
        traffic += [abs((row["ratio"] or 2) - 1) for row in rank["traffic"]]
        print(f"| {request['model']['name']}, {words} | {rank['peak_bytes'] / 2**30:.1f} | {rank['predicted_peak_bytes'] / 2**30:.1f} | {rows['peak']['ratio']:.3f} | {moved} |",
              flush=True)
    print(f"\n{count} layouts, mean {100 * statistics.mean(errors):.1f} %, median {100 * statistics.median(errors):.1f} %, most {100 * max(errors):.1f} %; "
          f"traffic, {len(traffic)} sums of bytes, mean {100 * statistics.mean(traffic):.1f} %, median {100 * statistics.median(traffic):.1f} %, most {100 * max(traffic):.1f} %\n")


if __name__ == "__main__":
    if sys.argv[1] == "automodel":  # what tests/frameworks puts in the place of modules for GPUs
        sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/frameworks"))
        import stubs
        for stand_in in (stubs.use, stubs.untuned_kernels, stubs.older_fsdp):
            stand_in()
    if sys.argv[1] == "layers":
        layers(*sys.argv[2:])
    else:
        drawn(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
