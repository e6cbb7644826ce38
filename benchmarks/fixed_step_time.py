# SPDX-License-Identifier: Apache-2.0
"""The time of a step without its micro-batches, from runs of one layout on two numbers of GPUs.

Usage: fixed_step_time.py RUNS.jsonl   (reports/validation/records/alephalpha.jsonl)

More replicas share one batch. A step of m micro-batches over p stages takes (m + p - 1) x + fixed, with the same x and the same gradients
to sum. The bytes that leave a node in a ring's sum of its fp32 gradients, over the fixed part, give a bound on the network's rate: the
fixed part also has the optimizer's step and the gathering of weights. docs/validation.md uses this output.
"""

import collections
import json
import statistics
import sys

import records


def stage_parameters(m, pipeline):
    """Parameters of the largest stage: a decoder of gated MLPs and full attention, with untied embeddings at both ends."""
    layer = m["hidden"] * (4 * m["heads"] * m["head_dim"] + 3 * m["ffn_hidden"])
    return layer * m["layers"] / pipeline + m["vocab"] * m["hidden"] * (2 if pipeline == 1 else 1)


def gpus_of(run):
    layout = run["request"]["layout"]
    return layout["tensor"] * layout.get("context", 1) * layout["pipeline"] * layout["data"]


def main():
    runs = [r for r in records.read(sys.argv[1]) if r["observed"].get("seconds")]
    same = collections.defaultdict(dict)
    for r in runs:
        layout = {k: v for k, v in r["request"]["layout"].items() if k not in ("data", "shard")}
        same[json.dumps([r["request"]["model"], r["request"].get("execution"), layout], sort_keys=True)][gpus_of(r)] = r
    rates = collections.defaultdict(list)
    for by_gpus in same.values():
        if len(by_gpus) < 2:
            continue
        few, many = by_gpus[min(by_gpus)], by_gpus[max(by_gpus)]
        l, m = few["request"]["layout"], records.model_of(few)
        slots = [r["request"]["global_batch"] // r["request"]["layout"]["data"] // l["micro_batch"] + l["pipeline"] - 1 for r in (few, many)]
        times = [r["observed"]["seconds"] for r in (few, many)]
        fixed = times[0] - slots[0] * (times[0] - times[1]) / (slots[0] - slots[1])
        sent = 2 * 4 * stage_parameters(m, l["pipeline"])
        print(f"{m['name']:16} {few['request']['seq']:5} tokens tp{l['tensor']} pp{l['pipeline']} mbs{l['micro_batch']}: {times[0]:6.2f} s on "
              f"{gpus_of(few)}, {times[1]:5.2f} s on {gpus_of(many)}; fixed {fixed:5.2f} s, {sent / 1e9:5.1f} GB "
              f"from a node" + (f", {sent / 1e9 / fixed:5.1f} GB/s" if fixed > 0 else ""))
        if fixed > 0:
            rates[gpus_of(many) // gpus_of(few)].append(sent / 1e9 / fixed)
    for times, found in sorted(rates.items()):
        print(f"{len(found)} pairs on {times} times the GPUs: median {statistics.median(found):.1f} GB/s, "
              f"{min(found):.1f} to {max(found):.1f}")


main()
