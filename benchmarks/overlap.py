# SPDX-License-Identifier: Apache-2.0
"""What it wins to reduce gradients and gather weights beside compute, over a slow link: two hosts, as two network
namespaces of this machine, one CPU rank on each, data parallel with ZeRO 0 to 3.

Usage: overlap.py FOLDER_OF_PROGRAMS [MBIT_PER_S]. Needs root, ip and tc. Runs take turns; medians of their steps.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile

BIN = sys.argv[1]
RATE_MBIT = float(sys.argv[2]) if len(sys.argv) > 2 else 400
HOSTS = ("mpt-c", "mpt-d")
TURNS = 2
CONFIG = dict(model_type="llama", hidden_act="silu", hidden_size=384, intermediate_size=1024, max_position_embeddings=256,
              num_attention_heads=6, num_hidden_layers=8, num_key_value_heads=6, rms_norm_eps=1e-5, vocab_size=256,
              tie_word_embeddings=False)
BATCH = ("--global-batch", "8", "--seq", "256", "--micro-batch", "4", "--tp", "1", "--pp", "1", "--dp", "2", "--recompute", "none")


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def set_up():
    for host in HOSTS:
        run("ip", "netns", "add", host)
    run("ip", "link", "add", "mpt1", "netns", HOSTS[0], "type", "veth", "peer", "name", "mpt1", "netns", HOSTS[1])
    for i, host in enumerate(HOSTS):
        inside = ("ip", "netns", "exec", host)
        run(*inside, "ip", "address", "add", f"10.78.0.{i + 1}/24", "dev", "mpt1")
        for device in ("mpt1", "lo"):
            run(*inside, "ip", "link", "set", device, "up")
        run(*inside, "tc", "qdisc", "add", "dev", "mpt1", "root", "tbf", "rate", f"{RATE_MBIT}mbit", "burst", "64kb", "latency", "400ms")


def tear_down():
    for host in HOSTS:
        subprocess.run(["ip", "netns", "del", host], stderr=subprocess.DEVNULL)


def step_time(scratch, plan):
    log = plan + ".jsonl"
    processes = []
    for rank, host in enumerate(HOSTS):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="10.78.0.1", MASTER_PORT="29500")
        processes.append(subprocess.Popen(["ip", "netns", "exec", host, f"{BIN}/mpt-run", plan, "--data", f"{scratch}/text.txt", "--steps",
                                           "6", "--log", log], env=environment, stdout=subprocess.DEVNULL))
    if any([process.wait() for process in processes]):
        sys.exit("a run failed")
    times = [row["step_time_s"] for row in map(json.loads, open(log)) if "step_time_s" in row]
    return statistics.median(times[2:])


def main():
    print(f"load before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores; link of {RATE_MBIT:g} Mbit/s each way")
    print("| ZeRO | waiting: predicted | measured | beside: predicted | measured | won, predicted | measured |\n" + "| --- " * 7 + "|")
    with tempfile.TemporaryDirectory() as scratch:
        model = f"{scratch}/config.json"
        json.dump(CONFIG, open(model, "w"))
        open(f"{scratch}/text.txt", "w").write("".join(f"line {i * 7919 % 997} of the text\n" for i in range(2000)))
        profile = f"{scratch}/profile.json"
        run(f"{BIN}/mpt-profile", "--model", model, "--seq", "256", "--max-micro-batch", "4", "--max-tensor", "1", "-o", profile)
        run(f"{BIN}/mpt-plan", "--model", model, "--cluster", "this-machine:2", "--profile", profile, *BATCH, "-o", f"{scratch}/one.json")
        cluster = json.load(open(f"{scratch}/one.json"))["cluster"]
        inside = dict(cluster["levels"][0], group_size=1)
        link = dict(inside, name="ethernet", group_size=2, latency_s=1e-4, bandwidth_bytes_per_s=RATE_MBIT * 1e6 / 8)
        json.dump(dict(cluster, name="two-hosts", devices_per_node=1, levels=[inside, link]), open(f"{scratch}/cluster.json", "w"))
        for zero in range(4):
            plans = []
            for name, overlap in (("waiting", "transfer"), ("beside", "gradient-reduce,parameter-gather,transfer")):
                plans.append(f"{scratch}/zero{zero}-{name}.json")
                run(f"{BIN}/mpt-plan", "--model", model, "--cluster", f"{scratch}/cluster.json", "--profile", profile, *BATCH, "--zero",
                    zero, "--overlap", overlap, "-o", plans[-1])
            predicted = [json.load(open(plan))["prediction"]["step_time_s"] for plan in plans]
            turns = [[step_time(scratch, plan) for plan in plans] for _ in range(TURNS)]
            measured = [statistics.median(column) for column in zip(*turns)]
            won = [1 - times[1] / times[0] for times in (predicted, measured)]
            print(f"| {zero} | {predicted[0]:.3f} s | {measured[0]:.3f} s | {predicted[1]:.3f} s | {measured[1]:.3f} s | {won[0]:.0%} | "
                  f"{won[1]:.0%} |", flush=True)


tear_down()
set_up()
try:
    main()
finally:
    tear_down()
