# SPDX-License-Identifier: Apache-2.0
"""An evening with a fine-tuner: a recipe of LLaMA-Factory that runs out of memory on two cards of 24 GB becomes a plan that fits, and a recipe
again, in three commands. tests/frameworks/tuner_judge.py asks LLaMA-Factory itself about such recipes. Then what refused exports say.

Usage: tuner_test.py BIN.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

PROGRAM = os.path.join(os.path.abspath(sys.argv[1]), "mpt-plan")
FAILED = []
RECIPE = """model_name_or_path: Qwen/Qwen2.5-14B-Instruct
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: all
dataset: identity,alpaca_en_demo
template: qwen
cutoff_len: 2048
output_dir: saves/qwen2.5-14b/lora/sft
per_device_train_batch_size: 2
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: cosine
bf16: true
"""


def run(folder, *words):
    done = subprocess.run([PROGRAM, *words], cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def check(what, holds, said=""):
    print(f"{'ok' if holds else 'FAILED'}: {what}")
    if not holds:
        FAILED.append(what)
        print(said[:3000])


def evening(folder):
    with open(f"{folder}/lora.yaml", "w", encoding="utf-8") as file:
        file.write(RECIPE)
    code, said = run(folder, "import", "lora.yaml", "--cluster", "2x4090", "-o", "mine.json")
    check("the recipe does not fit", code == 0 and "DOES NOT FIT" in said, said)
    advice = re.search(r"To see it: mpt-plan estimate --plan PLAN (.*?), of the PLAN that -o wrote", said)
    check("what to type is printed", advice is not None and "--lora" not in advice[1], said)
    if advice is None:
        return
    code, said = run(folder, "estimate", "--plan", "mine.json", *shlex.split(advice[1]), "-o", "plan.json")
    check("the second command plans it", code == 0, said)
    with open(f"{folder}/plan.json", encoding="utf-8") as file:
        plan = json.load(file)
    training = plan["layout"]["training"]
    check("its rank and batch are kept", training["adapter_rank"] == 8 and plan["workload"] == {"global_batch": 32, "sequence": 2048}, str(plan["workload"]))
    check("its weights are in 4 bits", training["frozen_format"] == "nf4", str(training))
    code, said = run(folder, "export", "plan.json", "--to", "llamafactory", "-o", "run")
    check("the third command writes a recipe", code == 0 and os.path.exists(f"{folder}/run/recipe.yaml"), said)
    code, said = run(folder, "import", "run/recipe.yaml", "--cluster", "2x4090", "--check")
    check("which fits", code == 0, said)


def refusals(folder):
    run(folder, "--model", "Qwen/Qwen3-8B", "--cluster", "dgx-h100:1", "--global-batch", "16", "--seq", "4096", "--framework", "transformers-fsdp",
        "--zero", "3", "-o", "full.json")
    code, said = run(folder, "export", "full.json", "--to", "axolotl", "-o", "full")
    check("a refused export ends with 2", code == 2, said)
    check("it says its reason once", said.count("trains weights, gradients and moments in bf16 there") == 1, said)


def main():
    with tempfile.TemporaryDirectory() as folder:
        evening(folder)
        refusals(folder)
    print(f"{len(FAILED)} failed" if FAILED else "all as it should be")
    return int(bool(FAILED))


if __name__ == "__main__":
    sys.exit(main())
