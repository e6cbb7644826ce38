# SPDX-License-Identifier: Apache-2.0
"""Hostile and odd inputs of mpt-plan: names that would become commands, numbers that nothing can be, outputs in the place of inputs,
signals at bad moments. Each is refused with exit code 2 and the place named, or does no harm.

Usage: hostile_test.py FOLDER_OF_PROGRAMS
"""

import ast
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

PLANNER = os.path.join(sys.argv[1], "mpt-plan")
TARGETS = "megatron,megatron-bridge,torchtitan,deepspeed,fsdp2,slurm,kubernetes"
SMALL = "--num-layers 8 --hidden-size 512 --num-attention-heads 8 "
FAILED = []


def check(what, right, why=""):
    if not right:
        FAILED.append(what)
        print(f"FAILED {what}: {str(why)[-1500:]}")


def run(*command):
    done = subprocess.run([PLANNER, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200)
    return done.returncode, done.stdout.decode("utf-8", "replace")


def refused(what, command, *parts):
    code, output = run(*command)
    check(what, code == 2 and all(part in output for part in parts), f"exit {code}, wanted 2 and {parts}\n{output}")
    check(f"{what}, printed harmlessly", not any(c < " " and c != "\n" or c == "\x7f" for c in output), repr(output))


def write(path, content):
    with open(path, "w") as file:
        file.write(content if isinstance(content, str) else json.dumps(content))
    return path


def read(*path):
    with open(os.path.join(*path)) as file:
        return file.read()


def make_plan(folder, name, model, cluster):
    """A small search over the files of a model and a cluster."""
    plan = os.path.join(folder, name + ".json")
    files = [write(os.path.join(folder, f"{name}-{what}.json"), value) for what, value in (("model", model), ("cluster", cluster))]
    return plan, ["--model", files[0], "--cluster", files[1], "--global-batch", 16, "--seq", 64, "--tp", 1, "--pp", 2, "--schedule", "1f1b",
                  "--recompute", "none", "-o", plan]


def base_plan(folder):
    plan = os.path.join(folder, "base.json")
    code, output = run("--model", "tiny-gpt", "--cluster", "dgx-h100:1", "--global-batch", 16, "--seq", 64, "--tp", 1, "--pp", 2,
                       "--schedule", "1f1b", "--recompute", "none", "-o", plan)
    check("a plan to start from", code == 0, output)
    return plan, json.load(open(plan))


def names_that_are_refused(folder, plan):
    """In every file that holds the name of a model, cluster, GPU or link."""
    places = ("/model/name", "/cluster/name", "/cluster/device/name", "/cluster/levels/0/name", "/links/0/level/name", "/cost/machine")
    bad = ("x\ntouch /tmp/x\n#", "\x1b[2J", "a\x7f", "\u0085", "\u2028", "\u202e", "n" * 201)
    for place in places:
        for name in bad:
            if place == "/cost/machine" and len(name) > 200:
                continue
            changed = json.loads(json.dumps(plan))
            at = changed
            *parents, last = place[1:].split("/")
            for key in parents:
                at = at[int(key)] if isinstance(at, list) else at[key]
            at[last] = name
            file = write(os.path.join(folder, "named.json"), changed)
            refused(f"{place} {name[:20]!r}", ["export", file, "--to", "megatron", "-o", folder], place)
    for name in bad:
        changed = {"model": dict(plan["model"], name=name), "cluster": dict(plan["cluster"], name=name)}
        _, command = make_plan(folder, "refused", changed["model"], plan["cluster"])
        refused(f"model file, {name[:20]!r}", command, "refused-model.json at /name")
        _, command = make_plan(folder, "refused", plan["model"], changed["cluster"])
        refused(f"cluster file, {name[:20]!r}", command, "refused-cluster.json at /name")


def without_names(file, text):
    """Lines without the title, and in jobs without those that hold the job's own name."""
    named = ["predicted"] + (["name", "subdomain", "--master-addr", "value: "] if file in ("job.yaml", "job.sbatch") else [])
    return [line for line in text.split("\n") if not any(word in line for word in named)]


def code_of(text):
    """Python without its docstring."""
    try:
        return ast.dump(ast.Module(ast.parse(text).body[1:], []))
    except (SyntaxError, ValueError) as error:
        return f"no Python: {error}"


def names_that_are_odd(folder, plan):
    """One line without control characters is a name; exported files are what they are for any other."""
    names = ['x""";open("/tmp/x","w");"""', "'''; import os; '''", "$(touch /tmp/x) `touch /tmp/x` ${HOME}", "a: b", "{{data}} {{script}}", "back\\",
             "\\N{", "# \" ' \\", "{0} {}", "模型 für alle", "true", "7B", "n" * 200]
    expected = os.path.join(folder, "expected")
    file, command = make_plan(folder, "ordinary", dict(plan["model"], name="ordinary"), dict(plan["cluster"], name="ordinary"))
    code, output = run(*command)
    check("plan of an ordinary name", code == 0, output)
    run("export", file, "--to", TARGETS, "--force", "-o", expected)
    for name in names:
        file, command = make_plan(folder, "odd", dict(plan["model"], name=name), dict(plan["cluster"], name=name))
        code, output = run(*command, "--report", os.path.join(folder, "odd.html"))
        check(f"plan of {name!r}", code == 0, output)
        out = os.path.join(folder, "odd")
        code, output = run("export", file, "--to", TARGETS, "--force", "-o", out)
        check(f"export of {name!r}", code == 0, output)
        for exported in sorted(os.listdir(expected)):
            text = read(out, exported)
            check(f"{exported} of {name!r} is ASCII", text.isascii() and all(c >= " " or c == "\n" for c in text), text)
            if exported == ".mpt-export":  # digests of the others, whose names it has
                check(f"{exported} of {name!r} lists files", re.sub(r"\b[0-9a-f]{16} ", "", text) == re.sub(r"\b[0-9a-f]{16} ", "", read(expected, exported)), text)
                continue
            check(f"{exported} of {name!r}", without_names(exported, text) == without_names(exported, read(expected, exported)), text)
        for script in ("run_megatron.sh", "run_torchtitan.sh", "job.sbatch"):
            done = subprocess.run(["bash", "-n", os.path.join(out, script)], stderr=subprocess.PIPE, text=True)
            check(f"{script} of {name!r} is a script", done.returncode == 0 and not done.stderr, done.stderr)
        for module in ("mpt_train.py", "mpt_layout.py", "mpt_torchtitan.py", "mpt_deepspeed.py"):
            check(f"{module} of {name!r} does the same", code_of(read(out, module)) == code_of(read(expected, module)), read(out, module))
        check(f"deepspeed.json of {name!r}", json.loads(read(out, "deepspeed.json")) == json.loads(read(expected, "deepspeed.json")))
        check_job(name, read(out, "job.yaml"))
        page = read(folder, "odd.html")
        check(f"page of {name!r}", page.count('"memory_limit"') == 1 and page.count("</script>") == 2)


def check_job(name, text):
    try:
        import yaml
    except ImportError:
        return
    documents = list(yaml.safe_load_all(text))
    kinds = [d["kind"] for d in documents]
    names = {d["metadata"]["name"] for d in documents}
    check(f"job.yaml of {name!r}", kinds == ["Service", "Job"] and len(names) == 1 and isinstance(names.pop(), str), text)


EXPERTS = "--num-experts 8 "
# Every number of Megatron-LM's that is read: flag, the flags that it needs, whether 0 is allowed.
MEGATRON = [(flag, "", False) for flag in (
    "num-layers", "hidden-size", "num-attention-heads", "kv-channels", "ffn-hidden-size", "vocab-size", "padded-vocab-size", "seq-length",
    "max-position-embeddings", "tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size",
    "expert-model-parallel-size", "expert-tensor-parallel-size", "num-virtual-stages-per-pipeline-rank",
    "num-layers-per-virtual-pipeline-stage", "micro-batch-size", "global-batch-size", "num-distributed-optimizer-instances",
    "make-vocab-size-divisible-by", "rotary-base")]
MEGATRON += [(flag, EXPERTS, False) for flag in ("moe-router-topk", "moe-router-num-groups", "moe-router-group-topk", "moe-ffn-hidden-size", "moe-layer-freq")]
MEGATRON += [("num-query-groups", "--group-query-attention ", False), ("activation-func-clamp-value", "", False),
             ("rope-scaling-factor", "--use-rope-scaling ", False), ("kv-lora-rank", "--multi-latent-attention ", False),
             ("v-head-dim", "--multi-latent-attention ", False),
             ("recompute-num-layers", "--recompute-granularity full --recompute-method block ", False),
             ("num-experts", "", True), ("moe-shared-expert-intermediate-size", EXPERTS, True), ("moe-aux-loss-coeff", EXPERTS, True),
             ("q-lora-rank", "--multi-latent-attention ", True), ("qk-head-dim", "--multi-latent-attention ", True),
             ("qk-pos-emb-head-dim", "--multi-latent-attention ", True), ("norm-epsilon", "", True), ("rotary-percent", "", True),
             ("mtp-num-layers", "", True), ("decoder-first-pipeline-num-layers", "", True), ("decoder-last-pipeline-num-layers", "", True)]
# The same of torchtitan's; -1 leaves some open.
TORCHTITAN = [(f"parallelism.{key}", open_at) for key, open_at in (
    ("tensor_parallel_degree", None), ("context_parallel_degree", None), ("pipeline_parallel_degree", None), ("expert_parallel_degree", None),
    ("data_parallel_replicate_degree", None), ("data_parallel_shard_degree", -1),
    ("pipeline_parallel_layers_per_stage", None), ("pipeline_parallel_microbatch_size", None))]
TORCHTITAN += [("training.local_batch_size", None), ("training.global_batch_size", -1), ("training.seq_len", None)]
BAD = (0, -1, 10**13, 2**63 - 1, -2**63, 2**64)


def numbers_of_importers(folder):
    script, titan = os.path.join(folder, "numbers.sh"), os.path.join(folder, "numbers.py")
    cluster = ["--cluster", "dgx-h100:1"]
    for flag, beside, zero_is_meant in MEGATRON:
        for value in BAD[1:] if zero_is_meant else BAD:
            write(script, SMALL.replace(f"--{flag} ", "--seed ") + f"{beside}--{flag} {value}\n")
            refused(f"--{flag} {value}", ["import", script, *cluster], f"numbers.sh at --{flag}:")
    for key, open_at in TORCHTITAN:
        section, name = key.split(".")
        pipeline = "pipeline_parallel_degree=2, pipeline_parallel_schedule='Interleaved1F1B', " if "pipeline_parallel_" in name and "degree" not in name else ""
        for value in BAD:
            if value == open_at:
                continue
            write(titan, "from torchtitan.models.llama3 import model_registry\n\n\ndef one() -> Trainer.Config:\n"
                         f"    return Trainer.Config(model_spec=model_registry('8B'), {section}={section.title()}Config({pipeline}{name}={value}))\n")
            refused(f"{key} = {value}", ["import", titan, *cluster], "numbers.py at ")
    for text, parts in ((SMALL + "--tensor-model-parallel-size 1099511627776 --context-parallel-size 1099511627776", ("--tensor-model-parallel-size",)),
                        (SMALL + "--tensor-model-parallel-size 65536 --context-parallel-size 65536", ("more than 10000000 ranks",))):
        refused(text, ["import", write(script, text), *cluster], *parts)
    write(script, SMALL + "--micro-batch-size 16777216")
    refused("a batch that no plan may hold", ["import", script, "--cluster", "dgx-h100:8"], "numbers.sh at /global_batch")
    refused("products of degrees on the command line", ["estimate", "--model", "tiny-gpt", *cluster, "--global-batch", 8, "--tp", 2**18, "--cp", 2**23,
                                                         "--pp", 2**23], "layout: more than 10000000 ranks")


def deep_logs(folder, file):
    log = write(os.path.join(folder, "deep.jsonl"), '{"format":"mpt-run-log"}\n{"step_time_s":1,"ranks":' + "[" * 200000 + "]" * 200000 +
                '}\n{"step_time_s":1}\n')
    refused("a log of deep lists", ["diagnose", file, log], "deep.jsonl at line 2", "64 levels")


def outputs_in_the_place_of_inputs(folder, file):
    def kept(what, path, command, *parts):
        before = read(path)
        refused(what, command, *parts)
        check(f"{what}, the file is kept", read(path) == before)

    kept("--report on the plan", file, ["--from", file, "--report", file], "--report", "the same file as --from")
    link = os.path.join(folder, "link.json")
    os.symlink(file, link)
    kept("--trace on a link to the plan", file, ["--from", file, "--trace", link], "--trace", "the same file as --from")
    new = os.path.join(folder, "new")
    refused("two outputs in one file", ["--from", file, "--trace", new, "--report", os.path.join(folder, ".", "new")], "the same file as --report")
    check("two outputs in one file, nothing is written", not os.path.exists(new))
    model = os.path.join(folder, "ordinary-model.json")
    small = ["--cluster", "dgx-h100:1", "--global-batch", 16, "--seq", 64]
    kept("-o on the model", model, ["--model", model, *small, "-o", model], "the same file as --model")
    kept("estimate -o on the plan", file, ["estimate", "--plan", file, "-o", file], "the same file as --plan")
    kept("compare --csv on the model", model, ["compare", "--over", "ranks=4,8", "--model", model, *small, "--csv", model], "--csv")
    script = write(os.path.join(folder, "kept.sh"), SMALL)
    kept("import -o on the script", script, ["import", script, "--cluster", "dgx-h100:1", "-o", script], "--output")
    plan = write(os.path.join(folder, "deepspeed.json"), read(file))
    kept("export over the plan", plan, ["export", plan, "--to", "megatron,deepspeed", "-o", folder], "the same file as PLAN")


def start(*command, inherited=()):
    """Where this test runs in the background, SIGINT may be ignored."""
    return subprocess.Popen([PLANNER, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=inherited,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def catches(process, number):
    with open(f"/proc/{process.pid}/status") as status:
        caught = next(int(line.split()[1], 16) for line in status if line.startswith("SigCgt"))
    return caught >> (number - 1) & 1 == 1


def waits_for_a_pipe(process):
    with open(f"/proc/{process.pid}/wchan") as place:
        return "pipe" in place.read()


def signals(folder, file):
    """The first one ends a program that reads; a search ends with what it has."""
    for number in (signal.SIGINT, signal.SIGTERM):
        end, begin = os.pipe()  # as a shell's <(command)
        process = start("--from", f"/dev/fd/{end}", inherited=(end,))
        os.close(end)
        with open(begin, "w") as writer:
            writer.write(read(file)[:100])
            writer.flush()
            while process.poll() is None and not waits_for_a_pipe(process):
                time.sleep(0.01)
            process.send_signal(number)
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            check(f"signal {number} while a plan is read", process.returncode == -number, process.returncode)
    out = os.path.join(folder, "interrupted.json")
    process = start("--model", "deepseek-v3", "--cluster", "dgx-h100:128", "--global-batch", 4096, "-o", out)
    while process.poll() is None and not catches(process, signal.SIGINT):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=150)
    # Nothing may have been found yet: then that is said.
    check("signal in a search", process.returncode == 130, (process.returncode, output, errors))
    if not os.path.exists(out):
        check("signal before the first layout", "interrupted: after" in errors and "--time-limit" not in errors, errors)
    else:
        check("signal in a search, its plan is written", json.load(open(out))["format"] == "mpt-plan")


def main():
    with tempfile.TemporaryDirectory() as folder:
        file, plan = base_plan(folder)
        names_that_are_refused(folder, plan)
        names_that_are_odd(folder, plan)
        numbers_of_importers(folder)
        deep_logs(folder, file)
        outputs_in_the_place_of_inputs(folder, file)
        signals(folder, file)
    print(f"{len(FAILED)} failed" if FAILED else "all hostile inputs were refused or harmless")
    return 1 if FAILED else 0


sys.exit(main())
