# SPDX-License-Identifier: Apache-2.0
"""Compares the weights that train in a plan with adapters with those that PEFT trains by the recipe for TRL that is exported of it.
The layers' classes that classes.json has accelerate wrap are those of models that lack a class of their own list.

Usage: adapter_names_test.py PROGRAMS [--all | NAMES]. PROGRAMS is the folder of mpt-plan; it runs in the Python that has transformers and peft
(build/frameworks, or MPT_FRAMEWORKS). Exit code 77: these are not installed, which is said.

NAMES are of the zoo, SAMPLE by default; --all: the smallest model of each type. Each is cut to one repeat of its layers, and has no data on meta."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ZOO = pathlib.Path(__file__).resolve().parents[2] / "models/zoo"
SKIPPED = 77
RANK = 16
SAMPLE = ["gpt2-124m", "pythia-1.4b", "opt-30b", "falcon-7b", "replit-code-v1-3b", "gpt-j-6b", "phi3-mini-128k", "phi-1.5", "starcoder2-3b", "lfm2-350m", "smollm2-135m",
          "deepseek-v2-lite", "qwen3-30b-a3b-2507", "qwen1.5-moe-a2.7b", "mixtral-8x7b", "deepseek-v4-flash", "glm-4.6v-flash", "qwen3.5-0.8b"]
OWN_INPUTS = "each of a mixer's several products has an adapter of its own, and the plan has one for all"
GATE = "the plan's queries have the gate on the output of attention, which is a module without adapters"
MAMBA = "PEFT refuses adapters on Mamba's out_proj, which the plan has"
# Types of which MPT writes no config.json, or that transformers lacks.
UNWRITTEN = ["exaone_moe", "minimax_m3", "muse_glimmer_text", "nemotron-nas"]
# By type: why the counts differ, and by which share of the plan's at most.
EXCEPTIONS = {
    "qwen3_5_text": (OWN_INPUTS, 0.1),
    "qwen3_5_moe_text": (OWN_INPUTS, 0.2),
    "qwen3_next": (OWN_INPUTS, 0.1),
    "kimi_linear": (OWN_INPUTS, 0.16),
    "falcon_h1": (MAMBA, 0.2),
    "nemotron_h": (MAMBA, 0.3),
    "afmoe": (GATE, 0.14),
    "laguna": (GATE, 0.01),
    "step3p5": (GATE, 0.01),
}


def smallest_of_types():
    models = {}
    for file in sorted(ZOO.glob("*.json")):
        model = json.loads(file.read_text())
        if "type" in model and (model["type"] not in models or model["hidden"] < models[model["type"]][0]):
            models[model["type"]] = (model["hidden"], file.stem)
    return [name for _, name in models.values()]


def cut(name):
    model = json.loads((ZOO / f"{name}.json").read_text())
    model["layers"]["order"][-1]["repeat"] = 1
    return {**model, "name": f"{name}-cut", "aliases": []}


def exported(program, model, folder):
    """The recipe, and the numbers of weights that train in the plan. None: MPT writes no config.json of the model, or no plan."""
    file, plan = os.path.join(folder, "model.json"), os.path.join(folder, "plan.json")
    with open(file, "w", encoding="utf-8") as text:
        json.dump(model, text)
    commands = [[program, "estimate", "--model", file, "--framework", "transformers-ddp", "--cluster", "dgx-h100:1", "--gpus", "1", "--dp", "1", "--global-batch", "1",
                 "--micro-batch", "1", "--seq", "512", "--recompute", "none", "--lora", str(RANK), "-o", plan],
                [program, "export", plan, "--to", "trl", "-o", folder, "--force"]]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not os.path.isfile(plan) or (command is commands[-1] and not os.path.isfile(os.path.join(folder, "config.json"))):
            return None, " ".join(done.stderr.split())[:160]
    import yaml
    with open(os.path.join(folder, "sft.yaml"), encoding="utf-8") as text:
        recipe = yaml.safe_load(text)
    with open(plan, encoding="utf-8") as text:
        return recipe, json.load(text)["prediction"]["memory"][0]["gradient_bytes"] // 4


def wrapped(model):
    """The class to wrap, as classes.json should have it: of layers in the model, and only where accelerate would not find another one."""
    classes = {type(module).__name__ for module in model.modules()}
    listed = set(model._no_split_modules or [])
    return "" if listed <= classes else " ".join(listed & classes)


def trained(recipe, folder):
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoConfig, AutoModelForCausalLM
    targets = recipe["lora_target_modules"]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(os.path.join(folder, "config.json")), dtype=torch.bfloat16)
        wraps = wrapped(model)
        model = get_peft_model(model, LoraConfig(r=recipe["lora_r"], target_modules=targets[0] if len(targets) == 1 else targets, task_type="CAUSAL_LM"))
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad), wraps


def compare(program, name):
    """Whether it is as it should be, and what was seen."""
    model = cut(name)
    with tempfile.TemporaryDirectory() as folder:
        recipe, planned = exported(program, model, folder)
        if recipe is None:
            return model["type"] in UNWRITTEN, f"not exported: {planned}"
        try:
            seen, wraps = trained(recipe, folder)
        except ValueError as error:
            return False, f"{recipe['lora_target_modules']}: {error}"
    known = [layer for layer, types in json.loads((ZOO.parents[1] / "frameworks/transformers/classes.json").read_text())["wrapped"].items() if model["type"] in types]
    if [*filter(None, [wraps])] != known:
        return False, f"accelerate is told to wrap {known}, and the model's own list needs \"{wraps}\""
    reason, most = EXCEPTIONS.get(model["type"], ("", 0.0))
    said = f"{seen} weights train, {planned} are planned"
    if seen == planned:
        return not reason, said + (", so that it is no exception" if reason else "")
    return abs(seen - planned) <= most * planned, f"{said} by {recipe['lora_target_modules']}" + (f": {reason}" if reason else "")


def main():
    try:
        import peft
        import transformers
    except ImportError:
        print("adapter names: skipped, because this Python has no transformers or no peft")
        return SKIPPED
    print(f"peft {peft.__version__}, transformers {transformers.__version__}")
    transformers.logging.set_verbosity_error()
    program = os.path.join(os.path.abspath(sys.argv[1]), "mpt-plan")
    names = smallest_of_types() if sys.argv[2:] == ["--all"] else sys.argv[2:] or SAMPLE
    failed = 0
    for name in names:
        right, seen = compare(program, name)
        failed += not right
        print(f"{'ok' if right else 'FAILED'}: {name}: {seen}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
