# SPDX-License-Identifier: Apache-2.0
"""Two hosts joined by a slow link, as two network namespaces of this machine: is the planner's choice the fastest?

Plans for a cluster of two nodes with two ranks each and a link of 20 Mbit/s, then trains the choice and what
another split of the same model would be, with one process on each host. Needs root, ip and tc; exits with 77, which
ctest takes for a skip, where they are not at hand.

Usage: two_hosts.py BIN_FOLDER
"""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from linked_hosts import LinkedHosts, run

BIN = sys.argv[1]
HOSTS = LinkedHosts("mpt-test", 0, bits_per_s=20e6)
CONFIG = dict(model_type="llama", hidden_act="silu", hidden_size=128, intermediate_size=256, max_position_embeddings=64,
              num_attention_heads=4, num_hidden_layers=4, num_key_value_heads=4, rms_norm_eps=1e-5, vocab_size=256,
              tie_word_embeddings=False)
ALTERNATIVES = {"gradients over the link": ("--pp", 1, "--tp", 1), "gradients of halves over the link": ("--pp", 1, "--tp", 2),
                "tensors over the link": ("--pp", 1, "--tp", 4)}


def plan(scratch, name, cluster, *options):
    file = f"{scratch}/{name}.json"
    run(f"{BIN}/mpt-plan", "--model", f"{scratch}/config.json", "--cluster", cluster, "--global-batch", "8", "--seq", "32", "-o", file,
        *options)
    return file


def step_time(scratch, file):
    return HOSTS.step_time(f"{BIN}/mpt-run", file, f"{scratch}/text.txt", steps=6, warm_up=1)


def predicted_step_time(file):
    with open(file) as opened:
        return json.load(opened)["prediction"]["step_time_s"]


def main():
    missing = HOSTS.set_up()
    if missing:
        print(f"SKIPPED: no network namespaces with a slow link here ({missing})")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        with open(f"{scratch}/config.json", "w") as file:
            json.dump(CONFIG, file)
        with open(f"{scratch}/text.txt", "w") as file:
            file.write("".join(f"line {i * 7919 % 997} of the text\n" for i in range(400)))
        cluster = f"{scratch}/cluster.json"
        HOSTS.write_cluster(plan(scratch, "one", "this-machine:4"), cluster, ranks_per_host=2)
        chosen = plan(scratch, "chosen", cluster)
        best = step_time(scratch, chosen)
        print(f"the planner's choice: {best:.3f} s a step, predicted {predicted_step_time(chosen):.3f} s")
        for i, (name, options) in enumerate(ALTERNATIVES.items()):
            other = plan(scratch, f"other{i}", cluster, *options)
            measured = step_time(scratch, other)
            print(f"{name}: {measured:.3f} s, predicted {predicted_step_time(other):.3f} s")
            if not best < measured:
                sys.exit("the planner's choice is not the fastest")
    return 0


try:
    code = main()
finally:
    HOSTS.tear_down()
sys.exit(code)
