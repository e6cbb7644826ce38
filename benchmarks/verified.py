#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of docs/python.md: what frameworks hold in a step by mpt.verify, over what MPT predicts. Usage: verified.py [NAMES], in a Python with
mpt, torch, transformers and accelerate. It takes about 20 s for each plan on one core, and no GPU."""

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


def main():
    print("| plan | peak, GiB | predicted | ratio | weights, gradients, states | activations | saved by a forward | collectives |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, request in PLANS.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        options = {"recompute": "none", "micro_batch": 1, **request}
        figures = mpt.verify(mpt.estimate(framework=name.split(",")[0], threads=1, **options)).json
        rank = figures["ranks"][figures["fullest"]]
        rows = {row["name"]: row for row in rank["beside"]}
        held = [rows[kind] for kind in ("weights", "gradients", "optimizer states")]
        share = sum(row["measured_bytes"] for row in held) / sum(row["predicted_bytes"] for row in held)
        saved = next(row["ratio"] for key, row in rows.items() if key.startswith("saved"))
        gib = [rank[key] / 2**30 for key in ("peak_bytes", "predicted_peak_bytes")]
        print(f"| {name} | {gib[0]:.1f} | {gib[1]:.1f} | {rows['peak']['ratio']:.3f} | {share:.3f} | {rows['activations, transfers']['ratio']:.3f} | {saved:.3f} | "
              f"{sum(one['count'] for one in rank['collectives']):,} |", flush=True)


if __name__ == "__main__":
    main()
