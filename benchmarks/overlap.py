# SPDX-License-Identifier: Apache-2.0
"""The gain of reducing gradients and gathering weights during compute over a slow link. Two network namespaces of this machine act as two
hosts, with one CPU rank on each, data parallel with ZeRO 0 to 3.

Usage: overlap.py FOLDER_OF_PROGRAMS [--quick]. Needs root, ip and tc. Runs take turns; medians of their steps.
--quick has one turn of a smaller model, without sharding only.
"""

import json
import os
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "support"))
from linked_hosts import LinkedHosts, run

BIN = sys.argv[1]
QUICK = "--quick" in sys.argv[2:]
TURNS, STEPS, SHARDING = (1, 3, [0]) if QUICK else (2, 6, [0, 1, 2, 3])
RATE_MBIT = 400
HOSTS = LinkedHosts("mpt-bench", 1, RATE_MBIT * 1e6)
CONFIG = dict(model_type="llama", hidden_act="silu", hidden_size=384, intermediate_size=1024, max_position_embeddings=256,
              num_attention_heads=6, num_hidden_layers=2 if QUICK else 8, num_key_value_heads=6, rms_norm_eps=1e-5, vocab_size=256,
              tie_word_embeddings=False)
SEQUENCE = "64" if QUICK else "256"
BATCH = ("--global-batch", "8", "--seq", SEQUENCE, "--micro-batch", "4", "--tp", "1", "--pp", "1", "--dp", "2", "--recompute", "none")


def main():
    print(f"load before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores; link of {RATE_MBIT} Mbit/s each way")
    print("| ZeRO | waiting: predicted | measured | beside: predicted | measured | won, predicted | measured |\n" + "| --- " * 7 + "|")
    with tempfile.TemporaryDirectory() as scratch:
        model, text, profile, one, cluster = (f"{scratch}/{name}" for name in ("config.json", "text.txt", "profile.json", "one.json",
                                                                              "cluster.json"))
        pathlib.Path(model).write_text(json.dumps(CONFIG))
        pathlib.Path(text).write_text("".join(f"line {i * 7919 % 997} of the text\n" for i in range(2000)))
        run(f"{BIN}/mpt-profile", "--model", model, "--seq", SEQUENCE, "--max-micro-batch", "4", "--max-tensor", "1", "-o", profile,
            *["--quick"] * QUICK)
        planned = (f"{BIN}/mpt-plan", "--model", model, "--profile", profile, *BATCH)
        run(*planned, "--cluster", "this-machine:2", "-o", one)
        HOSTS.write_cluster(one, cluster, ranks_per_host=1)
        for zero in SHARDING:
            plans = []
            for name, overlap in (("waiting", "transfer"), ("beside", "gradient-reduce,parameter-gather,transfer")):
                plans.append(f"{scratch}/zero{zero}-{name}.json")
                run(*planned, "--cluster", cluster, "--zero", zero, "--overlap", overlap, "-o", plans[-1])
            predicted = [json.loads(pathlib.Path(plan).read_text())["prediction"]["step_time_s"] for plan in plans]
            turns = [[HOSTS.step_time(f"{BIN}/mpt-run", plan, text, STEPS, warm_up=2) for plan in plans] for _ in range(TURNS)]
            measured = [statistics.median(column) for column in zip(*turns)]
            won = [1 - times[1] / times[0] for times in (predicted, measured)]
            print(f"| {zero} | {predicted[0]:.3f} s | {measured[0]:.3f} s | {predicted[1]:.3f} s | {measured[1]:.3f} s | {won[0]:.0%} | "
                  f"{won[1]:.0%} |", flush=True)


missing = HOSTS.set_up()
try:
    if missing:
        print(f"no network namespaces with a slow link here: {missing}", file=sys.stderr)
        sys.exit(3)
    main()
finally:
    HOSTS.tear_down()
