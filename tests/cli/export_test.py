# SPDX-License-Identifier: Apache-2.0
"""What mpt-plan export writes: every flag and key is one that the framework accepts, files parse, schedules are whole, and what was
exported comes back as the same layout. Compared with tests/golden/export/.

Usage: export_test.py BIN. MPT_UPDATE_GOLDEN=1 writes the golden files again.
"""

import ast
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

BIN = sys.argv[1]
TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KEYS = os.path.join(TESTS, "frameworks/keys")
GOLDEN = os.path.join(TESTS, "golden/export")
FAILED = []
# name: options of mpt-plan, words that warnings must hold
PLANS = {
    "dense": (["--model", "llama3-70b", "--cluster", "dgx-h100:8", "--global-batch", 128, "--tp", 4, "--sp", "on", "--pp", 4,
               "--schedule", "interleaved", "--chunks", 5, "--zero", 1], ["torchtitan has no ZeRO 1"]),
    "zero-bubble": (["--model", "llama3-8b", "--cluster", "dgx-h100:1", "--global-batch", 32, "--pp", 4, "--tp", 1, "--schedule", "zb-v", "--beyond-framework"],
                    ["Megatron-LM has no zb-v schedule; it has 1f1b, interleaved"]),
    "generated": (["--model", "llama3-8b", "--cluster", "dgx-h100:1", "--global-batch", 32, "--pp", 4, "--tp", 1, "--schedule",
                   "generated", "--beyond-framework"], ["Megatron-LM has no generated schedule"]),
    "sharded": (["--model", "llama3-8b", "--cluster", "dgx-a100:2", "--global-batch", 32, "--pp", 1, "--tp", 1, "--zero", 3, "--recompute",
                 "full"], []),
    "experts": (["--model", "mixtral-8x7b", "--cluster", "dgx-h100:4", "--global-batch", 64, "--ep", 8, "--tp", 1, "--pp", 2, "--zero", 1,
                 "--schedule", "interleaved", "--recompute", "none,selective", "--overlap", "gradient-reduce,parameter-gather,transfer,exchange"],
                ["torchtitan has no ZeRO 1"]),
    "exchange": (["--model", "mixtral-8x7b", "--cluster", "dgx-h100:4", "--global-batch", 64, "--ep", 8, "--pp", 2, "--schedule", "1f1b",
                  "--recompute", "full", "--overlap", "transfer,exchange", "--dispatch", "once", "--beyond-framework"],
                 ["overlaps the exchange with experts only with virtual stages"]),
    "latent": (["--model", "deepseek-v2", "--cluster", "dgx-h100:16", "--global-batch", 128, "--seq", 4096, "--ep", 8, "--pp", 4, "--tp", 1,
                "--schedule", "1f1b"], []),
    "context": (["--model", "llama3-8b", "--cluster", "dgx-h100:2", "--global-batch", 8, "--seq", 32768, "--cp", 4, "--cp-method",
                 "all_to_all", "--precision", "fp8"], ["torchtitan has no all_to_all context parallelism"]),
    "blocks": (["--model", "llama3-8b", "--cluster", "dgx-b200:1", "--global-batch", 32, "--tp", 1, "--pp", 1, "--precision", "mxfp8",
                "--framework", "megatron-core"], []),
    "four bits": (["--model", "llama3-8b", "--cluster", "gb300-nvl72:1", "--global-batch", 144, "--tp", 1, "--pp", 1, "--precision", "nvfp4"],
                  ["DeepSpeed does not train llama3-8b in nvfp4"]),
    "fp8": (["--model", "llama3-8b", "--cluster", "dgx-b200:1", "--global-batch", 32, "--tp", 1, "--pp", 1, "--precision", "mxfp8",
             "--framework", "nemo", "--execution", "fp8_attention=true,fp8_head=true,graphs=true"],
            []),
    "limited": (["--model", "gpt-oss-20b", "--cluster", "dgx-h100:1", "--global-batch", 32, "--ep", 8, "--tp", 1, "--pp", 1, "--recompute",
                 "none", "--zero", 1], []),
    "modules": (["--model", "deepseek-v2", "--cluster", "dgx-h100:16", "--global-batch", 128, "--seq", 4096, "--ep", 8, "--pp", 4, "--tp", 1,
                 "--schedule", "1f1b", "--recompute", "selective", "--recompute-modules", "mla_up_proj,moe_act"], []),
    "offload": (["--model", "llama3-8b", "--cluster", "dgx-h100:1", "--global-batch", 64, "--tp", 1, "--pp", 1, "--zero", 1, "--offload", "on"], []),
    "gpt": (["--model", "gpt2-1.5b", "--cluster", "dgx-a100:1", "--global-batch", 64, "--seq", 1024, "--tp", 1, "--pp", 2, "--precision", "fp16"],
            ["torchtitan lacks the type gpt2"]),
}
TARGETS = {"megatron": "megatron-core", "megatron-bridge": "megatron-bridge", "torchtitan": "torchtitan", "deepspeed": "deepspeed",
           "fsdp2": "pytorch", "slurm": "", "kubernetes": ""}


def layers_of(model):
    return sum(run["repeat"] * len(run["of"]) for run in model["layers"]["order"])


def check(what, right, why=""):
    if not right:
        FAILED.append(what)
        print(f"FAILED {what}: {str(why)[:1500]}")


def asked(framework):
    """Settings that a framework's package has."""
    with open(os.path.join(os.path.dirname(TESTS), "frameworks", framework, "asked.json")) as file:
        return {key for keys in json.load(file)["keys"].values() for key in keys}


def accepted(name):
    with open(os.path.join(KEYS, name + ".txt")) as lines:
        return {line.strip() for line in lines if not line.startswith("#")}


def run(*command):
    done = subprocess.run([os.path.join(BIN, "mpt-plan"), *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def check_unwritten(name, model, plan_file):
    """Refuses each target that runs the model and that MPT does not write it for; returns the others."""
    code, output = run("model", model, "--json")
    check(f"{name}, verdicts", code == 0, output)
    verdicts = {row["framework"]: row for row in json.loads(output)["frameworks"]}
    left = []
    for target, framework in TARGETS.items():
        if verdicts.get(framework, {}).get("verdict") != "not_written":
            left.append(target)
            continue
        code, output = run("export", plan_file, "--to", target, "-o", os.path.dirname(plan_file))
        check(f"{name}, no export to {target} yet", code == 2 and "MPT does not write" in " ".join(output.split()) and
              verdicts[framework]["source"] in " ".join(output.split()), output)
    return left


def read(folder, name):
    with open(os.path.join(folder, name)) as file:
        return file.read()


def leaves(tree, prefix=""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, prefix + key + ".")
        else:
            yield prefix + key


def check_megatron(name, folder, flags):
    arguments = read(folder, "megatron_args.txt").split("\n")
    used = {line.split(" ")[0] for line in arguments if line}
    check(f"{name}, Megatron-LM's flags", used <= flags, used - flags)
    check(f"{name}, launch script", subprocess.run(["bash", "-n", os.path.join(folder, "run_megatron.sh")]).returncode == 0)
    check(f"{name}, it can be started", os.access(os.path.join(folder, "run_megatron.sh"), os.X_OK))


def check_bridge(name, folder):
    fields = {"model": accepted("megatron-bridge-model") | accepted("megatron-bridge-provider"), "ddp": accepted("megatron-bridge-ddp"),
              "optimizer": accepted("megatron-bridge-optimizer"), "train": accepted("megatron-bridge-train"),
              "checkpoint": accepted("megatron-bridge") | accepted("megatron-bridge-train"),
              "dist": accepted("megatron-bridge") | accepted("megatron-bridge-train"), "dataset": {"seq_length"},
              "mixed_precision": {"grad_reduce_in_fp32", "fp8_dot_product_attention", "first_last_layers_bf16", "fp8_param",
                                  "reuse_grad_buf_for_mxfp8_param_ag"}}
    text = read(folder, "mpt_layout.py")
    ast.parse(text)
    for path in re.findall(r"^    config\.([a-z_0-9.]+) = ", text, re.M):
        section, _, field = path.partition(".")
        known = field in fields[section] if field else section in accepted("megatron-bridge")
        check(f"{name}, Megatron-Bridge has {path}", known)


def check_schedule(name, folder, plan):
    """PyTorch's rules: each micro-batch goes forward and backward once through each stage, and no action waits for ever."""
    layout = plan["layout"]
    stages = layout["pipeline"] * layout["chunks"]
    micro_batches = plan["workload"]["global_batch"] // layout["data"] // layout["micro_batch"]
    rows = [[re.fullmatch(r"(\d+)([FBIW])(\d+)", cell).groups() for cell in row] for row in csv.reader(open(os.path.join(folder, "schedule.csv")))]
    check(f"{name}, one row per rank", len(rows) == layout["pipeline"], len(rows))
    done, at = set(), [0] * len(rows)

    def ready(stage, kind, batch):
        if kind == "F":
            return stage == 0 or (stage - 1, "F", batch) in done
        if kind == "W":
            return (stage, "I", batch) in done
        return (stage, "F", batch) in done and (stage + 1 == stages or (stage + 1, "G", batch) in done)

    progress = True
    while progress:
        progress = False
        for rank, row in enumerate(rows):
            while at[rank] < len(row):
                stage, kind, batch = int(row[at[rank]][0]), row[at[rank]][1], int(row[at[rank]][2])
                if not ready(stage, kind, batch):
                    break
                done.add((stage, kind, batch))
                if kind in "BI":
                    done.add((stage, "G", batch))  # the gradient of its input
                at[rank] += 1
                progress = True
    check(f"{name}, the schedule ends", all(a == len(r) for a, r in zip(at, rows)), at)
    for kind in "FG":
        check(f"{name}, every {kind}", sum(1 for action in done if action[1] == kind) == stages * micro_batches)


def call_of(tree, name):
    """Keywords of the first call of that function that are literals."""
    call = next(node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == name)
    values = {}
    for keyword in call.keywords:
        try:
            values[keyword.arg] = ast.literal_eval(keyword.value)
        except ValueError:
            values[keyword.arg] = ast.unparse(keyword.value)
    return values


def check_torchtitan(name, folder, plan):
    tree = ast.parse(read(folder, "mpt_torchtitan.py"))
    used = {f"{section}.{key}" for section, call in (("training", "TrainingConfig"), ("parallelism", "ParallelismConfig"), ("compile", "CompileConfig"))
            for key in call_of(tree, call)}
    check(f"{name}, torchtitan's keys", used <= asked("torchtitan"), used - asked("torchtitan"))
    p, layout = call_of(tree, "ParallelismConfig"), plan["layout"]
    product = (p["data_parallel_replicate_degree"] * p["data_parallel_shard_degree"] * p["tensor_parallel_degree"] *
               p["pipeline_parallel_degree"] * p["context_parallel_degree"])
    check(f"{name}, torchtitan's ranks", product == layout["tensor"] * layout["pipeline"] * layout["data"] * layout["context"], product)
    if layout["pipeline"] > 1:
        modules = [m for stage in p["module_fqns_per_model_part"] for m in stage]
        check(f"{name}, each module once", len(modules) == len(set(modules)) == layers_of(plan["model"]) + 3, len(modules))
        check_schedule(name, folder, plan)


def check_others(name, folder, plan, targets):
    config = json.loads(read(folder, "deepspeed.json"))
    used = {part for path in leaves(config) for part in path.split(".")}
    check(f"{name}, DeepSpeed's keys", used <= accepted("deepspeed"), used - accepted("deepspeed"))
    layout = plan["layout"]
    replicas = layout["data"]
    product = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * replicas
    check(f"{name}, DeepSpeed's batch", product == plan["workload"]["global_batch"] == config.get("train_batch_size", product))
    if "fsdp2" in targets:
        ast.parse(read(folder, "mpt_train.py"))
    check(f"{name}, batch file", subprocess.run(["bash", "-n", os.path.join(folder, "job.sbatch")]).returncode == 0)
    check(f"{name}, Kubernetes job", "completionMode: Indexed" in read(folder, "job.yaml"))


def without_predictions(text):
    return re.sub(r", predicted [^\n\"]* per step|PREDICTED_STEP_S = [^\n]*\n", "", text)


def compare_with_golden(name, folder):
    for file in sorted(os.listdir(folder)):
        if file == ".mpt-export" or (file == "schedule.csv" and name != "zero-bubble"):
            continue  # a list of the others' digests; long, and checked above
        text, path = without_predictions(read(folder, file)), os.path.join(GOLDEN, name, file)
        if file == "mpt_train.py":
            text = text[:text.index("\nNAME = ")]  # behind the constants of the plan stand parts that are tested where they run
        if os.environ.get("MPT_UPDATE_GOLDEN"):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            open(path, "w").write(text)
        elif not os.path.exists(path):
            check(f"{name}, golden {file}", False, "missing: run with MPT_UPDATE_GOLDEN=1")
        else:
            golden = open(path).read()
            check(f"{name}, golden {file}", golden == text, f"differs from {path}")


def check_round_trip(name, folder, plan_file, plan, cluster):
    """What Megatron-LM's flags can say comes back."""
    back = os.path.join(folder, "..", name + "-back.json")
    code, output = run("import", os.path.join(folder, "megatron_args.txt"), "--from", "megatron", "--cluster", cluster, "-o", back)
    check(f"{name}, import", code == 0, output)
    if code != 0:
        return
    again = json.load(open(back))
    once = [p["layout"]["execution"].get("deduplicates_dispatch") for p in (plan, again)]
    check(f"{name}, the same dispatch", once[0] == once[1], once)
    differ = {k for k in plan["layout"] if plan["layout"][k] != again["layout"].get(k)}
    check(f"{name}, the same layout", differ <= {"execution", "schedule", "chunks", "layers_per_stage", "recomputed_layers"} or not differ, differ)
    if plan["layout"]["schedule"] in ("1f1b", "interleaved"):
        check(f"{name}, the same stages", not differ & {"schedule", "chunks", "layers_per_stage"}, differ)
        model = {k for k in plan["model"] if k not in ("name", "type", "hub_id") and plan["model"][k] != again["model"].get(k)}
        check(f"{name}, the same model", not model, {k: (plan["model"][k], again["model"].get(k)) for k in model})


def check_start(name, folder, layout):
    """What Megatron-LM asserts of its environment and of an offloaded optimizer (megatron/training/arguments.py)."""
    script = open(os.path.join(folder, "run_megatron.sh")).read()
    arguments = open(os.path.join(folder, "megatron_args.txt")).read()
    several = layout["overlap_exchange"] and layout["tensor"] == layout["context"] == 1
    check(f"{name}, one queue of launches", ("CONNECTIONS:-1}" in script) == (layout["zero"] < 2 and not several), script)
    check(f"{name}, Megatron-FSDP", ("unset CUDA_DEVICE_MAX_CONNECTIONS" in script) == (layout["zero"] > 1), script)
    check(f"{name}, offload", ("--use-precision-aware-optimizer" in arguments) == layout["offload_optimizer"], arguments)


def main():
    flags = {"--" + flag for flag in asked("megatron-core")}
    with tempfile.TemporaryDirectory() as scratch:
        for name, (options, warnings) in PLANS.items():
            plan_file, folder = os.path.join(scratch, name + ".json"), os.path.join(scratch, name)
            code, output = run(*options, "-o", plan_file)
            check(f"{name}, plan", code == 0, output)
            if code != 0:
                continue
            plan = json.load(open(plan_file))
            targets = check_unwritten(name, options[1], plan_file)
            code, output = run("export", plan_file, "--to", ",".join(targets), "-o", folder, "--force")
            check(f"{name}, export", code == 0, output)
            refused, unforced = os.path.join(scratch, "refused"), "warning: " in output
            code, said = run("export", plan_file, "--to", ",".join(targets), "-o", refused)
            check(f"{name}, exit code without --force", code == (2 if unforced else 0) and os.path.exists(refused) != unforced, said)
            shutil.rmtree(refused, ignore_errors=True)
            for words in warnings:
                check(f"{name}, warning {words}", words in output, output)
            check_megatron(name, folder, flags)
            check_start(name, folder, plan["layout"])
            check_bridge(name, folder)
            check_torchtitan(name, folder, plan)
            check_others(name, folder, plan, targets)
            check_round_trip(name, folder, plan_file, plan, options[3])
            if name in ("dense", "zero-bubble"):
                compare_with_golden(name, folder)
        plan_file = os.path.join(scratch, "dense.json")
        for model, package in (("falcon-h1-1.5b", "mamba-ssm"), ("qwen3.5-0.8b", "flash-linear-attention"), ("lfm2-350m", "causal-conv1d"), ("qwen3-0.6b", "")):
            hybrid = os.path.join(scratch, model + ".json")  # of mixers whose kernels are counted
            run("--model", model, "--cluster", "dgx-h100:1", "--global-batch", "16", "--framework", "transformers-fsdp", "-o", hybrid)
            code, output = run("export", hybrid, "--to", "trl", "-o", os.path.join(scratch, model))
            check(f"{model}, kernels", code == 0 and ("layers keep more" in output) == bool(package) and package in output, output)
        code, output = run("export", plan_file, "--to", "megatrn", "-o", scratch)
        check("unknown target", code == 2 and 'did you mean "megatron"' in output, output)
        for alias, name in (("fsdp2", "pytorch"), ("pytorch-fsdp", "pytorch"), ("megatron", "megatron-core"), ("nemo", "megatron-bridge")):
            code, output = run("export", plan_file, "--to", alias, "-o", os.path.join(scratch, alias), "--force")
            check("alias " + alias, code == 0 and "\n" + name + ": " in output, output)
        code, output = run("export", plan_file, "--to", "slurm", "-o", "/proc/none")
        check("folder that cannot be", code == 2 and "-o /proc/none" in output, output)
        wrong = os.path.join(scratch, "wrong.sh")
        small = "--num-layers 4 --hidden-size 512 --num-attention-heads 4 "
        for text, words in (("--num-layers many --hidden-size 8 --num-attention-heads 1", "a whole number"), ("echo", "no --num-layers"),
                            ("--num-layers 4", "no --hidden-size"), (small + "--norm-epsilon nan", "--norm-epsilon"),
                            (small + "--rotary-base 1e4x", "--rotary-base"), (small + "--make-vocab-size-divisible-by 0", "a number from 1 to"),
                            (small + "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*2|t*2'", "--pipeline-model-parallel-layout"),
                            (small + "--decoder-first-pipeline-num-layers 9", "-5 of 4 layers are left over")):
            open(wrong, "w").write(text)
            code, output = run("import", wrong, "--cluster", "dgx-h100:1")
            check(f"import of {text}", code == 2 and words in " ".join(output.split()), output)
        open(wrong[:-3] + ".toml", "w").write("[parallelism]\ntensor_parallel_degree = 2\n")
        code, output = run("import", wrong[:-3] + ".toml", "--cluster", "dgx-h100:1", "--model", "llama3-8b")
        check("import of torchtitan's TOML", code == 2 and "mpt-plan estimate --framework torchtitan" in " ".join(output.split()), output)
        titan = os.path.join(scratch, "titan.py")
        for flavor, exits, words in (("16B", 0, "15.7B parameters"), ("17B", 2, "model deepseek_v3 17B of torchtitan, which is not known")):
            open(titan, "w").write("from torchtitan.models.deepseek_v3 import model_registry\ndef f() -> Trainer.Config:\n"
                                   f"    return Trainer.Config(model_spec=model_registry('{flavor}'))\n")
            code, output = run("import", titan, "--cluster", "dgx-h100:4")
            check(f"import of torchtitan's own {flavor}", code == exits and words in output, output)
        script = os.path.join(scratch, "script.sh")
        open(script, "w").write('LAYERS=32 # of them\nHIDDEN=${WIDTH:-4096}\nARGS=(\n  --num-layers $LAYERS\n  --hidden-size ${HIDDEN} \\\n'
                                '  --num-attention-heads=32 --seq-length "2048"\n  --bf16\n)\n')
        code, output = run("import", script, "--cluster", "dgx-h100:1", "--json")
        check("import of a shell script", code == 0 and json.loads(output[output.index("{"):])["model"]["hidden"] == 4096, output)
        for words, stages in (("--pipeline-model-parallel-layout 'Et|(t|)*2tL'", [1, 1, 1, 1]), ("--decoder-first-pipeline-num-layers 1", [1, 3]),
                              ("--decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 3", [1, 3])):
            open(script, "w").write(small + "--pipeline-model-parallel-size 2 " + words)
            code, output = run("import", script, "--cluster", "dgx-h100:1", "--json")
            held = json.loads(output[output.index("{"):])["layout"]["layers_per_stage"] if code == 0 else []
            check(f"import of {words}", held == stages, output)
        for words, multiple in (("", 128), ("--make-vocab-size-divisible-by 64", 64), ("--padded-vocab-size 50304", 1)):
            open(script, "w").write(small + words)
            code, output = run("import", script, "--cluster", "dgx-h100:1", "--json")
            held = json.loads(output[output.index("{"):])["layout"]["execution"] if code == 0 else {}
            check(f"import of {words}", held.get("vocabulary_multiple", 1) == multiple, output)
        for words, precision in (("--fp4-format e2m1 --fp4-recipe nvfp4", "nvfp4"), ("--fp8-format hybrid", "fp8"), ("--bf16", "bf16")):
            open(script, "w").write(small + words)
            code, output = run("import", script, "--cluster", "dgx-b200:1", "--json")
            held = json.loads(output[output.index("{"):])["layout"]["precision"] if code == 0 else ""
            check(f"import of {words}", held == precision, output)
        open(script, "w").write(small + "--fp8-format e4m3 --fp8-recipe mxfp8 --fp8-output-proj")
        code, output = run("import", script, "--cluster", "dgx-b200:1", "--execution", "fp8_attention=true", "--json")
        held = json.loads(output[output.index("{"):])["layout"]["execution"] if code == 0 else {}
        check("import of a head in fp8, and --execution", held.get("fp8_head") and held.get("fp8_attention"), output)
    print(f"{len(FAILED)} failed" if FAILED else "all exports as they should be")
    return 1 if FAILED else 0


sys.exit(main())
