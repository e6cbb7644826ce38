# SPDX-License-Identifier: Apache-2.0
"""Draws small requests, and plans and exports them: each case is a folder that exported.py starts. A case follows from its seed and number alone.

Cases that failed, and one or two of each type that AutoModel runs by transformers' classes, are kept in drawn.json, by their name: framework, model, options of mpt-plan, and a phrase of the error that is known of it."""

import json
import os
import random
import shutil
import subprocess

KEPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "drawn.json")
ALL = ("llama", "llama tied", "qwen3", "mixtral")
WINDOWS = ("mistral, window", "gemma3, windows")
MIXED = ("gemma2, soft caps", "bamba, mamba", "nemotron-h, mamba")
# Types that AutoModel runs by transformers' classes: each has a case in drawn.json.
TYPES = ("granite", "starcoder2", "phi", "cohere2, windows", "exaone4", "smollm3", "apertus", "olmo3, windows", "glm", "stablelm", "nemotron", "gpt-neox", "bloom",
         "mpt", "falcon", "gpt-j", "falcon-h1, mamba", "lfm2, convolutions")
# MPT does not read router_aux_loss_coef of these types, so that other exports train a balance loss that config.json has not.
NO_BALANCE = ("qwen3-moe", "gpt-oss, sinks")
EXPERTS = ("mixtral", *NO_BALANCE)
# Where plans share states out in groups, the nodes.
TWO_NODES = os.path.join(os.path.dirname(KEPT), "two_nodes.json")
# Axes that a framework's plans may have, and its models.
FRAMEWORKS = {"pytorch": (("tp", "pp", "cp", "zero", "ep"), ALL), "transformers-fsdp": (("zero",), ALL + WINDOWS + MIXED),
              "transformers-ddp": ((), ALL + WINDOWS + MIXED), "transformers-deepspeed": (("cp", "zero"), ALL + WINDOWS + MIXED),
              "deepspeed": (("cp", "zero"), ALL + WINDOWS + MIXED + NO_BALANCE), "torchtitan": (("tp", "pp", "cp", "zero", "ep"), ALL + ("qwen3-moe",)),
              "automodel": (("tp", "pp", "cp", "zero", "ep"), ALL + ("mistral", "mistral, window", "qwen3-moe")),
              "megatron-core": (("tp", "pp", "cp", "zero", "ep"), ALL + ("mistral, window", "qwen3-moe"))}

# Schedules, and other options of which each is drawn sometimes.
NVIDIA = {"automodel": (["gpipe", "1f1b", "interleaved", "zb-interleaved", "zb-v"], []),
          "megatron-core": (["1f1b", "interleaved"], [[["--masked", "0.5"]], [["--order", "data_outermost"]], [["--recompute", "selective"]], [["--etp", "1"], ["--etp", "2"]],
                                                       [["--overlap", "none"], ["--overlap", "gradient-reduce,transfer"]]])}


def settings(draw, framework, known):
    """What the request leaves to MPT is most of it."""
    pipelines = ["gpipe", "1f1b", "interleaved", "zb-v", "dualpipe-v"] if framework in ("pytorch", "torchtitan") else []
    pipelines += ["zb-interleaved", "zb-h1", "zb-h2", "v-half", "v-min"] if framework == "torchtitan" else []
    chances = [(0.3, ["--recompute", draw.choice(["none", "full"])]), (0.4, ["--micro-batch", str(draw.choice([1, 1, 2]))]),
               (0.3, ["--sp", "on"] if framework == "pytorch" else []), (0.3, ["--cp-method", draw.choice(["ring", "all_to_all"])]),
               (0.6, ["--schedule", draw.choice(pipelines)] if pipelines else []),
               (0.5, ["--execution", "elementwise=eager,loss=fp32"] if framework == "torchtitan" else [])]  # of split backwards, too
    if framework in NVIDIA:
        schedules, more = NVIDIA[framework]
        several, nodes = known.get("--pp", "1") != "1", known["--gpus"] == "4" and draw.random() < 0.5
        chances = [*chances[:2], (0.7, ["--sp", draw.choice(["on", "off"])] if known.get("--tp", "1") != "1" else []), *chances[3:4],
                   (0.8, ["--schedule", draw.choice(schedules)] if several else []), (1.0, ["--cluster", "two_nodes"] if nodes else []),
                   *((0.25, draw.choice(choices)) for choices in more)]
    return [word for chance, words in chances if draw.random() < chance for word in words]


def case(seed, number):
    """Framework, model, and options of mpt-plan."""
    draw = random.Random(f"{seed} {number}")
    framework = draw.choice([*FRAMEWORKS, "pytorch"])
    axes, models = FRAMEWORKS[framework]
    model = draw.choice(models)
    gpus = draw.choice([2, 4])
    options = ["--gpus", str(gpus), "--global-batch", str(gpus * draw.choice([1, 2, 4])), "--seq", str(draw.choice([16, 32, 64]))]
    left = gpus
    if framework in NVIDIA and model not in EXPERTS:
        axes = axes[:-1]
    drawn = draw.sample(axes, min(len(axes), draw.choice([0, 1, 2, 2])))
    if framework == "deepspeed" or "pp" not in drawn and draw.random() < 0.7:  # stages of DeepSpeed have layers of the user
        options += ["--pp", "1"]
    for axis in drawn:
        size = draw.choice([0, 1, 2, 3] if framework != "megatron-core" else [0, 1, 1]) if axis == "zero" else draw.choice([one for one in ((2, 4) if framework in NVIDIA else (1, 2, 4)) if one <= left] or [1])
        left //= size if axis in ("tp", "pp", "cp") else 1
        options += [f"--{axis}", str(size)]
    if framework == "megatron-core" and "zero" not in drawn:  # its FSDP has no road on CPUs
        options += ["--zero", str(draw.choice([0, 1, 1]))]
    more = settings(draw, framework, dict(zip(options[::2], options[1::2])))
    if framework == "transformers-deepspeed" and "cp" in drawn:  # on CPUs labels of several sequences are a view that cannot be flattened
        more = [word for at, word in enumerate(more) if "--micro-batch" not in more[max(at - 1, 0):at + 1]] + ["--micro-batch", "1"]
    return framework, model, options + more


def without_road(row):
    """Phrases of errors that CPU ranks alone raise. With sequence parallelism torchtitan hands on transposed tensors, which NCCL sends as they
    are, and gloo does not. AutoModel has context ranks by Transformer Engine's attention, or by PyTorch's attention of GPUs."""
    several = all(f"{axis} 1 " not in f"{row['layout']} " for axis in ("tensor", "pipeline", "micro_batch"))
    return {"torchtitan": ["input tensor has to be contiguous"] * several,
            "automodel": ["requires the TE attention backend", "attention_for_cpu.default does not have a sharding strategy",
                          *["failed to run forward"] * ("context 1 " not in row["layout"])]}.get(row["framework"], [])


def kept():
    with open(KEPT, encoding="utf-8") as file:
        return json.load(file)


def keep(rows):
    """Adds cases that failed: {name: [framework, model, options]}."""
    lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted({**kept(), **rows}.items())]
    with open(KEPT, "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


def dashes(model):
    return model.replace(", ", "-").replace(" ", "-")


def ran(command):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def export(program, folder, name, framework, model, options, known=""):
    """A row of cases.json; or why there is none, and whether mpt-plan said so rightly."""
    place = os.path.join(folder, name)
    os.makedirs(place)
    shutil.copytree(os.path.join(folder, "models", dashes(model)), os.path.join(place, "model"))
    plan = os.path.join(place, "plan.json")
    # AutoModel's plans with experts are in bf16 alone; they are started in fp32.
    precision = "bf16" if framework == "automodel" and model in EXPERTS else "fp32"
    places = [TWO_NODES if word == "two_nodes" else word for word in options] if "--cluster" in options else ["--cluster", "dgx-h100:1", *options]
    code, said = ran([program, "--model", os.path.join(place, "model", "config.json"), "--framework", framework, "--precision", precision,
                      "--offload", "off", *places, "-o", plan])
    if code == 0:
        code, said = ran([program, "export", plan, "--to", framework, "-o", place, *(["--force"] if known else [])])
        if code == 0:
            with open(plan, encoding="utf-8") as file:
                layout = json.load(file)["layout"]
            ranks = layout["data"] * layout["tensor"] * layout["pipeline"] * layout["context"]
            words = " ".join(f"{key} {layout[key]}" for key in ("data", "tensor", "pipeline", "context", "expert", "zero", "shard", "micro_batch", "schedule", "recompute"))
            return {"case": name, "framework": framework, "model": model, "ranks": ranks, "layout": words}, None, True
    return None, said[:300], code == 2 and said.startswith("mpt-plan: error: ")
