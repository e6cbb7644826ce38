# SPDX-License-Identifier: Apache-2.0
"""Searches of whole spaces with their certificates: seconds and peak memory, and how both grow with the cluster.

Usage: search.py FOLDER_OF_PROGRAMS [--quick]   (--quick has two small searches)
One thread, except in the last lines. Seconds are the search's, from the plan's certificate. user is the process's CPU time, which other
processes lengthen less; memory is its peak.
"""

import json
import os
import subprocess
import sys

CASES = [
    ("gpt3-175b", "dgx-a100:512", 1536, 2048),
    ("llama3-405b", "dgx-h100:2048", 2048, 8192),
    ("llama3-70b", "dgx-h100:1", 512, 4096),
    ("llama3-70b", "dgx-h100:8", 512, 4096),
    ("llama3-70b", "dgx-h100:64", 512, 4096),
    ("llama3-70b", "dgx-h100:512", 4096, 4096),
]
CONFIGS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/models/configs")
LONG_CASES = [
    # 108 layers of three kinds: Mamba-2, attention, experts.
    (os.path.join(CONFIGS, "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16.json"), "dgx-h100:64", 512, 8192),
    ("deepseek-v3", "dgx-h100:256", 15360, 4096),
    ("llama3-405b", "dgx-h100:12500", 25000, 8192),
    ("llama3-70b", "dgx-a100:8+dgx-h100:8@25GB/s@2ms", 512, 4096),
]
# Growth of the cost with one quantity at a time.
GROWTH = [("layers", [("llama3-8b", "dgx-h100:16", 512, 4096), ("llama3-70b", "dgx-h100:16", 512, 4096), ("llama3-405b", "dgx-h100:16", 512, 4096)]),
          ("micro-batches", [("llama3-70b", "dgx-h100:16", b, 4096) for b in (128, 512, 2048, 8192)])]


def search(programs, model, cluster, batch, sequence, threads=1):
    command = [os.path.join(programs, "mpt-plan"), "--model", model, "--cluster", cluster, "--global-batch", str(batch),
               "--seq", str(sequence), "--top", "1", "--threads", str(threads), "--json",
               "--beyond-framework", "--memory-margin", "0"]  # the whole space
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output = process.stdout.read()
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)}\n{errors}")
    return json.loads(output), usage


def main():
    programs, quick = sys.argv[1], "--quick" in sys.argv[2:]
    cases = CASES[2:4] if quick else CASES + LONG_CASES
    print(f"load before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores")
    print(f"{'model':<12} {'cluster':<33} {'batch':>6} {'devices':>8} {'layouts':>13} {'simulated':>9} {'seconds':>8} {'user':>6} "
          f"{'layouts/s':>10} {'memory':>8}  optimal")
    growth = [] if quick else [case for _, some in GROWTH for case in some]
    for model, cluster, batch, sequence in cases + growth:
        plan, usage = search(programs, model, cluster, batch, sequence)
        c = plan["search"]
        name = os.path.basename(model).removesuffix(".json").split("--")[-1][:12]
        print(f"{name:<12} {cluster:<33} {batch:>6} {plan['cluster']['devices']:>8} {c['layouts']:>13,} {c['simulated']:>9,} "
              f"{c['seconds']:>8.2f} {usage.ru_utime:>6.2f} {c['layouts'] / c['seconds'] / 1e6:>8.1f} M "
              f"{usage.ru_maxrss / 1024:>5.0f} MB  {c['optimal']}", flush=True)
    threads = os.cpu_count()
    for model, cluster, batch, sequence in cases[:1] if quick else (CASES[0], LONG_CASES[1]):
        one, _ = search(programs, model, cluster, batch, sequence)
        all_, _ = search(programs, model, cluster, batch, sequence, threads)
        print(f"{model}: {threads} threads {one['search']['seconds'] / all_['search']['seconds']:.2f}x as fast as one")


main()
