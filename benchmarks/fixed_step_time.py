# SPDX-License-Identifier: Apache-2.0
"""What a step takes beside its micro-batches, from runs of one layout on two numbers of GPUs.

Usage: fixed_step_time.py RUNS.json FAMILY   (reports/validation/other_runs.json alephalpha)

More replicas share one batch, so a step of m micro-batches over p stages takes (m + p - 1) x + fixed, with the same x
and the same gradients to sum. Against the bytes that leave a node for a ring's sum of its fp32 gradients, the fixed part
says what its network carries at most: the optimizer's step and the gathering of weights are in it, too.
docs/validation.md rests on what this prints.
"""

import collections
import json
import statistics
import sys


def stage_parameters(m, pipeline):
    """Of the largest stage: a decoder of gated MLPs and full attention, untied embeddings at both ends."""
    layer = m["hidden"] * (4 * m["heads"] * m["head_dim"] + 3 * m["ffn_hidden"])
    return layer * m["layers"] / pipeline + m["vocab"] * m["hidden"] * (2 if pipeline == 1 else 1)


def main():
    path, family = sys.argv[1:]
    with open(path) as file:
        runs = [r for r in json.load(file) if r["family"] == family and r["measured"].get("iter_time_s")]
    same = collections.defaultdict(dict)
    for r in runs:
        layout = {k: v for k, v in r["layout"].items() if k != "dp"}
        same[json.dumps([r["model"], layout], sort_keys=True)][r["hardware"]["gpus"]] = r
    rates = collections.defaultdict(list)
    for by_gpus in same.values():
        if len(by_gpus) < 2:
            continue
        few, many = by_gpus[min(by_gpus)], by_gpus[max(by_gpus)]
        l, m = few["layout"], few["model"]
        slots = [r["layout"]["global_batch"] // r["layout"]["dp"] // l["micro_batch"] + l["pp"] - 1 for r in (few, many)]
        times = [r["measured"]["iter_time_s"] for r in (few, many)]
        fixed = times[0] - slots[0] * (times[0] - times[1]) / (slots[0] - slots[1])
        sent = 2 * 4 * stage_parameters(m, l["pp"])
        print(f"{m['name']:16} {m['seq_len']:5} tokens tp{l['tp']} pp{l['pp']} mbs{l['micro_batch']}: {times[0]:6.2f} s on "
              f"{few['hardware']['gpus']}, {times[1]:5.2f} s on {many['hardware']['gpus']}; fixed {fixed:5.2f} s, {sent / 1e9:5.1f} GB "
              f"from a node" + (f", {sent / 1e9 / fixed:5.1f} GB/s" if fixed > 0 else ""))
        if fixed > 0:
            rates[many["hardware"]["gpus"] // few["hardware"]["gpus"]].append(sent / 1e9 / fixed)
    for times, found in sorted(rates.items()):
        print(f"{len(found)} pairs on {times} times the GPUs: median {statistics.median(found):.1f} GB/s, "
              f"{min(found):.1f} to {max(found):.1f}")


main()
