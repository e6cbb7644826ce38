# SPDX-License-Identifier: Apache-2.0
"""Two hosts joined by a slow link, as two network namespaces of this machine: is the planner's choice the fastest?

Plans for a cluster of two nodes with two ranks each and a link of 20 Mbit/s, then trains the choice and what
another split of the same model would be, with one process on each host. Needs root, ip and tc; exits with 77, which
ctest takes for a skip, where they are not at hand.

Usage: two_hosts.py BIN_FOLDER
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

BIN = sys.argv[1]
HOSTS = ("mpt-a", "mpt-b")
RATE_BYTES, LATENCY_S = 2.5e6, 1e-4
CONFIG = dict(model_type="llama", hidden_act="silu", hidden_size=128, intermediate_size=256, max_position_embeddings=64,
              num_attention_heads=4, num_hidden_layers=4, num_key_value_heads=4, rms_norm_eps=1e-5, vocab_size=256,
              tie_word_embeddings=False)
ALTERNATIVES = {"gradients over the link": ("--pp", 1, "--tp", 1), "gradients of halves over the link": ("--pp", 1, "--tp", 2),
                "tensors over the link": ("--pp", 1, "--tp", 4)}


def quiet(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def tear_down():
    if shutil.which("ip") is None:
        return
    for host in HOSTS:
        quiet("ip", "netns", "del", host)


def set_up():
    """The link, or what is missing for it."""
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"no program {tool} (package iproute2)"
    tear_down()
    try:
        commands = [["ip", "netns", "add", host] for host in HOSTS]
        commands.append(["ip", "link", "add", "mpt0", "netns", HOSTS[0], "type", "veth", "peer", "name", "mpt0", "netns", HOSTS[1]])
        for i, host in enumerate(HOSTS):
            inside = ["ip", "netns", "exec", host]
            commands += [inside + ["ip", "address", "add", f"10.77.0.{i + 1}/24", "dev", "mpt0"],
                         inside + ["ip", "link", "set", "mpt0", "up"], inside + ["ip", "link", "set", "lo", "up"],
                         inside + ["tc", "qdisc", "add", "dev", "mpt0", "root", "tbf", "rate", f"{RATE_BYTES * 8:.0f}bit",
                                   "burst", "32kb", "latency", "400ms"]]
        for command in commands:
            done = quiet(*command)
            if done.returncode != 0:
                return f"{' '.join(command)}: {done.stdout.strip()}"
    except FileNotFoundError as error:
        return str(error)
    return None


def plan(scratch, name, *options):
    file = f"{scratch}/{name}.json"
    done = quiet(f"{BIN}/mpt-plan", "--model", f"{scratch}/config.json", "--cluster", f"{scratch}/cluster.json",
                 "--global-batch", "8", "--seq", "32", "-o", file, *[str(word) for word in options])
    if done.returncode != 0:
        sys.exit(done.stdout)
    return file


def write_cluster(scratch):
    """This machine's device, twice, with the link between."""
    file = f"{scratch}/cluster.json"
    quiet(f"{BIN}/mpt-plan", "--model", f"{scratch}/config.json", "--cluster", "this-machine:4", "--global-batch", "8", "--seq",
          "32", "-o", f"{scratch}/one.json")
    cluster = json.load(open(f"{scratch}/one.json"))["cluster"]
    inside = dict(cluster["levels"][0], group_size=2)
    between = dict(inside, name="ethernet", group_size=4, latency_s=LATENCY_S, bandwidth_bytes_per_s=RATE_BYTES)
    json.dump(dict(cluster, name="two-hosts", devices_per_node=2, levels=[inside, between]), open(file, "w"))


def step_time(scratch, file):
    log = f"{file}.jsonl"
    processes = []
    for rank, host in enumerate(HOSTS):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="10.77.0.1", MASTER_PORT="29500")
        processes.append(subprocess.Popen(["ip", "netns", "exec", host, f"{BIN}/mpt-run", file, "--data", f"{scratch}/text.txt",
                                           "--steps", "6", "--log", log, "--timeout", "60"], env=environment, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    for process in processes:
        output = process.communicate(timeout=120)[0]
        if process.returncode != 0:
            sys.exit(output)
    times = [row["step_time_s"] for row in map(json.loads, open(log)) if "step_time_s" in row]
    return statistics.median(times[1:])


def main():
    missing = set_up()
    if missing:
        print(f"SKIPPED: no network namespaces with a slow link here ({missing})")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        json.dump(CONFIG, open(f"{scratch}/config.json", "w"))
        open(f"{scratch}/text.txt", "w").write("".join(f"line {i * 7919 % 997} of the text\n" for i in range(400)))
        write_cluster(scratch)
        chosen = plan(scratch, "chosen")
        best = step_time(scratch, chosen)
        predicted = json.load(open(chosen))["prediction"]["step_time_s"]
        print(f"the planner's choice: {best:.3f} s a step, predicted {predicted:.3f} s")
        for i, (name, options) in enumerate(ALTERNATIVES.items()):
            other = plan(scratch, f"other{i}", *options)
            measured = step_time(scratch, other)
            print(f"{name}: {measured:.3f} s, predicted {json.load(open(other))['prediction']['step_time_s']:.3f} s")
            if not best < measured:
                sys.exit("the planner's choice is not the fastest")
    return 0


try:
    code = main()
finally:
    tear_down()
sys.exit(code)
