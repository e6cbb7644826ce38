# SPDX-License-Identifier: Apache-2.0
"""Exit codes of mpt-plan export: what could not run or would be another training is refused and not written, unless it is forced.

Usage: export_codes_test.py BIN
"""

import os
import subprocess
import sys
import tempfile

BIN = os.path.abspath(sys.argv[1])
FAILED = []
DENSE = "--model llama3-8b --cluster dgx-h100:1 --global-batch 32"
PLANS = {
    "readme": "--model llama3-70b --cluster dgx-h100:8 --global-batch 128 --tp 4 --sp on --pp 4 --schedule 1f1b --zero 1",
    "titan": f"{DENSE} --framework torchtitan --tp 1 --pp 1 --cp 1 --zero 3",
    "beyond": "--model gpt2-124m --cluster dgx-h100:1 --global-batch 64 --seq 1024 --tp 1 --pp 2 --dp 4 --schedule zb-h1 --beyond-framework",
    "heads": f"{DENSE} --framework transformers-deepspeed --cp 2 --cp-method all_to_all --zero 3",
    "replicas": f"{DENSE} --framework transformers-deepspeed --cp 1 --zero 3",
    "fsdp": f"{DENSE} --framework transformers-fsdp --cp 1 --zero 3",
    "sinks": "--model gpt-oss-20b --cluster dgx-h100:1 --global-batch 32 --framework torchtitan --zero 3",
    "muon": f"{DENSE} --framework megatron-core --optimizer muon --zero 1",
    "small states": f"{DENSE} --framework transformers-deepspeed --optimizer adamw8 --cp 1",
    "one": "--model llama3.2-1b --cluster dgx-h100:1 --gpus 1 --global-batch 32 --framework transformers-fsdp --zero 1",
}


def run(folder, *words):
    done = subprocess.run([os.path.join(BIN, "mpt-plan"), *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, " ".join(done.stdout.split())


def expect(what, right, said):
    if not right:
        FAILED.append(what)
        print(f"FAILED {what}: {said[:1200]}")


def refused(folder, plan, to, *words):
    """Ends with 2 and writes nothing; forced, it writes and warns."""
    target = os.path.join(folder, "refused")
    code, said = run(folder, "export", f"{plan}.json", "--to", to, "-o", target)
    expect(f"{plan} to {to} is refused", code == 2 and all(word in said for word in words) and "--force" in said, f"{code} {said}")
    expect(f"{plan} to {to} writes nothing", not os.path.exists(target), said)
    forced = os.path.join(folder, f"forced {plan} {to}")
    code, said = run(folder, "export", f"{plan}.json", "--to", to, "-o", forced, "--force")
    expect(f"{plan} to {to}, forced", code == 0 and "warning: " in said and len(os.listdir(forced)) > 1, f"{code} {said}")


def written(folder, plan, to, file, *words):
    target = os.path.join(folder, f"{plan} {to}")
    code, said = run(folder, "export", f"{plan}.json", "--to", to, "-o", target)
    expect(f"{plan} to {to}", code == 0 and "warning: " not in said and all(word in said for word in words), f"{code} {said}")
    expect(f"{plan} to {to} writes {file}", os.path.exists(os.path.join(target, file)), said)
    return target


def needed(folder, plan, to, file, word):
    """Said on the screen, and at the top of the file."""
    target = written(folder, plan, to, file, "needs: ", word)
    with open(os.path.join(target, file), encoding="utf-8") as text:
        expect(f"{plan} to {to}: {file} says it", any(line.startswith("# Needs: ") and word in line for line in text), file)


def own_folders(folder):
    """Without -o nothing is written into the folder where the program runs."""
    before = set(os.listdir(folder))
    for to, name, file in (("megatron,slurm", "megatron-core", "run_megatron.sh"), ("kubernetes", "kubernetes", "job.yaml")):
        code, said = run(folder, "export", "readme.json", "--to", to)
        expect(f"a folder for {to}", code == 0 and os.path.exists(os.path.join(folder, name, file)) and f"{name}/{file}" in said, said)
        expect(f"nothing beside it for {to}", set(os.listdir(folder)) - before <= {"megatron-core", "kubernetes"}, str(os.listdir(folder)))


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name, options in PLANS.items():
            code, said = run(folder, *options.split(), "-o", f"{name}.json")
            expect(f"plan {name}", code == 0, said)
        refused(folder, "readme", "huggingface", "parallelism", "mpt-plan --framework transformers-fsdp")
        refused(folder, "readme", "pytorch", "--to pytorch", "mpt-plan --framework pytorch")
        refused(folder, "readme", "slurm,torchtitan", "torchtitan has no ZeRO 1")
        refused(folder, "beyond", "megatron-core", "zb-h1")
        refused(folder, "heads", "transformers-fsdp", "all_to_all")
        refused(folder, "beyond", "torchtitan", "no plan of this model and way to train would run there")
        for name in ("accelerate", "hf", "transformers-deepspeed"):
            written(folder, "heads", name, "deepspeed.json", "transformers-deepspeed: ")
        written(folder, "replicas", "huggingface", "deepspeed.json", "transformers-deepspeed: ")
        written(folder, "fsdp", "accelerate", "accelerate.yaml", "transformers-fsdp: ")
        written(folder, "one", "transformers-fsdp", "accelerate.yaml")
        written(folder, "titan", "slurm", "job.sbatch")
        needed(folder, "sinks", "torchtitan", "run_torchtitan.sh", "flash_attn_interface")
        needed(folder, "muon", "megatron-core", "run_megatron.sh", "emerging-optimizers")
        needed(folder, "muon", "megatron-bridge", "mpt_layout.py", "emerging-optimizers")
        needed(folder, "small states", "transformers-deepspeed", "run_accelerate.sh", "bitsandbytes")
        needed(folder, "heads", "transformers-deepspeed", "run_accelerate.sh", "position_ids")
        own_folders(folder)
    print(f"{len(FAILED)} failed")
    sys.exit(bool(FAILED))


if __name__ == "__main__":
    main()
