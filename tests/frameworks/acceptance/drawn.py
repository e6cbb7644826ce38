# SPDX-License-Identifier: Apache-2.0
"""Draws plans: model, framework, cluster and options of mpt-plan. A case depends on its seed and number alone, so it can be repeated."""

import json
import os
import random
import re
import subprocess

KEPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "drawn.json")
# GPUs whose capability stubs.gpu() knows: name, GPUs of a node, bytes of a GPU, and the narrow precisions that it has.
CLUSTERS = [("dgx-a100", 8, 80e9, []), ("dgx-h100", 8, 80e9, ["fp8"]), ("dgx-h200", 8, 140e9, ["fp8"]),
            ("dgx-b200", 8, 180e9, ["fp8", "mxfp8", "nvfp4"]), ("gb200-nvl72", 72, 185e9, ["mxfp8", "nvfp4"])]
NAMES = ["megatron", "bridge", "automodel", "torchtitan", "deepspeed", "transformers-deepspeed", "transformers-fsdp"]
STATE_BYTES = 18  # of a parameter that is trained: weight, gradient, fp32 copy and moments
MOST_GPUS = 1152


def zoo(program):
    """Parameters of each model that mpt-plan knows by name."""
    listing = subprocess.run([program, "model", "list"], capture_output=True, text=True, check=True).stdout
    units = {"M": 1e6, "B": 1e9, "T": 1e12}
    found = re.findall(r"^  (\S+) +([0-9.]+)([MBT])  ", listing, re.MULTILINE)
    return {name: float(number) * units[unit] for name, number, unit in found if not name.startswith("tiny-")}


def degrees(draw, devices, name):
    """One to three degrees of parallelism whose product divides the GPUs."""
    words, left = [], devices
    axes = {"deepspeed": ["zero", "pp", "ep", "cp"], "transformers-deepspeed": ["zero", "cp"], "transformers-fsdp": ["cp"]}.get(
        name, ["tp", "pp", "cp", "ep", "zero"])
    for axis in draw.sample(axes, min(len(axes), draw.choice([0, 1, 1, 2, 3]))):
        if axis == "zero":
            words += ["--zero", str(draw.choice([0, 1, 2, 3]))]
            continue
        size = draw.choice([one for one in (1, 2, 4, 8) if left % one == 0])
        words += [f"--{axis}", str(size)]
        left = left if axis == "ep" else left // size
    return words


def settings(draw, narrow):
    """What changes the arithmetic, memory or schedule; each is left to mpt-plan most of the time."""
    chances = [
        (0.25, ["--precision", draw.choice(["bf16", "fp16", "fp32", *narrow, *narrow])]),
        (0.25, ["--recompute", draw.choice(["none", "selective", "full"])]),
        (0.15, ["--micro-batch", str(draw.choice([1, 2, 4]))]),
        (0.12, ["--schedule", draw.choice(["gpipe", "1f1b", "interleaved", "zb-v", "dualpipe-v"])]),
        (0.10, ["--optimizer", draw.choice(["adamw", "sgd", "muon", "adamw8", "adafactor"])]),
        (0.08, ["--offload", "on"]),
        (0.08, ["--sp", draw.choice(["on", "off"])]),
        (0.06, ["--gradients", draw.choice(["bf16", "fp32"])]),
        (0.04, ["--order", "data_outermost"]),
        (0.05, ["--deterministic"]),
    ]
    return [word for chance, words in chances if draw.random() < chance for word in words]


def case(models, seed, number, names=NAMES):
    """The framework and the options of a drawn case."""
    draw = random.Random(f"{seed} {number}")
    name, model = draw.choice(names), draw.choice(sorted(models))
    adapts = name != "megatron" and draw.random() < 0.15
    while True:
        cluster, per_node, memory, narrow = draw.choice(CLUSTERS)
        bytes_of_states = models[model] * (3 if adapts else STATE_BYTES)
        nodes = 1
        while nodes * per_node * memory * 0.5 < bytes_of_states:
            nodes *= 2
        nodes *= draw.choice([1, 1, 2])
        if nodes * per_node <= MOST_GPUS:
            break
    devices = nodes * per_node
    options = ["--model", model, "--cluster", f"{cluster}:{nodes}", "--global-batch", str(devices * draw.choice([1, 2, 4, 8])),
               "--seq", str(draw.choice([1024, 2048, 4096, 4096, 8192, 16384]))]
    options += degrees(draw, devices, name) + settings(draw, narrow)
    return name, options + (["--lora", str(draw.choice([8, 16, 64]))] if adapts else [])


def kept():
    """{framework: {case: options}} of the cases that failed once."""
    with open(KEPT, encoding="utf-8") as file:
        return {name: {case: options.split() for case, options in cases.items()} for name, cases in json.load(file).items()}


def keep(failed):
    """Adds verdicts' cases to those that are kept. Where the zoo has grown, a seed and number name another case than before."""
    with open(KEPT, encoding="utf-8") as file:
        cases = json.load(file)
    for verdict in failed:
        kept, name = cases.setdefault(verdict["framework"], {}), verdict["plan"]
        while kept.get(name, verdict["options"]) != verdict["options"]:
            name += "-again"
        kept[name] = verdict["options"]
    with open(KEPT, "w", encoding="utf-8") as file:
        json.dump(cases, file, indent=1)
        file.write("\n")
