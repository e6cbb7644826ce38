# SPDX-License-Identifier: Apache-2.0
"""The real programs: a first use from profile to report, and wrong inputs, each with its exit code and message.

Usage: cli_test.py FOLDER_OF_PROGRAMS
"""

import glob
import json
import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile

PROGRAMS = sys.argv[1]
FAILURES = []
CHECKS = 0


def run(program, *arguments):
    command = [os.path.join(PROGRAMS, program), *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=200)


def expect(name, done, code, *parts):
    global CHECKS
    CHECKS += 1
    output = done.stdout + done.stderr
    in_one_line = " ".join(output.split())  # sentences go on in the next line
    missing = [part for part in parts if part not in output and part not in in_one_line]
    if done.returncode != code or missing:
        FAILURES.append(f"{name}: exit {done.returncode}, wanted {code}; missing {missing}\n{output}")
    return output


def write(path, content):
    with open(path, "w") as file:
        file.write(content if isinstance(content, str) else json.dumps(content))
    return path


def equal_layers(count, heads, ffn_hidden):
    """Layers with biases everywhere, as GPT-2 has them."""
    layer = {"attention": {**heads, "qkv_bias": True, "output_bias": True},
             "mlp": {"ffn_hidden": ffn_hidden, "gated": False, "activation": "gelu_tanh", "bias": True}}
    return {"kinds": {"layer": layer}, "order": [{"repeat": count, "of": ["layer"]}]}


def attention_of(model):
    return next(iter(model["layers"]["kinds"].values()))["attention"]


def little_tokenizer(folder, last=6, **changed):
    """Byte pairs with letters a to c, the merges ab and abc, and an end of text whose token the file numbers wrongly."""
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "\u0120": 3, "ab": 4, "abc": last - 1}, "merges": [["a", "b"], ["ab", "c"]], **changed}
    return write(f"{folder}/tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "decoder": None, "model": model,
        "added_tokens": [{"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True, "id": 6, "content": "<end>"},
                         {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False, "id": last, "content": "abc"}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<end>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [], "special_tokens": {"<end>": {"id": "<end>", "ids": [6], "tokens": ["<end>"]}}}})


def tokenized(folder):
    """`mpt-run tokenize`: tests/runtime/text/tokenizer_reference.py compares tokens with the package tokenizers."""
    tokenizer = little_tokenizer(folder)
    lines = write(f"{folder}/lines.jsonl", '{"text": "abab<end>cab"}\n\n{"text": "c a"}\n')
    plain = write(f"{folder}/plain.txt", "ab--c--abc")
    words = ["mpt-run", "tokenize", "--tokenizer", tokenizer]
    expect("tokenize", run(*words, lines, plain, "--separator", "--", "--append", "<end>", "-o", f"{folder}/corpus"), 0,
           "5 documents, 21 tokens", "\"abc\" is token 5, as in the package tokenizers, not 6", "with a vocabulary of 7 or more", "corpus.idx")
    numbers = struct.unpack("<21H", open(f"{folder}/corpus.bin", "rb").read())
    if numbers != (6, 4, 4, 6, 2, 4, 6, 6, 2, 3, 0, 6, 6, 4, 6, 6, 2, 6, 6, 5, 6):
        FAILURES.append(f"tokenize: {numbers}")
    if glob.glob(f"{folder}/*.part"):
        FAILURES.append("tokenize: a part is left")
    expect("tokenize, no such token", run(*words, plain, "--append", "<no>", "-o", f"{folder}/none"), 2, "--append <no>")
    expect("tokenize, over an input", run(*words, f"{folder}/corpus.bin", "-o", f"{folder}/corpus"), 2, "the same file as")
    expect("tokenize, another key", run(*words, lines, "--key", "body", "-o", f"{folder}/none"), 2, "lines.jsonl, line 1", 'no text under "body"', "--key")
    with open(f"{folder}/latin.txt", "wb") as file:
        file.write(b"ab\xe9")
    expect("tokenize, no UTF-8", run(*words, f"{folder}/latin.txt", "-o", f"{folder}/none"), 2, "byte 2 is 0xe9", "iconv")
    for name, change, found in (("unknown key", {"dropin": 1}, "/model/dropin"), ("dropout", {"dropout": 0.5}, "/model/dropout"),
                                ("a merge of nothing", {"merges": ["a z"]}, "/model/merges/0"), ("another model", {"type": "Unigram"}, "/model/type")):
        little_tokenizer(folder, **change)
        expect(f"tokenize, {name}", run(*words, plain, "-o", f"{folder}/none"), 2, found, "tokenizers")
    if glob.glob(f"{folder}/none*"):
        FAILURES.append("tokenize: a refused run leaves files")


def first_use(folder):
    model = write(f"{folder}/small.json", {
        "name": "small", "hidden": 32, "vocab": 256, "max_positions": 32, "norm": "layer_norm", "position": "learned",
        "layers": equal_layers(4, {"heads": 4, "kv_heads": 4, "head_dim": 8}, 64), "tied_embeddings": True})
    text = write(f"{folder}/text.txt", "a line of text to learn from\n" * 200)
    profile, plan = f"{folder}/profile.json", f"{folder}/plan.json"
    done = run("mpt-profile", "--model", model, "--seq", 32, "--quick", "--max-micro-batch", 2, "--max-ranks", 2, "--max-tensor", 2, "-o", profile)
    expect("profile", done, 0, "layer forward", "slowest operators", "FLOP/s", "all_reduce", "wrote", "next: mpt-plan")
    # A link of its own: a program that replaced /dev/stdout would leave the machine without one.
    os.symlink("/proc/self/fd/1", f"{folder}/stdout")
    quiet = run("mpt-profile", "--model", model, "--seq", 32, "--quick", "--quiet", "--max-micro-batch", 1, "--max-ranks", 1, "--max-tensor", 1,
                "-o", f"{folder}/stdout")
    expect("profile to a pipe", quiet, 0, '"format": "mpt-profile"')
    if quiet.stderr or not quiet.stdout or json.loads(quiet.stdout)["transport"]:
        FAILURES.append(f"profile to a pipe: not a profile of one rank alone:\n{quiet.stdout[-500:]}{quiet.stderr}")
    command = done.stdout.split("next: ")[1].replace("\\\n", " ").split()
    expect("profile, the next command", run(command[0], *[word if word != "plan.json" else f"{folder}/next.json" for word in command[1:]]), 0, "wrote")
    measured = json.load(open(profile))
    phases = {(p["piece"], p["phase"], p["tensor"]) for p in measured["pieces"]}
    if len(phases) != 3 * 4 * 2 or any(p["seconds"] <= 0 for p in measured["pieces"] if p["phase"] == "forward"):
        FAILURES.append(f"profile: pieces are incomplete: {sorted(phases)}")
    base = ["--model", model, "--cluster", "this-machine:4", "--profile", profile, "--global-batch", 8, "--seq", 32]
    expect("plan", run("mpt-plan", *base, "--pp", 2, "--dp", 2, "-o", plan, "--report", f"{folder}/plan.html"), 0,
           "RECOMMENDED", "WHY", "Searched all ", "Prices: profile of", "tokens/s", "idle", "memory ")
    expect("plan again", run("mpt-plan", "--from", plan), 0, "Simulated again from ", "tp1 pp2 dp2")
    slower = json.load(open(plan))
    for duration in slower["durations"]:
        duration["seconds"] *= 2
    again = run("mpt-plan", "--json", "--from", write(f"{folder}/slower.json", slower))
    times = [json.loads(again.stdout)["prediction"]["step_time_s"], slower["prediction"]["step_time_s"]]
    if abs(times[0] - 2 * times[1]) > 1e-9 * times[0]:
        FAILURES.append(f"plan again: durations doubled, step time {times[1]} became {times[0]}")
    expect("plan as JSON", run("mpt-plan", *base, "--json"), 0, '"format": "mpt-plan"')
    expect("run", run("mpt-run", plan, "--data", text, "--steps", 6, "--log", f"{folder}/run.jsonl", "--trace", f"{folder}/trace.json",
                      "--report", f"{folder}/run.html"), 0, "step 1/6", "Measured against predicted", "step time", "peak memory, stage 1", "Measured is", "mpt-plan diagnose")
    rows = [json.loads(line) for line in open(f"{folder}/run.jsonl")]
    if [r.get("step") for r in rows[1:]] != list(range(1, 7)) or not rows[6]["loss"] < rows[1]["loss"]:
        FAILURES.append(f"run: the log is not six steps of falling loss: {rows}")
    json.load(open(f"{folder}/trace.json"))
    return model, text, profile, plan, base


def noisy_profile(folder, text, profile, base):
    """Whoever plans with times that a busy machine gave is told, and told again where they are held to the truth."""
    times, plan = json.load(open(profile)), f"{folder}/noisy_plan.json"
    for entry in times["pieces"] + times["transport"]:
        entry["spread"] = 0.0
        if "piece" in entry:  # times that fit each other, and that no machine meets
            entry["seconds"] = 1e-5 * entry["micro_batch"]
    layer = next(p for p in times["pieces"] if (p["piece"], p["phase"], p["micro_batch"], p["tensor"]) == ("layer", "forward", 2, 1))

    def planned(name, spread, seconds):
        layer["spread"], layer["seconds"] = spread, seconds
        arguments = [*base, "--pp", 2, "--dp", 2, "-o", plan]
        arguments[arguments.index("--profile") + 1] = write(f"{folder}/{name}_profile.json", times)
        return run("mpt-plan", *arguments)

    quiet = planned("quiet", 0.1, 2e-5)
    expect("plan, a quiet profile", quiet, 0)
    if "noisy" in quiet.stderr or json.load(open(plan))["cost"]["spread"] != 0.1:
        FAILURES.append(f"plan, a quiet profile: {quiet.stderr}")
    expect("plan, a time that does not fit", planned("unfit", 0.0, 4e-5), 0, "do not fit the others")
    expect("plan, a noisy profile", planned("noisy", 2.92, 2e-5), 0, "noisy_profile.json is too noisy", "layer forward, micro-batch 2 by 292%",
           "mpt-profile --model", "--seq 32")
    expect("run, planned with a noisy profile", run("mpt-run", plan, "--data", text, "--steps", 2), 0, "What may explain the difference",
           "the profile is noisy: its timings vary by up to 292%")


def unevenly_loaded(folder):
    """Spread experts hold what the router sends them: the run tells, and a plan may count with it."""
    config = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 32, "intermediate_size": 64,
              "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 64,
              "num_local_experts": 4, "num_experts_per_tok": 2, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False}
    model = write(f"{folder}/mixtral.json", config)
    text = write(f"{folder}/letters.txt", "".join(chr(97 + i * i * 7 % 26) for i in range(5000)))
    layout = ["--model", model, "--cluster", "this-machine:4", "--global-batch", 16, "--seq", 32, "--dp", 4, "--ep", 4, "--micro-batch", 2]
    peaks = {}
    for load in (1, 1.5):
        plan = f"{folder}/load-{load}.json"
        expect(f"plan, expert load {load}", run("mpt-plan", *layout, "--expert-load", load, "-o", plan), 0, "ep4")
        peaks[load] = json.load(open(plan))["prediction"]["memory"][0]["peak_bytes"]
    if not peaks[1.5] > peaks[1]:
        FAILURES.append(f"plan, expert load: peaks {peaks}")
    log = f"{folder}/load.jsonl"
    expect("run, spread experts", run("mpt-run", f"{folder}/load-1.json", "--data", text, "--steps", 2, "--log", log), 0,
           "with its experts' load", "of an even share")
    loads = [rank["expert_load"] for rank in json.loads(open(log).readlines()[-1])["ranks"]]
    if abs(sum(loads) / 4 - 1) > 0.35 or not max(loads) > 1:  # each the highest of its passes
        FAILURES.append(f"run, spread experts: loads {loads}")
    expect("plan, expert load below an even one", run("mpt-plan", *layout, "--expert-load", 0.5), 2, "--expert-load")


def planned_for_another_framework(folder, text):
    """PyTorch keeps gathered weights whole in a pipeline, this runtime does not: the losses are those of a plan of its own."""
    losses = {}
    for framework in ("torchtitan", "mpt"):
        plan, log = f"{folder}/for-{framework}.json", f"{folder}/for-{framework}.jsonl"
        expect(f"plan, {framework}", run("mpt-plan", "--framework", framework, "--model", "tiny-llama", "--cluster", "this-machine:4",
                                         "--global-batch", 8, "--seq", 64, "--pp", 2, "--dp", 2, "--zero", 3, "--micro-batch", 1,
                                         "--schedule", "1f1b", "-o", plan), 0, "zero3")
        expect(f"run, planned for {framework}", run("mpt-run", plan, "--data", text, "--steps", 3, "--log", log), 0)
        losses[framework] = [json.loads(line)["loss"] for line in open(log).readlines()[1:]]
    if losses["torchtitan"] != losses["mpt"]:
        FAILURES.append(f"run, planned for another framework: {losses}")


def offloaded(folder, text, base):
    """The optimizer's state in the host's memory: who asks gets it, and every loss is the one without it."""
    layout = [*base, "--pp", 2, "--dp", 2, "--zero", 1, "--precision", "bf16", "--schedule", "1f1b"]
    plans = {"off": f"{folder}/inside.json", "on": f"{folder}/offloaded.json"}
    expect("plan, nobody asked to offload", run("mpt-plan", *layout, "-o", plans["off"]), 0, "zero1")
    expect("plan, offloaded", run("mpt-plan", *layout, "--offload", "on", "-o", plans["on"]), 0, "zero1", "offload")
    made = {kind: json.load(open(plan)) for kind, plan in plans.items()}
    inside, outside = made["off"]["prediction"]["memory"], made["on"]["prediction"]["memory"]
    if made["off"]["layout"].get("offload_optimizer") or any(r["optimizer_bytes"] for r in outside) or \
            any(o["peak_bytes"] + i["optimizer_bytes"] != i["peak_bytes"] for i, o in zip(inside, outside)):
        FAILURES.append(f"plan, offloaded: memory {outside} beside {inside}")

    def train(kind, name, steps, *options):
        log = f"{folder}/{name}.jsonl"  # a run that resumes writes behind what is there
        expect(f"run, {name}", run("mpt-run", plans[kind], "--data", text, "--steps", steps, "--log", log, *options), 0, "peak memory, stage 1")
        return [json.loads(line) for line in open(log)][1:]

    whole, outside = train("off", "not offloaded", 6), train("on", "offloaded", 6)
    losses = [row["loss"] for row in whole]
    if [row["loss"] for row in outside] != losses:
        FAILURES.append(f"run, offloaded: losses {outside} beside {whole}")
    for rows, plan in ((whole, made["off"]), (outside, made["on"])):
        peaks = {rank["peak_bytes"] for rank in rows[-1]["ranks"]}
        if peaks != {r["peak_bytes"] for r in plan["prediction"]["memory"]}:
            FAILURES.append(f"run, {plan['layout']}: peaks {peaks}, predicted {plan['prediction']['memory']}")
    for kind, other in (("on", "off"), ("off", "on")):  # the learning rate still rises, so that 3 steps are those of 6
        saved = f"{folder}/saved-{kind}"
        train(kind, f"the beginning, offload {kind}", 3, "--checkpoints", saved)
        rest = [row["loss"] for row in train(other, f"the rest, offload {other}", 6, "--resume", saved)]
        if rest != losses[3:]:
            FAILURES.append(f"run, saved with offload {kind}: losses {rest}, not {losses[3:]}")
    # 8 billion parameters of 18 bytes each do not fit on one GPU.
    one = ["--model", "llama3-8b", "--cluster", "dgx-h100:1", "--ranks", 1, "--framework", "mpt", "--global-batch", 8, "--seq", 4096]
    expect("plan, a GPU that must offload", run("mpt-plan", *one), 0, "tp1 pp1 dp1 mbs1 offload")
    expect("plan, a GPU that may not", run("mpt-plan", *one, "--offload", "off"), 2, "on 1 GPU; there are 62.", "leave out --offload off: tp1 pp1 dp1 mbs1 offload")


def profile_of_two_hosts(folder, model):
    """Two processes that take each other for hosts, and pieces at two sequences."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    path = f"{folder}/hosts.json"
    processes = []
    for rank in range(2):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [os.path.join(PROGRAMS, "mpt-profile"), "--model", model, "--seq", "16,32", "--quick", "--max-micro-batch", "1", "--max-ranks", "2",
                   "--max-tensor", "1", "-o", path]
        processes.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    done = [subprocess.CompletedProcess([], p.returncode, *output) for p, output in [(p, p.communicate(timeout=200)) for p in processes]]
    expect("profile of two hosts", done[0], 0, "hosts", "bus bandwidth", "wrote")
    expect("profile of two hosts, the other process", done[1], 0)
    measured = json.load(open(path))
    groups = {(t["group"], t.get("hosts", 1)) for t in measured["transport"]}
    sequences = {p["sequence"] for p in measured["pieces"]}
    if measured["machine"]["hosts"] != 2 or groups != {(2, 1), (2, 2), (4, 2)} or sequences != {16, 32} or done[1].stdout:
        FAILURES.append(f"profile of two hosts: {groups}, {sequences}, {done[1].stdout}")
    for sequence in (16, 32):
        expect(f"plan at {sequence} of two sequences", run("mpt-plan", "--model", model, "--cluster", "this-machine:2", "--profile", path, "--global-batch", 8,
                                                         "--seq", sequence, "-o", f"{folder}/of_two.json"), 0, "Prices: profile of")


def wrong_profile(folder, model, profile):
    expect("profile, no GPU", run("mpt-profile", "--model", model, "--device", "cuda"), 3, "no GPU can be used", "without a GPU, plan with", "--cluster dgx-h100:1")
    expect("profile, folder missing", run("mpt-profile", "--model", model, "--seq", 32, "-o", f"{folder}/no/p.json"), 2, "/no/p.json", "cannot be written")
    expect("profile, output a folder", run("mpt-profile", "--model", model, "--seq", 32, "-o", folder), 2, "--output", "it is a folder")
    expect("profile, output where no file can be", run("mpt-profile", "--model", model, "--seq", 32, "-o", "/proc/p.json"), 2, "--output /proc/p.json", "cannot be written")
    for option in ("--max-micro-batch", "--max-tensor", "--max-ranks"):
        for value in ("0", "-1", "two", "99999999999999999999"):
            expect(f"profile, {option} {value}", run("mpt-profile", "--model", model, "--seq", 32, option, value), 2, option)
    expect("profile, unknown option", run("mpt-profile", "--modle", model), 2, "--model")
    expect("profile, too long", run("mpt-profile", "--model", model, "--seq", 64), 2, "--seq", "32 positions")
    expect("profile, model without runtime", run("mpt-profile", "--model", "deepseek-v3.2"), 2, "sparse attention")


def wrong_plan(folder, model, profile, base):
    def plan(name, *parts, options=(), replaced=None, code=2):
        arguments = list(base)
        for key, value in (replaced or {}).items():
            arguments[arguments.index(key) + 1] = value
        expect("plan, " + name, run("mpt-plan", *arguments, *options), code, *parts)

    measured = json.load(open(profile))
    for entry in measured["pieces"]:
        entry["seconds"] = 0.0
    plan("a profile of zeros", "/pieces: timings that are all 0", "measure again", replaced={"--profile": write(f"{folder}/zeros.json", measured)})
    plan("a profile in another precision", "at sequence 32 in fp32; small at sequence 32 in bf16 is priced", options=["--precision", "bf16"], code=0)
    plan("unknown model", 'unknown model "lama3-8b"', 'did you mean "llama3-8b"?', replaced={"--model": "lama3-8b"})
    plan("model file missing", "/no/model.json", "cannot be read", replaced={"--model": "/no/model.json"})
    plan("unknown cluster", 'did you mean "dgx-h100"?', replaced={"--cluster": "dgx-h10:8"})
    for count in ("0", "-1", "99999999999999999999", "x", ""):
        plan(f"cluster of {count}", "the count", replaced={"--cluster": "dgx-h100:" + count})
    plan("cluster file missing", "/no/cluster.json", replaced={"--cluster": "/no/cluster.json"})
    plan("unknown schedule", 'unknown schedule "1f1B"; did you mean "1f1b"?', options=["--schedule", "1f1B"])
    plan("unknown recompute", 'did you mean "full"?', options=["--recompute", "ful"])
    plan("unknown module", "--recompute-modules", "core_attn", options=["--recompute-modules", "attention"])
    plan("modules of another framework", "--recompute-modules", "--framework megatron-bridge or megatron-core",
         options=["--framework", "torchtitan", "--recompute-modules", "moe_act"])
    plan("wrong degree", "--tp", '"two"', options=["--tp", "two"])
    plan("memory that nothing fits", "memory: small needs at least", "the smallest is", "--memory", options=["--memory", "10KiB"])
    plan("more memory than there is", "--memory 100TiB is more than", "Searched all ", options=["--memory", "100TiB"], code=0)
    plan("more ranks than devices", "--ranks", "at most 4, which this-machine:4 has", options=["--ranks", "5"])
    plan("ranks of none", "--gpus", "from 1 to", options=["--ranks", "0"])
    plan("fewer ranks", "tp1 pp1 dp2", options=["--ranks", "2", "--tp", "1", "--pp", "1"], code=0)
    plan("degrees that do not multiply", "4 ranks cannot be split into groups of --tp 3", options=["--tp", "3"])
    plan("micro-batch that does not divide", "does not divide by data x micro_batch", options=["--micro-batch", "3"])
    plan("chunks without a schedule", "no allowed schedule and chunks", options=["--pp", "4", "--schedule", "1f1b", "--chunks", "2"])
    plan("huge degree", "--pp", options=["--pp", 10**30])
    plan("negative degree", "--dp", '"-1"', options=["--dp=-1"])
    plan("huge memory", "--memory", options=["--memory", "1e300GiB"])
    plan("negative memory", "--memory", options=["--memory=-2GiB"])
    plan("unknown precision", "--precision", "fp32, bf16", options=["--precision", "fp64"])
    plan("precision that CPU ranks lack", "--precision", "fp32, bf16 or fp16 on CPU ranks", options=["--precision", "fp8"])
    plan("mxfp8 on a GPU without it", "--precision", "h100-sxm-80gb has", "use fp8", replaced={"--cluster": "dgx-h100:1"},
         options=["--precision", "mxfp8"])
    plan("nvfp4 on a GPU without it", "--precision", "h100-sxm-80gb has", "fp4_flop_per_s", replaced={"--cluster": "dgx-h100:1"},
         options=["--precision", "nvfp4"])
    plan("mxfp8 on one GPU of two", "--precision", "b200-sxm-180gb + h100-sxm-80gb has", replaced={"--cluster": "dgx-b200:1+dgx-h100:1@12.5GB/s@5ms"},
         options=["--precision", "mxfp8"])
    plan("mxfp8 for mpt-run", "--precision", "does not train small in mxfp8", "--beyond-framework", replaced={"--cluster": "dgx-b200:1"},
         options=["--precision", "mxfp8", "--framework", "mpt"])
    plan("stray word", "not expected", options=["quickly"])
    plan("from beside a search", "--from", "excludes", options=["--from", f"{folder}/plan.json"])
    plan("too many devices", "at most 10000000", replaced={"--cluster": "dgx-h100:9999999"})
    expect("plan, from missing", run("mpt-plan", "--from", "/no/plan.json"), 2, "/no/plan.json", "cannot be read")
    cluster = {"name": "mine", "device": {"name": "d", "kind": "gpu", "memory_bytes": 2**33, "memory_bandwidth_bytes_per_s": 1e12,
               "fp32_flop_per_s": 1e13, "bf16_flop_per_s": 1e14}, "devices": 4, "devices_per_node": 2, "cores_per_node": 0,
               "levels": [{"name": "link", "group_size": 2, "latency_s": 1e-6, "bandwidth_bytes_per_s": 1e10}]}
    own = ["--model", base[1], "--global-batch", 8]
    expect("plan, devices by the million", run("mpt-plan", *own, "--cluster", "dgx-h100:1000000"), 2, "none divides", "; and ", " more")
    expect("plan, own cluster", run("mpt-plan", *own, "--cluster", write(f"{folder}/mine.json", cluster)), 0, "parameters) on mine: 2 nodes, 4 x d")
    cluster["levels"] = []
    expect("plan, cluster without links", run("mpt-plan", *own, "--cluster", write(f"{folder}/linkless.json", cluster)), 2, "/levels")
    cluster["levels"], cluster["device"]["memory_bytes"] = [{"name": "link"}], -1
    expect("plan, wrong cluster", run("mpt-plan", *own, "--cluster", write(f"{folder}/wrong.json", cluster)), 2,
           "/device/memory_bytes", "/levels/0", 'missing key "group_size"')
    other = json.loads(open(profile).read())
    other["machine"].update(device="another CPU", cores=64)
    plan("profile of another machine", "was measured on another CPU with 64 cores", code=0,
         replaced={"--profile": write(f"{folder}/other.json", other)})
    plan("profile for another model", "priced by its operators' rates", code=0, replaced={"--model": "tiny-gpt"})
    plan("memory that is none", "--memory", "2 parsecs", options=["--memory", "2 parsecs"])
    plan("batch that does not divide", "global batch 7 does not divide", options=["--dp", "4"], replaced={"--global-batch": 7})
    plan("negative batch", "--global-batch", replaced={"--global-batch": -8})
    plan("huge batch", "--global-batch", replaced={"--global-batch": 10**30})
    plan("sequence too long", "--seq", "32 positions", replaced={"--seq": 64})
    gpu = json.loads(open(profile).read())
    gpu["machine"].update(kind="gpu", device="NVIDIA H200", memory_bytes=141 << 30)
    on_gpus = {"--profile": write(f"{folder}/gpu.json", gpu), "--cluster": "dgx-h200:1"}
    plan("profile of a GPU", "on dgx-h200:1: 1 node, 8 x ", code=0, replaced=on_gpus)
    plan("profile of a GPU, this machine's", "on this-machine:4: 1 node, 4 x ", code=0, replaced={**on_gpus, "--cluster": "this-machine:4"})
    plan("profile of another GPU", "times of NVIDIA H200; expected times of a100-sxm-80gb", replaced={**on_gpus, "--cluster": "dgx-a100:1"})
    plan("profile of a GPU, mixed cluster", "times of NVIDIA H200", replaced={**on_gpus, "--cluster": "dgx-h200:1+dgx-h200:1"})
    plan("profile of a GPU, another framework", "--framework mpt", options=["--framework", "megatron-core"], replaced=on_gpus)
    plan("profile of an unknown GPU", "the catalog does not have", replaced={
        "--profile": write(f"{folder}/unknown.json", {**gpu, "machine": {**gpu["machine"], "device": "NVIDIA H900"}})})
    plan("profile missing", "/no/profile.json", replaced={"--profile": "/no/profile.json"})
    text = open(profile).read()
    plan("truncated profile", "not valid JSON", replaced={"--profile": write(f"{folder}/cut.json", text[:len(text) // 2])})
    edited = json.loads(text)
    edited["pieces"][3]["seconds"] = -1
    edited["dispatch"] = edited.pop("dispatch_s")
    plan("wrong profile", "/pieces/3/seconds", 'did you mean "dispatch_s"?', replaced={"--profile": write(f"{folder}/bad.json", edited)})
    plan("profile for GPUs", "times of", "the device of dgx-h100:1", replaced={"--cluster": "dgx-h100:1"})
    plan("output that cannot be", "cannot be written", options=["-o", f"{folder}/no/plan.json"])
    expect("plan, nothing said", run("mpt-plan"), 2, "--model", "missing")
    expect("plan, model missing", run("mpt-plan", "--cluster", "dgx-h100:1", "--global-batch", 8), 2, "--model")
    check_help()
    what_people_type(folder)
    reasons_first()
    idle_options()
    refusals_name_what_was_asked_for()
    expect("plan, version", run("mpt-plan", "--version"), 0, "mpt 0.")
    expect("plan, catalog", run("mpt-plan", "--model", "gpt2-1.5b", "--cluster", "dgx-h100:1", "--global-batch", 64), 0, "Prices: kernels of h100")


def check_help():
    """In groups, with examples and defaults, and without the notation of the parser."""
    text = expect("plan, help", run("mpt-plan", "--help"), 0, "What to train:", "Where:", "Restrict the search", "Output:", "--micro-batch", "Commands",
                  "Examples:", "Exit codes:", "docs/clusters.md", "--help-all")
    if len(text.splitlines()) > 80:
        FAILURES.append(f"plan, help: {len(text.splitlines())} lines")
    commands = ["estimate", "doctor", "explain", "export", "import", "diagnose", "compare", "cluster", "model", "check", "page", "recommend", "tune"]
    for command in [[]] + [[name] for name in commands]:
        text = expect(f"plan {command}, all help", run("mpt-plan", *command, "--help-all"), 0, "Usage: mpt-plan", "Examples:")
        text = text.replace("{dir}", "")
        for noise in ("INT", "TEXT", "FLOAT", " in [", "{", "REQUIRED"):
            if noise in text:
                FAILURES.append(f"plan {command}, all help: {noise} in\n{text}")
        for line in text.splitlines():
            if len(line) > 110:
                FAILURES.append(f"plan {command}, all help: a line of {len(line)}: {line}")


def reasons_first():
    """A search that finds nothing names the values that were asked for, and its remedies find something."""
    moe = ["--model", "qwen3-30b-a3b", "--cluster", "dgx-h100:2", "--global-batch", 64]
    dense = ["--model", "llama3-8b", "--cluster", "dgx-h100:1", "--global-batch", 64]
    tied = ["--model", "gemma4-26b-a4b", "--cluster", "dgx-h100:8", "--global-batch", 64]
    for job, asked, where, reason in (
            (tied, ["--pp", 2, "--framework", "automodel"], "--pp 2: ", "a head that shares the embedding's"),
            (moe, ["--ep", 3], "--ep 3: ", "expert"),
            (dense, ["--offload", "on", "--framework", "automodel"], "--offload on: ", "has no offload of optimizer states alone"),
            (dense, ["--tp", 3], "--tp 3: ", "8 GPUs cannot be split into groups of --tp 3"),
            (dense, ["--seq", 4097, "--cp", 2], "--cp 2: ", "sequence 4097"),
            (dense, ["--zero", 3, "--pp", 2, "--dp", 4, "--framework", "megatron-bridge"], "--pp 2 --dp 4 --zero 3: ", "ZeRO 3 with pipeline parallelism"),
            (dense, ["--tp", 2, "--framework", "transformers-fsdp"], "--tp 2: ", "no tensor parallelism"),
            (dense, ["--pp", 1, "--schedule", "interleaved", "--tp", 2], "--pp 1 --schedule interleaved: ", "interleaved"),
            (dense, ["--micro-batch", 3, "--dp", 8], "--micro-batch 3: ", "micro_batch")):
        done = run("mpt-plan", *job, *asked)
        expect(f"reason of {asked}", done, 2, "error: " + where, reason)
        remedies = [re.findall(r"(--[a-z-]+) (\S+)", line) for line in done.stderr.splitlines()[1:] if line.startswith("    --")]
        remedies = [(option, value.rstrip(",:")) for line in remedies for option, value in line]
        if not remedies or any(option in ("--tp", "--pp", "--ep") and asked[0] == "--seq" for option, _ in remedies):
            FAILURES.append(f"remedies of {asked}: {done.stderr}")
        for option, value in remedies:
            words = [str(word) for word in [*job, *asked]]
            words = [word for n, word in enumerate(words) if word != option and (n == 0 or words[n - 1] != option)]
            expect(f"remedy {option} {value} of {asked}", run("mpt-plan", *words, option, value), 0, "RECOMMENDED")


def idle_options():
    """Options that change nothing are named."""
    dense = ["--model", "llama3-8b", "--cluster", "dgx-h100:1", "--global-batch", 64]
    for words, option in ((["--pp", 1, "--schedule", "1f1b"], "--schedule 1f1b"), (["--dispatch", "once"], "--dispatch"), (["--expert-load", 2], "--expert-load"),
                          (["--price", 2], "--price"), (["--goodput", 0.9], "--goodput"), (["--memory", "70GiB", "--memory-margin", "5%"], "--memory-margin"),
                          (["--recompute-modules", "mlp", "--recompute", "none"], "--recompute-modules"),
                          (["--cp", 1, "--cp-method", "all_to_all"], "--cp-method all_to_all")):
        expect(f"idle {words}", run("mpt-plan", *dense, "--micro-batch", 1, *words), 0, f"{option} changes nothing")
        expect(f"estimate, idle {words}", run("mpt-plan", "estimate", *dense, *words), 0, f"{option} changes nothing")
    expect("ZeRO of one replica", run("mpt-plan", *dense, "--zero", 3, "--pp", 2, "--framework", "megatron-bridge"), 0, "--zero 3 changes nothing here",
           "With more of them", "ZeRO 3 with pipeline parallelism")
    busy = run("mpt-plan", *dense, "--micro-batch", 1, "--tp", 2, "--sp", "on", "--schedule", "1f1b", "--recompute", "selective", "--recompute-modules", "mlp")
    if "changes nothing" in expect("options that say something", busy, 0):
        FAILURES.append(f"options that say something are called idle:\n{busy.stdout}")


def refusals_name_what_was_asked_for():
    """A reason is about the method that was given, and an option that helps is named ahead of other reasons."""
    job = ["--cluster", "dgx-h100:1", "--seq", 8192, "--global-batch", 16]
    refused = run("mpt-plan", "--model", "lfm2-350m", "--framework", "transformers-deepspeed", *job, "--cp", 2, "--cp-method", "all_to_all")
    if " ring " in expect("method of context ranks", refused, 2, "short convolution"):
        FAILURES.append(f"method of context ranks: {refused.stderr}")
    packed = ["--model", "gpt-oss-20b", "--framework", "transformers-fsdp", *job, "--lengths", "900:8192"]
    expect("packed rows that mix", run("mpt-plan", *packed), 2, "over 8 GPUs: Hugging Face Trainer", "--execution attention=flash2")
    expect("packed rows, remedy", run("mpt-plan", *packed, "--execution", "attention=flash2"), 0, "RECOMMENDED")


def what_people_type(folder):
    """Understood, or refused with a remedy that works."""
    job = ["--model", "llama3-8b", "--global-batch", 64, "--tp", 1, "--pp", 1, "--seq"]
    one = ["--cluster", "dgx-h100:1"]
    plan_file = f"{folder}/typed.json"
    expect("gpus", run("mpt-plan", *job, "4k", "--cluster", "dgx-h100", "--gpus", 16, "-o", plan_file), 0, "dgx-h100:2")
    typed = json.load(open(plan_file))
    if typed["workload"]["sequence"] != 4096 or typed["cluster"]["devices"] != 16:
        FAILURES.append(f"gpus: {typed['workload']}, {typed['cluster']['devices']} GPUs")
    expect("gpus of no equal nodes", run("mpt-plan", *job, "4k", "--cluster", "dgx-h100", "--gpus", 13), 2, "--gpus 8 or 16")
    expect("gpus that are not there", run("mpt-plan", *job, "4k", *one, "--gpus", 16), 2, "at most 8", "--cluster dgx-h100:2")
    expect("sequence", run("mpt-plan", *job, "8 parsecs", *one), 2, "--seq", "8k or 1M (k is 1024)")
    expect("memory without unit", run("mpt-plan", *job, "4k", *one, "--memory", 20), 2, "--memory", "write 20GiB or 20GB")
    expect("memory in bits", run("mpt-plan", *job, "4k", *one, "--memory", "20Gb"), 2, "--memory", "write 20GiB or 20GB")
    expect("bits", run("mpt-plan", "cluster", "dgx-h100:1+dgx-h100:1@100Gb/s"), 0, "dgx-h100:1+dgx-h100:1@12.5GB/s", "12.5 GB/s (100 Gbit/s)")
    expect("bits or bytes", run("mpt-plan", *job, "4k", "--cluster", "dgx-h100:1+dgx-h100:1@100gb/s"), 2, "100Gbit/s for bits")
    expect("Hugging Face id", run("mpt-plan", "model", "meta-llama/Llama-3.1-8B"), 0, "llama3-8b: 8.03B parameters", "128,256")
    expect("unknown id", run("mpt-plan", "model", "nobody/nothing-7b"), 2, "huggingface.co/nobody/nothing-7b/resolve/main/config.json")
    expect("framework's other name", run("mpt-plan", *job, "4k", *one, "--framework", "fsdp2", "-o", plan_file), 0, "--framework fsdp2 is called pytorch here")
    if json.load(open(plan_file))["layout"]["execution"]["framework"] != "pytorch":
        FAILURES.append("--framework fsdp2 is not pytorch")
    layout = json.load(open(plan_file))["layout"]
    if layout["pipeline"] * layout["context"] != 1 or layout["zero"] < 2:
        FAILURES.append(f"--framework fsdp2 is more than FSDP and tensor ranks: {layout}")
    plain = ["--model", "llama3-8b", "--global-batch", 64, "--seq", "4k", *one, "--framework", "fsdp2"]
    expect("FSDP with a pipeline", run("mpt-plan", *plain, "--pp", 2), 2, "--pp: 2 with --framework fsdp2",
           "--framework pytorch has pipelines")
    expect("FSDP that shares out optimizer states alone", run("mpt-plan", *plain, "--zero", 1), 2, "--zero: 1 with --framework fsdp2",
           "expected 3 or 2")
    expect("estimate of FSDP", run("mpt-plan", "estimate", *plain, "--tp", 2), 0, "zero3")
    expect("Trainer's framework", run("mpt-plan", *job, "4k", *one, "--framework", "transformers"), 0,
           "--framework transformers is called transformers-fsdp here: Hugging Face Trainer with FSDP2")
    expect("published runs' framework", run("mpt-plan", *job, "4k", *one, "--framework", "megatron-deepspeed"), 2, "unknown framework",
           "automodel, deepspeed, megatron-bridge, megatron-core, mpt, pytorch, torchtitan, transformers-ddp, transformers-deepspeed, transformers-fsdp")
    expect("Megatron's option", run("mpt-plan", *one, "--gbs", 128), 2, "--gbs: unknown option", "did you mean --global-batch?")
    expect("option before a command", run("mpt-plan", "--seq", 4096, "estimate", *one), 2, "--seq: before the command")
    expect("cluster list", run("mpt-plan", "cluster", "list"), 0, "dgx-a100-40gb", "this-machine:N")
    expect("model list", run("mpt-plan", "model", "list"), 0, "qwen3-8b", "Qwen/Qwen3-8B")
    own = f"{folder}/own.json"
    expect("cluster to edit", run("mpt-plan", "cluster", "dgx-a100-40gb:2", "-o", own), 0, "16 GPUs in 2 nodes of 8", "235 GB/s", "wrote " + own)
    cluster = json.load(open(own))
    cluster["device"]["name"] = cluster["name"] = "mine"
    expect("renamed GPU with kernels", run("mpt-plan", *job, "4k", "--cluster", write(own, cluster)), 0, "mine")
    del cluster["device"]["kernels"]
    text = expect("renamed GPU without kernels", run("mpt-plan", *job, "4k", "--cluster", write(own, cluster)), 0, "nobody has measured kernels of mine", '"like"')
    if text.count("nobody has measured") != 1:
        FAILURES.append(f"the note on prices stands {text.count('nobody has measured')} times")
    expect("several nodes of a file", run("mpt-plan", "cluster", own + ":4"), 0, "32 GPUs in 4 nodes of 8")
    expect("several numbers of GPUs", run("mpt-plan", *job, "4k", "--cluster", "dgx-h100", "--gpus", "8,16"), 2, "--gpus", "compare --over gpus=8,16")
    expect("several lengths", run("mpt-plan", *job, "4k,8k", *one), 2, "--seq", "compare --over seq=4k,8k")


def plan_commands(folder, base, profile):
    eight = ["--model", "llama3-8b", "--cluster", "dgx-h100:1", "--global-batch", 32, "--seq", 4096]
    gpu_plan, cpu_plan = f"{folder}/gpu.json", f"{folder}/cpu.json"
    expect("plan, cost of a training", run("mpt-plan", *eight, "-o", gpu_plan, "--tokens", "15T", "--price", 2.5), 0,
           "15T tokens take", "device-hours", "at 2.5 a device-hour")
    expect("plan, tokens that are none", run("mpt-plan", *eight, "--tokens", "many"), 2, "--tokens", "15T")
    expect("plan, time limit", run("mpt-plan", *eight, "--time-limit", 60), 0, "by MPT's model")
    for option, value in (("--sp", "maybe"), ("--zero", "4"), ("--cp", "0"), ("--ep", "x"), ("--order", "inside"), ("--overlap", "dinner"), ("--dispatch", "twice"),
                          ("--offload", "1"), ("--time-limit", "-1"), ("--cp-method", "rings"), ("--etp", "-2")):
        expect(f"plan, {option} {value}", run("mpt-plan", *eight, option, value), 2, option)
    expect("plan, an exchange that mpt-run does not overlap", run("mpt-plan", *eight, "--framework", "mpt", "--overlap", "exchange"), 2,
           "--overlap", "exchange with mpt-run", "name another --framework")
    beside = f"{folder}/beside.json"
    expect("estimate, an exchange beside compute", run("mpt-plan", "estimate", "--model", "qwen3-30b-a3b", "--cluster", "dgx-h100:2", "--global-batch", 32,
                                                       "--seq", 2048, "--dp", 16, "--ep", 16, "--overlap", "exchange", "-o", beside), 0)
    expect("estimate, a plan's exchange that mpt-run does not overlap", run("mpt-plan", "estimate", "--plan", beside, "--framework", "mpt"), 2,
           "/layout/overlap_exchange", "--overlap")
    expect("estimate, a plan with other overlaps", run("mpt-plan", "estimate", "--plan", beside, "--framework", "mpt", "--overlap", "transfer",
                                                       "-o", f"{folder}/apart.json"), 0)
    for path, what in ((beside, True), (f"{folder}/apart.json", False)):
        with open(path) as file:
            overlap = json.load(file)["layout"]["overlap_exchange"]
        if overlap != what:
            FAILURES.append(f"{path}: overlap_exchange is {overlap}")
    expect("plan, copies that mpt-run does not merge", run("mpt-plan", *eight, "--framework", "mpt", "--dispatch", "once"), 2,
           "--dispatch", "--framework mpt")
    for change, *words in (("fp8_atention=true", "fp8_atention", 'did you mean "fp8_attention"?'), ("graphs", "graphs", "name=value"), ("help", "fp8_head", "loss"),
                           ("graphs=perhaps", "/graphs"), ("launch_us=-1", "/launch_us"), ("attention=flesh2", "/attention", '"flash2"'),
                           ("framework=nemo", "--framework")):
        expect(f"plan, a framework that does {change}", run("mpt-plan", *eight, "--framework", "nemo", "--execution", change), 2,
               "--execution", *words)
    expect("plan, another execution by mpt-run", run("mpt-plan", *eight, "--framework", "mpt", "--execution", "graphs=true"), 2,
           "--execution", "what mpt-run does")
    for own in ("loss=own", "attention=own"):  # nothing runs them but mpt-run
        expect(f"plan, {own} of another framework", run("mpt-plan", *eight, "--framework", "torchtitan", "--execution", own), 2, own, "torchtitan")
    experts = ["--model", "qwen3-30b-a3b", "--cluster", "dgx-h100:1", "--global-batch", 32, "--seq", 2048, "--framework", "nemo", "--micro-batch", 1,
               "--dp", 8, "--ep", 8]
    waits = "GPUs wait for the host"
    expect("estimate, a host that is too slow", run("mpt-plan", "estimate", *experts), 0, waits, "graphs=true")
    expect("plan, a host that is too slow", run("mpt-plan", *experts), 0, waits)
    graphed = run("mpt-plan", "estimate", *experts, "--execution", "graphs=true")
    expect("estimate, kernels from graphs", graphed, 0)
    if waits in graphed.stdout:
        FAILURES.append("estimate, kernels from graphs: waits for the host all the same")
    expect("plan, experts of a dense model", run("mpt-plan", *eight, "--ep", 2), 2, "--ep: 2; expected 1: llama3-8b has no experts")
    expect("plan, a part of the space", run("mpt-plan", *eight, "--tp", 2, "--cp", 2, "--zero", 1, "--schedule", "zb-h1,zb-v", "--pp", 2, "--beyond-framework"), 0,
           "tp2", "cp2", "zero1", "zb-")
    expect("plan, a schedule that the framework lacks", run("mpt-plan", *eight, "--pp", 2, "--schedule", "zb-v"), 2,
           "--schedule zb-v: ", "Megatron-LM has no zb-v schedule; it has 1f1b, interleaved", "--schedule 1f1b", "--framework ")

    expect("estimate", run("mpt-plan", "estimate", *eight, "--tp", 4, "--pp", 2, "--sp", "on"), 0, "tp4+sp pp2 dp1", "time goes to",
           "optimizer ", "It fits.", "BETTER", "MFU")
    expect("estimate, does not fit", run("mpt-plan", "estimate", *eight, "--memory", "20GiB"), 0, "DOES NOT FIT by")
    expect("estimate, operators", run("mpt-plan", "estimate", *eight, "--tp", 4, "--sp", "on", "--operators"), 0,
           "attention.qkv", "all-gather", "not hidden", "BETTER")
    expect("estimate, offload", run("mpt-plan", "estimate", *eight, "--tp", 2, "--dp", 4, "--zero", 1, "--offload", "on"), 0,
           "up to 15.0 GiB per GPU in host memory")
    expect("estimate, does not divide", run("mpt-plan", "estimate", *eight, "--tp", 3), 2, "heads 32 does not divide by tensor 3", "--tp 2 or --tp 4 instead")
    expect("estimate, more ranks than devices", run("mpt-plan", "estimate", *eight, "--tp", 8, "--pp", 4), 2, "at most the 8 devices")
    expect("estimate, chunks that the schedule lacks", run("mpt-plan", "estimate", *eight, "--pp", 2, "--schedule", "zb-v", "--chunks", 3), 2, "--chunks")
    expect("estimate, no model", run("mpt-plan", "estimate", "--cluster", "dgx-h100:1"), 2, "--model")

    expect("explain", run("mpt-plan", "explain", gpu_plan, "--tokens", "1T"), 0, "Why this one", "Searched all ", "MFU", "1T tokens take")
    expect("explain, slower", run("mpt-plan", "explain", gpu_plan, "--why-not", "tp=8,pp=1"), 0, "The fastest of the", "slower than the plan: ",
           "What would change the answer")
    expect("explain, over memory", run("mpt-plan", "explain", gpu_plan, "--why-not", "tp=1,pp=1,cp=1,zero=0,offload=off"), 0,
           "need more than", "A GPU has", "What would change the answer", "GPUs with twice the memory")
    not_chosen(folder, eight)
    requests(folder)
    moved_request(folder)
    expect("explain, does not divide", run("mpt-plan", "explain", gpu_plan, "--why-not", "tp=3"), 0, "No layout of this kind")
    for kind in ("tpp=8", "tp", "tp=", "", "tp=two", "schedule=1f2b"):
        expect(f"explain, --why-not {kind}", run("mpt-plan", "explain", gpu_plan, f"--why-not={kind}"), 2, "--why-not" if "two" not in kind and "1f2b" not in kind else "expected")
    expect("explain, operators", run("mpt-plan", "explain", gpu_plan, "--operators"), 0, "attention.qkv", "of peak", "head and loss: forward")
    expect("explain, plan missing", run("mpt-plan", "explain", "/no/plan.json"), 2, "/no/plan.json")
    run("mpt-plan", *base, "-o", cpu_plan)
    expect("explain, profile missing", run("mpt-plan", "explain", cpu_plan, "--why-not", "tp=2"), 2, "--profile", "digest")
    expect("explain, with its profile", run("mpt-plan", "explain", cpu_plan, "--why-not", "tp=2", "--profile", profile), 0, "Why not tp=2?")

    # Of layouts that take equally long the one with fewest kinds of parallelism is recommended, however many are ranked.
    equal = json.loads(run("mpt-plan", "--model", "llama2-70b", "--cluster", "dgx-a100:4", "--global-batch", 64, "--seq", 2048, "--json").stdout)
    close = [r for r in equal["ranking"] if r["step_time_s"] <= 1.01 * equal["search"]["fastest_s"]]
    kinds = [sum(r["layout"].get(axis, 1) > 1 for axis in ("tensor", "pipeline", "context", "expert", "data")) for r in close]
    if len(close) < 2 or kinds[0] != min(kinds):
        FAILURES.append(f"search, equals: {[(r['step_time_s'], r['peak_bytes']) for r in equal['ranking']]}")
    one = json.loads(run("mpt-plan", "--model", "llama2-70b", "--cluster", "dgx-a100:4", "--global-batch", 64, "--seq", 2048, "--json", "--top", 1).stdout)
    if one["layout"] != equal["layout"]:
        FAILURES.append("search, equals: --top changes the recommended layout")

    # The default leaves room; what it costs is the last alternative; without it the risk is said, and a limit that avoids it.
    tight = ["mpt-plan", "--model", "llama2-70b", "--cluster", "dgx-a100:4", "--global-batch", 64, "--seq", 2048, "--top", 1]
    roomy = run(*tight)
    expect("search, with room", roomy, 0, " of 74.0 GiB usable; 9 in 10 such plans fit", "; fits: 9", "ALTERNATIVES")
    said = run(*tight, "--memory-margin", 0)
    expect("search, without room", said, 0, "RISK")
    if "RISK" in roomy.stdout:
        FAILURES.append(f"search, with room: a risk all the same\n{roomy.stdout}")
    expect("search, with a margin of one's own", run(*tight, "--memory-margin", "10%"), 0, "limited to 66.6 of 74.0 GiB")
    expect("search, a margin that is none", run(*tight, "--memory-margin", "much"), 2, "--memory-margin", "such as 5%")
    expect("search, with a gap", run(*tight, "--gap", "1%"), 0, "Searched all", "none is more than 1.0% faster")
    expect("search, a gap that is none", run(*tight, "--gap", "much"), 2, "--gap", "such as 5%")
    expect("estimate, more work than memory holds", run("mpt-plan", "estimate", "--model", "llama3-8b", "--cluster", "dgx-h100:1", "--global-batch", 10**6,
                                                        "--pp", 8), 2, "--global-batch: ", "1000000 micro-batches in 8 stages", "--global-batch 250000")

    expect("compare plans", run("mpt-plan", "compare", gpu_plan, cpu_plan), 0, "1.00x", "note: ")
    expect("compare clusters", run("mpt-plan", "compare", "--model", "llama3-8b", "--global-batch", 32, "--seq", 4096, "--cluster",
                                   "dgx-a100:1,dgx-h100:1", "--tokens", "1T", "--price", 2), 0, "dgx-a100:1", "dgx-h100:1", "1.00x", "days")
    expect("compare, a cluster that is too small", run("mpt-plan", "compare", "--model", "llama3-70b", "--global-batch", 32, "--seq", 4096,
           "--cluster", "rtx4090:1,dgx-h100:8"), 0, "nothing fits: at least", "1.00x")
    expect("compare, plan missing", run("mpt-plan", "compare", gpu_plan, "/no/plan.json"), 2, "/no/plan.json")
    expect("estimate, devices left idle", run("mpt-plan", "estimate", *eight, "--tp", 4, "--dp", 1), 0, "leave 4 of 8 devices idle")
    expect("plan, price below nothing", run("mpt-plan", *eight, "--tokens", "1T", "--price", "-1"), 2, "--price")
    expect("compare one", run("mpt-plan", "compare", gpu_plan), 2, "two or more")
    expect("compare nothing", run("mpt-plan", "compare"), 2, "two or more")

    axes(folder, eight)


def axes(folder, eight):
    """compare --over: a row for each combination, and what no row can be."""
    csv = f"{folder}/compare.csv"
    del eight[2:4]
    one = ["--cluster", "dgx-h100:1"]
    expect("over memory", run("mpt-plan", "compare", *eight, *one, "--over", "memory=1GiB,40GiB,70GiB", "--csv", csv), 0,
           "nothing fits: at least", "tokens/s", "wrote " + csv)
    rows = [line.split(",") for line in open(csv).read().splitlines()]
    if len(rows) != 4 or {len(row) for row in rows} != {13} or rows[1][1:] != [""] * 12 or not float(rows[3][4]) < float(rows[3][3]) < float(rows[3][5]):
        FAILURES.append(f"over memory: the CSV has {rows}")
    two = run("mpt-plan", "compare", *eight, *one, "--over", "tp=1,2", "--over", "zero=0,1", "--dp", "4,8", "--csv", csv)
    expect("over two axes", two, 0, "tp  zero")
    rows = [line.split(",") for line in open(csv).read().splitlines()][1:]
    if [row[:2] for row in rows] != [["1", "0"], ["1", "1"], ["2", "0"], ["2", "1"]] or any(re.match(r"tp(\d+)", row[2])[1] != row[0] for row in rows if row[2]):
        FAILURES.append(f"over two axes: {rows}")
    expect("over frameworks", run("mpt-plan", "compare", *eight, *one, "--over", "framework=torchtitan,megatron-core"), 0, "framework ", "torchtitan ")
    expect("over, values of none", run("mpt-plan", "compare", *eight, *one, "--over", "ranks=0,8"), 2, "--over ranks=0,8: ", "from 1", "another value")
    expect("over, one value of no option", run("mpt-plan", "compare", *eight, *one, "--over", "gpu=8"), 2, "--over", 'did you mean "gpus"')
    expect("over, no values", run("mpt-plan", "compare", *eight, *one, "--over", "gpus"), 2, "--over gpus=64,128")
    expect("over, huge values", run("mpt-plan", "compare", *eight, *one, "--over", f"seq=1k,{10**30}"), 2, "--over seq")
    expect("over, unknown axis", run("mpt-plan", "compare", *eight, *one, "--over", "colour=1,2"), 2, "--over", 'unknown "colour"')
    expect("over, misspelt axis", run("mpt-plan", "compare", *eight, *one, "--over", "globl-batch=1,2"), 2, "global-batch")
    expect("over, wrong value", run("mpt-plan", "compare", *eight, *one, "--over", "micro-batch=1,x"), 2, '--over micro-batch=1,x: "x"', "put another value in its place")
    job = eight[:]
    del job[job.index("--global-batch"):job.index("--global-batch") + 2]
    expect("over, a count of tokens", run("mpt-plan", "compare", *job, *one, "--over", "global-batch=1M,2M"), 2, '--over global-batch=1M,2M: "1M"',
           "put in its place 1M-tokens")
    expect("over, as its remedy says", run("mpt-plan", "compare", *job, *one, "--over", "global-batch=1M-tokens,2M-tokens"), 0, "1M-tokens ")
    expect("over, more than there are", run("mpt-plan", "compare", *eight, *one, "--over", "gpus=8,9"), 2, "--over gpus=8,9: 9", "--cluster dgx-h100:2")
    expect("over, and as this one says", run("mpt-plan", "compare", *eight, "--cluster", "dgx-h100:2", "--over", "gpus=8,9"), 0, "gpus ")
    expect("over, a value beside it", run("mpt-plan", "compare", *eight, *one, "--over", "global-batch=32,64"), 2, "--over global-batch", "leave one of them out")
    expect("over, twice", run("mpt-plan", "compare", *eight, *one, "--over", "tp=1,2", "--over", "tp=4,8"), 2, "--over tp")
    expect("over, too many", run("mpt-plan", "compare", *eight, *one, "--over", "tp=" + ",".join(["1"] * 300)), 2, "more than 256")
    expect("over, one value", run("mpt-plan", "compare", *eight, *one, "--over", "tp=1"), 2, "two or more")
    expect("over, file that cannot be", run("mpt-plan", "compare", *eight, *one, "--over", "tp=1,2", "--csv", f"{folder}/no/s.csv"), 2, "--csv")
    priced = [*eight, "--tokens", "1T", "--cluster", "dgx-a100:1,dgx-h100:1", "--csv", csv]
    costs = []
    for prices in ("2", "1,2", "2,4"):
        expect(f"prices {prices}", run("mpt-plan", "compare", *priced, "--price", prices), 0, "days", " to ")
        costs.append([float(line.split(",")[12]) for line in open(csv).read().splitlines()[1:]])
    if [round(a / b, 6) for a, b in zip(costs[0] + costs[2], costs[1] + costs[1])] != [2, 1, 2, 2]:
        FAILURES.append(f"prices: {costs}")
    expect("prices, too many", run("mpt-plan", "compare", *priced, "--price", "1,2,3"), 2, "--price", "3 prices for 2 clusters")
    expect("rows that nobody has published", run("mpt-plan", "compare", "--model", "mixtral-8x7b", "--global-batch", 64, "--seq", 4096, "--cluster", "dgx-h100:2",
           "--framework", "megatron-core,deepspeed"), 0, "deepspeed: No published run is of this kind (deepspeed): the range is wide.")


def not_chosen(folder, eight):
    """A faster layout that a search did not take: by which option, and a memory limit that was set."""
    held = f"{folder}/held.json"
    expect("plan, without a pipeline", run("mpt-plan", "--model", "llama3-8b", "--cluster", "dgx-h100:1", "--framework", "torchtitan", "--global-batch", 128,
                                           "--seq", 8192, "--tp", 1, "--pp", 1, "--cp", 1, "-o", held), 0)
    with open(held) as file:
        if json.load(file)["request"]["bounds"] != {"tp": [1], "cp": [1], "pp": [1]}:
            FAILURES.append("plan, without a pipeline: the plan does not say what limited its search")
    expect("explain, faster but not allowed", in_one_line(run("mpt-plan", "explain", held, "--why-not", "pp=2")), 0,
           "% faster (", "it was not chosen because you set --cp 1 and --pp 1.", "Planning again without --cp 1 and --pp 1.")
    little = f"{folder}/little.json"
    expect("plan, without a pipeline and with little memory",
           run("mpt-plan", "--model", "llama3-8b", "--cluster", "dgx-h100:1", "--framework", "torchtitan", "--global-batch", 128, "--seq", 8192,
               "--tp", 1, "--pp", 1, "--cp", 1, "--memory", "25GiB", "-o", little), 0)
    expect("explain, links with which it wins", in_one_line(run("mpt-plan", "explain", little, "--why-not", "pp=2,cp=1")), 0,
           "With links 4 times as fast, and without --tp 1 and --pp 1 it wins: ", "With a limit of 72.7 GiB, and without --pp 1 it wins: ",
           "Not a global batch of 512")
    expect("explain, bounds of nothing", run("mpt-plan", "explain", edited_plan(held, f"{folder}/odd.json", request={"bounds": {"colour": [1]}}),
                                             "--why-not", "pp=2"), 2, "/request/bounds/colour")
    given = f"{folder}/given.json"
    expect("estimate, to ask about", run("mpt-plan", "estimate", *eight, "--tp", 8, "-o", given), 0)
    expect("explain, a layout that was given", in_one_line(run("mpt-plan", "explain", given, "--why-not", "tp=1")), 0, "given, not searched for")
    tight = f"{folder}/tight.json"
    expect("plan, with little memory", run("mpt-plan", *eight, "--memory", "24GiB", "-o", tight), 0)
    kind = {"tp": 1, "pp": 2, "cp": 1, "zero": 1, "offload": "off", "recompute": "none", "micro-batch": 1}
    said = in_one_line(run("mpt-plan", "explain", tight, "--why-not", ",".join(f"{key}={value}" for key, value in kind.items())))
    expect("explain, over the limit that was set", said, 0, "The plan's limit rules it out", "a limit of 74.0 GiB")
    limit = re.search(r"it would fit with --memory (\S+)\. ", said.stdout)
    options = [word for key, value in kind.items() for word in (f"--{key}", value)]
    expect("plan, with the memory that was named", run("mpt-plan", *eight, "--memory", limit.group(1) if limit else "1GiB", *options), 0)
    expect("explain, its own kind", in_one_line(run("mpt-plan", "explain", tight, "--why-not", f"zero={layout_of(tight)['zero']}")), 0,
           "It is as fast as the plan", "less than 1.0% between them. The plan needs", "less memory.")


def requests(folder):
    """A request on the command line, as a file, in a plan, and changed."""
    asked = ("--model", "llama3-8b", "--cluster", "dgx-h100:2", "--global-batch", 64, "--tp", "1,2", "--sp", "on", "--framework", "torchtitan")
    printed = run("mpt-plan", *asked, "--print-request")
    expect("request, printed", printed, 0)
    request = json.loads(printed.stdout)
    if request != {"model": "llama3-8b", "global_batch": 64, "framework": "torchtitan", "cluster": "dgx-h100:2", "bounds": {"tp": [1, 2], "sp": ["on"]}}:
        FAILURES.append(f"request, printed: {request}")
    file, first, second, third = (f"{folder}/{name}.json" for name in ("request", "first", "second", "third"))
    write(file, printed.stdout)
    expect("request, typed", run("mpt-plan", *asked, "-o", first), 0)
    expect("request, from a file", run("mpt-plan", "--request", file, "-o", second), 0)
    expect("request, from a plan", run("mpt-plan", "--request", first, "-o", third), 0)
    same = ("layout", "prediction", "footprints", "request", "schedule", "memory_limit_bytes", "ranking")
    plans = [json.load(open(path)) for path in (first, second, third)]
    for plan in plans[1:]:
        if any(plan[key] != plans[0][key] for key in same):
            FAILURES.append("request: the same request gave another plan")
    changed = run("mpt-plan", "--request", file, "--global-batch", "128", "--tp", "2", "--print-request")
    if json.loads(changed.stdout) != {**request, "global_batch": 128, "bounds": {"tp": [2], "sp": ["on"]}}:
        FAILURES.append(f"request, changed: {changed.stdout}")
    expect("request, estimated", run("mpt-plan", "estimate", "--request", file, "--tp", 2), 0, "tp2")
    write(file, json.dumps({**request, "colour": 1, "bounds": {"tp": [0]}}))
    expect("request, wrong", run("mpt-plan", "--request", file), 2, "/colour", "/bounds/tp/0")
    write(file, json.dumps({"format": "mpt-profile"}))
    expect("request, another file", run("mpt-plan", "--request", file), 2, "no request", "--print-request")
    expect("request, without a file", run("mpt-plan", "--request", f"{folder}/none.json"), 2, "none.json")
    expect("request, without a model", run("mpt-plan", "--print-request"), 0, "{}")


def moved_request(folder):
    """A plan of a model and a cluster that came from files can be repeated where those are gone."""
    model, cluster, plan, again = (f"{folder}/{name}.json" for name in ("my-model", "my-cluster", "mine", "again"))
    expect("model file", run("mpt-plan", "model", "gpt2-124m", "-o", model), 0)
    expect("cluster file", run("mpt-plan", "cluster", "dgx-h100:2", "-o", cluster), 0)
    expect("plan of files", run("mpt-plan", "--model", model, "--cluster", cluster, "--global-batch", 64, "--seq", "1k", "-o", plan), 0)
    os.remove(model)
    os.remove(cluster)
    expect("plan again without them", run("mpt-plan", "--request", plan, "-o", again), 0)
    first, second = (json.load(open(path)) for path in (plan, again))
    if any(first[key] != second[key] for key in ("layout", "model", "cluster", "prediction")):
        FAILURES.append("plan again without them: another plan")


def in_one_line(done):
    """What a program printed, whatever the width of its lines."""
    done.stdout = " ".join(done.stdout.split()) + " "
    return done


def layout_of(plan):
    with open(plan) as file:
        return json.load(file)["layout"]


def edited_plan(plan, target, **changes):
    with open(plan) as file:
        text = json.load(file)
    text.update(changes)
    return write(target, json.dumps(text))


def judged(folder):
    """A figure of a run, judged by estimate, import and diagnose alike."""
    mine = ["--model", "llama3-70b", "--cluster", "dgx-h100:8", "--global-batch", 256, "--seq", 4096, "--tp", 8, "--pp", 4, "--dp", 2,
            "--recompute", "full"]
    plan = f"{folder}/mine.json"
    expect("estimate, measured", in_one_line(run("mpt-plan", "estimate", *mine, "--measured", "380TFLOP/s", "-o", plan)), 0, "Your measurement",
           "times as fast as predicted", "Does your counter count recompute?", "no recompute", "With recompute counted", "in bf16", "as fast as your measured")
    expect("estimate, measured utilisation", in_one_line(run("mpt-plan", "estimate", *mine, "--measured", "MFU 41%")), 0, "Measured MFU 41.0%", "405 TFLOP/s")
    expect("estimate, measured by time", in_one_line(run("mpt-plan", "estimate", *mine, "--measured", "40s")), 0, "times the predicted time", "Slower than 9 in 10")
    for wrong in ("380", "380TFLOP", "fast", "2000TFLOP/s", "0.1s", "MFU 141%"):
        expect(f"estimate, measured {wrong}", run("mpt-plan", "estimate", *mine, "--measured", wrong), 2, "--measured", "expected")
    expect("diagnose, work per second", in_one_line(run("mpt-plan", "diagnose", plan, "--measured", "380TFLOP/s")), 0, "380 TFLOP/s per GPU", "count", "recompute?", "Not explained")
    expect("diagnose, tokens per second", in_one_line(run("mpt-plan", "diagnose", plan, "--measured", "43870tokens/s", "--no-search")), 0, "The step is as predicted")
    expect("diagnose, faster than the hardware", run("mpt-plan", "diagnose", plan, "--measured", "1s"), 2, "faster than the GPUs can be", "989 TFLOP/s")
    expect("diagnose, a log and a figure", run("mpt-plan", "diagnose", plan, plan, "--measured", "20s"), 2, "given with --measured")
    flags = write(f"{folder}/my_run.txt", "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8 "
                  "--ffn-hidden-size 14336 --swiglu --seq-length 4096 --max-position-embeddings 8192 --micro-batch-size 1 --global-batch-size 64 "
                  "--tensor-model-parallel-size 2 --bf16 --untie-embeddings-and-output-weights --vocab-size 128256 --normalization RMSNorm "
                  "--position-embedding-type rope --disable-bias-linear\n")
    expect("import, measured", run("mpt-plan", "import", flags, "--cluster", "dgx-h100:1", "--measured", "5s"), 0, "my_run-8.0", "Your measurement")


def compared(folder):
    """compare: the same layout on as many GPUs costs the same, whatever the cluster has besides."""
    job = ["--model", "llama3-8b", "--global-batch", 64, "--seq", 4096, "--tokens", "1T", "--price", 2]
    one = run("mpt-plan", "compare", *job, "--cluster", "dgx-h100:2,dgx-h100:4")
    part = run("mpt-plan", "compare", *job, "--cluster", "dgx-h100:8", "--over", "ranks=16,32")
    expect("compare, a training", one, 0, "GPUs", "per GPU", "GPU-hours", "llama3-8b in bf16, 64 sequences of 4096", "no failures, saving or evaluation", "8 of 10 published runs")
    expect("compare, a training on parts", part, 0, "GPUs", "no failures, saving or evaluation")
    cells = [[re.split(r" {2,}", line.strip())[1:] for line in said.stdout.splitlines() if re.match(r" *(dgx-h100:|16 |32 )", line)] for said in (one, part)]
    if len(cells[0]) != 4 or cells[0] != cells[1]:
        FAILURES.append(f"compare over clusters and over GPUs differ: {cells}")
    csv = f"{folder}/days.csv"
    days = []
    for goodput in (1, 0.8):
        run("mpt-plan", "compare", *job, "--cluster", "dgx-h100:2,dgx-h100:4", "--goodput", goodput, "--csv", csv)
        days.append(float(open(csv).read().splitlines()[1].split(",")[11]))
    if abs(days[0] / days[1] - 0.8) > 0.01:
        FAILURES.append(f"compare, a goodput of 0.8: {days} days")
    expect("compare, a goodput of none", run("mpt-plan", "compare", *job, "--cluster", "dgx-h100:2,dgx-h100:4", "--goodput", 0), 2, "--goodput")
    expect("compare, frameworks", run("mpt-plan", "compare", *job, "--cluster", "dgx-h100:2", "--framework", "fsdp,megatron-core,torchtitan"), 0,
           "\n  fsdp ", "\n  megatron-core ", "\n  torchtitan ", "1.00x")
    expect("compare, one framework on one cluster", run("mpt-plan", "compare", *job, "--cluster", "dgx-h100:2", "--framework", "fsdp"), 2, "two or more")
    expect("compare, frameworks nowhere", run("mpt-plan", "compare", *job, "--framework", "fsdp,nemo"), 2, "--cluster")
    expect("compare, plans and a cluster", run("mpt-plan", "compare", f"{folder}/typed.json", f"{folder}/typed.json", "--cluster", "dgx-h100:2"), 2, "two or more")
    twins = run("mpt-plan", *job[:6], "--cluster", "dgx-a100-40gb:1+dgx-a100-40gb:1@12.5GB/s", "--json")
    expect("plan, two equal clusters", twins, 0)
    told = [reason.split(" per step")[0] for reason in json.loads(twins.stdout)["reasons"] if reason.startswith("On dgx-a100-40gb")]
    if len(told) != len(set(told)) or not told:
        FAILURES.append(f"plan, two equal clusters: {told}")


def exported_elsewhere(folder):
    """A plan that goes to a framework that it was not priced for says so, on the screen and in the files."""
    plan = f"{folder}/fsdp.json"
    expect("plan, for FSDP", run("mpt-plan", "--model", "llama3-8b", "--cluster", "dgx-h100:1", "--global-batch", 32, "--framework", "fsdp", "-o", plan), 0)
    note = "step time and memory are those of pytorch, not of megatron-core: mpt-plan --framework megatron-core plans for it"
    said = run("mpt-plan", "export", plan, "--to", "megatron,slurm", "-o", f"{folder}/elsewhere")
    expect("export, to another framework", said, 0, "note: " + note, "per step in bf16, by pytorch")
    for name, noted in (("run_megatron.sh", True), ("job.sbatch", False)):
        with open(f"{folder}/elsewhere/{name}") as file:
            lines = file.read().splitlines()
        if (f"# Note: {note}." in lines[:3]) != noted or not lines[0].startswith("#!"):
            FAILURES.append(f"export, to another framework: {name} begins with {lines[:3]}")
    said = run("mpt-plan", "export", plan, "--to", "fsdp2", "-o", f"{folder}/home")
    expect("export, to its own framework", said, 0)
    if "not of" in said.stdout:
        FAILURES.append("export, to its own framework: a note all the same")


def other_clusters(folder):
    model = ["--model", "llama3-8b", "--global-batch", 64, "--seq", 4096]
    mixed, trace = f"{folder}/mixed.json", f"{folder}/trace.json"
    joined = "dgx-a100:1+dgx-h100:1@5GB/s@2ms"
    expect("mixed", run("mpt-plan", *model, "--cluster", joined, "-o", mixed, "--trace", trace, "-v"), 0, "stage", "on dgx-a100:1", "on dgx-h100:1",
           "On dgx-h100:1 alone: ", "link between clusters")
    if not any(e.get("ph") == "C" for e in json.load(open(trace))["traceEvents"]):
        FAILURES.append("mixed: the trace has no memory over time")
    expect("mixed, explained", run("mpt-plan", "explain", mixed, "--why-not", "pp=1"), 0, "Why not pp=1?")
    expect("mixed, estimate", run("mpt-plan", "estimate", *model, "--cluster", joined, "--pp", 2, "--zero", 1), 0, "time goes to", "stage transfers")
    expect("mixed, some of the ranks", run("mpt-plan", *model, "--cluster", joined, "--gpus", 8), 2, "--gpus", "mixed cluster")
    for bad in ("dgx-a100:1+", "dgx-a100:1@5GB/s", "dgx-a100:1+dgx-h100:1@5", "dgx-a100:1+dgx-h100:1@5GB/s@1h", "dgx-a100:1+this-machine:2",
                "dgx-a100:1+dgx-h100:1@5GB/s@1ms@1", "+".join(["dgx-a100:1"] * 5), "dgx-a100:900000+dgx-h100:900000"):
        expect(f"mixed, {bad}", run("mpt-plan", *model, "--cluster", bad), 2, "--cluster")

    cluster = json.load(open(mixed))["cluster"]
    path = write(f"{folder}/cluster.json", cluster)
    expect("mixed, from a file", run("mpt-plan", *model, "--cluster", path, "--pp", 2, "--json"), 0, "Placement: ")

    def edited(name, change, *parts):
        copy = json.loads(json.dumps(cluster))
        change(copy)
        expect("cluster file, " + name, run("mpt-plan", *model, "--cluster", write(f"{folder}/edited.json", copy)), 2, "edited.json", *parts)

    edited("devices that do not add up", lambda c: c.update(devices=7), "/devices", "the sum of its groups")
    edited("a group without links", lambda c: c["groups"][0].update(levels=[]), "/groups/0/levels")
    edited("one group", lambda c: c["groups"].pop(), "/groups")
    edited("oversubscription below 1", lambda c: c["levels"][0].update(oversubscription=0.5), "/levels/0/oversubscription")
    edited("rails below none", lambda c: c["levels"][-1].update(rails=-1), "/levels/2/rails")
    edited("a bandwidth beyond all", lambda c: c["groups"][1]["levels"][0].update(bandwidth_bytes_per_s=1e300), "/groups/1/levels/0/bandwidth")

    broken = json.load(open(mixed))
    broken["cluster"]["groups"][0]["levels"] = []
    expect("mixed, a plan whose cluster has no links", run("mpt-plan", "explain", write(f"{folder}/broken.json", broken)), 2, "/cluster/groups/0/levels")
    expect("plan, ten million devices", run("mpt-plan", *model, "--cluster", "dgx-h100:1250000"), 2, "divides the model and the batch")
    expect("plan, generated", run("mpt-plan", *model, "--cluster", "dgx-h100:2", "--schedule", "generated", "--pp", 4, "--beyond-framework"), 0, "generated", "by MPT's model")
    expect("pareto", run("mpt-plan", *model, "--cluster", "dgx-h100:1", "--pareto"), 0, "GPUs  step time", "Each row is the fastest")
    front = run("mpt-plan", *model, "--cluster", "dgx-h100:1", "--pareto", "--json")
    points = json.loads(front.stdout)["front"]
    ranks = [p["layout"]["tensor"] * p["layout"]["pipeline"] * p["layout"]["data"] * p["layout"].get("context", 1) for p in points]
    times = [(r, p["step_time_s"], p["peak_bytes"]) for r, p in zip(ranks, points)]
    if len(times) < 5 or any(a != b and all(x <= y for x, y in zip(a, b)) for a in times for b in times):
        FAILURES.append(f"pareto: not a front: {times}")
    plan, report = f"{folder}/front.json", f"{folder}/front.html"
    expect("pareto, to files", run("mpt-plan", *model, "--cluster", "dgx-h100:1", "--pareto", "-o", plan, "--report", report, "--tokens",
           "1T", "--price", 2), 0, "days for 1T", "price", f"wrote {plan}", f"wrote {report}")
    stored = json.load(open(plan))
    if stored["front"] != points or stored["ranking"][0]["step_time_s"] != min(t[1] for t in times):
        FAILURES.append("pareto: the plan's own front is another, or the plan is not the fastest")
    expect("pareto, the plan runs on", run("mpt-plan", "--from", plan, "--report", report), 0, "Simulated again")
    expect("pareto, nothing fits", run("mpt-plan", *model, "--cluster", "dgx-h100:1", "--pareto", "--memory", "1GiB"), 2, "--memory")
    one = run("mpt-plan", *model, "--cluster", "dgx-h100:2", "-o", f"{folder}/p.json", "--threads", 1).stdout.split("\nSearched")[0]
    two = run("mpt-plan", *model, "--cluster", "dgx-h100:2", "-o", f"{folder}/p.json", "--threads", 2).stdout.split("\nSearched")[0]
    if one != two:
        FAILURES.append(f"threads: {one} and {two}")
    expect("plan, threads of none", run("mpt-plan", *model, "--cluster", "dgx-h100:1", "--threads", 0), 2, "--threads")
    plan = f"{folder}/hardware.json"
    run("mpt-plan", *model, "--cluster", "dgx-a100:2", "--pp", 4, "-o", plan)
    expect("estimate, a plan on other devices", run("mpt-plan", "estimate", "--plan", plan, "--cluster", "dgx-h100:2"), 0, "on dgx-h100:2: ", "BETTER")
    expect("estimate, a plan and a degree", run("mpt-plan", "estimate", "--plan", plan, "--tp", 2), 0, "short form: tp2", "pp4")
    full = f"{folder}/full.json"
    done = run("mpt-plan", "doctor", *model, "--cluster", "dgx-a100:1", "--framework", "transformers-ddp", "-o", full)
    text = " ".join(done.stdout.split())
    options = re.search(r"mpt-plan estimate --plan PLAN (.*), of the PLAN that -o wrote", text)
    peak, step = re.search(r"It fits \(.*\): (.*) per GPU, (.*) a step\.", text).groups()
    expect("doctor, its command", run("mpt-plan", "estimate", "--plan", full, *options[1].split(), "--check"), 0, "It fits.", peak.split()[0], step)
    expect("estimate, a plan on too few", run("mpt-plan", "estimate", "--plan", plan, "--cluster", "dgx-h100:1"), 2, "at most the 8 devices")
    expect("compare, suffixes", run("mpt-plan", "compare", "--model", "llama3-8b", "--global-batch", 64, "--cluster", "dgx-h100:1", "--over", "seq=1K,2K"), 0, "  1K  ", "  2K  ")


def wrong_run(folder, text, plan):
    good = json.load(open(plan))

    def edited(name, change):
        copy = json.loads(json.dumps(good))
        change(copy)
        return write(f"{folder}/{name}.json", copy)

    def planned(name, **changes):
        """A plan for a model with changes."""
        model, changed = {**good["model"], **changes}, f"{folder}/{name}.json"
        run("mpt-plan", "--model", write(f"{folder}/{name}_model.json", model), "--cluster", "dgx-h100:1", "--ranks", 1, "--global-batch", 8, "--seq", 32,
            "--framework", "megatron-core", "--beyond-framework", "-o", changed)
        return changed

    for name, at, change in (("sequence", "/workload", lambda p: p["workload"].update(sequence=16)), ("precision", "/layout", lambda p: p["layout"].update(precision="bf16")),
                             ("memory limit", "/memory_limit_bytes", lambda p: p.update(memory_limit_bytes=1))):
        changed = edited("inputs", change)
        for command in (["mpt-plan", "explain", changed], ["mpt-plan", "export", changed, "--to", "pytorch", "-o", folder], ["mpt-run", changed, "--data", text]):
            expect(f"{command[0]}, edited {name}", run(*command), 2, f"inputs.json at {at}: edited since the plan was made", "mpt-plan --request")

    def refused(name, path, *parts, data=text, options=()):
        expect("run, " + name, run("mpt-run", path, "--data", data, "--steps", 2, *options), 2, *parts)

    refused("plan missing", f"{folder}/none.json", "none.json", "cannot be read")
    refused("plan truncated", write(f"{folder}/half.json", open(plan).read()[:900]), "not valid JSON", "line")
    refused("not a plan", write(f"{folder}/list.json", "[1, 2]"), "a plan written by mpt-plan")
    refused("wrong type", edited("type", lambda p: p["layout"].update(tensor="one")), "/layout/tensor", "a number")
    refused("unknown schedule", edited("schedule", lambda p: p["layout"].update(schedule="1f1B")), 'did you mean "1f1b"?')
    refused("layout that does not divide", edited("divide", lambda p: p["layout"].update(tensor=3)), "does not divide by tensor 3")
    refused("edited schedule", edited("rows", lambda p: p["schedule"]["rows"].update({"0": "F0"})), "/schedule", "needs one F")
    refused("edited footprint", edited("bytes", lambda p: p["footprints"][0].update(saved_bytes=1)), "/program_digest", "plan again")
    refused("newer version", edited("version", lambda p: p.update(version=99)), "newer mpt-plan")
    refused("no digests", edited("undigested", lambda p: p.pop("input_digests")), "undigested.json at /input_digests: missing", "mpt-plan --request")
    refused("older version", edited("older", lambda p: p.update(version=2)), "the number 2", "expected 5", "plan again")
    refused("feature it lacks", planned("feature", head_bias=True), "a bias in the output head", options=["--device", "cpu"])
    refused("vocabulary below a byte's", planned("vocabulary", vocab=100), "is 108", "0 to 99, the model's vocabulary", options=["--device", "cpu", "--data-format", "text"])
    for vocab, words in ((4096, ("bytes of text", "0 to 4095", "mpt-run tokenize", "--data-format text")), (100, ("bytes of text",))):
        refused(f"text for {vocab} tokens", planned("words", vocab=vocab), *words, options=["--device", "cpu"])
    words = planned("words", vocab=4096)
    expect("run, the bytes of text", run("mpt-run", words, "--data", text, "--data-format", "text", "--device", "cpu", "--steps", 1), 0, "step 1/1")
    tokens = write(f"{folder}/16bits.bin", "ab" * 1000)
    refused("tokens of 16 bits for more", planned("many", vocab=70000), "narrow tokens, ids 0 to 65535", "0 to 69999", "--data-format uint32",
            data=tokens, options=["--device", "cpu", "--data-format", "uint16"])
    expect("run, no data of many tokens", run("mpt-run", planned("many", vocab=70000), "--device", "cpu"), 2, "--data: missing", "--data-format uint32")
    refused("data missing", plan, "/no/text", "cannot be read", data="/no/text")
    refused("data a folder", plan, "is a folder", data=folder)
    refused("data empty", plan, "0 tokens in 1 files", data=write(f"{folder}/empty.txt", ""))
    refused("data too short", plan, "at least 33", data=write(f"{folder}/short.txt", "short"))
    refused("more ranks than the plan", plan, "--ranks", "the plan's ranks", f"mpt-plan --request {plan} --cluster this-machine:8", options=["--ranks", 8])
    expect("plan for more ranks", run("mpt-plan", "--request", plan, "--cluster", "this-machine:8", "--dp", 4, "--tp", 1, "-o", f"{folder}/eight.json"), 0, "wrote")
    expect("run, GPU asked for", run("mpt-run", plan, "--data", text, "--device", "cuda"), 3, "no GPU can be used")
    refused("log that cannot be", plan, "--log", options=["--log", f"{folder}/no/run.jsonl"])
    refused("steps of none", plan, "--steps", options=["--steps", "0"])
    for option in ("--lr", "--min-lr", "--clip", "--weight-decay", "--next-token-weight"):
        expect(f"run, {option} nan", run("mpt-run", plan, "--data", text, "--steps", 1, option, "nan"), 2, f"{option}: \"nan\"; expected numbers")
    expect("plan, a price that is no number", run("mpt-plan", "--model", "gpt2-1.5b", "--cluster", "dgx-h100:1", "--global-batch", 64, "--price", "nan"),
           2, "--price: \"nan\"; expected numbers")
    expect("run, loss overflows", run("mpt-run", plan, "--data", text, "--steps", 50, "--lr", 1000, "--min-lr", 1000, "--clip", 0, "--warmup", 0),
           1, "run failed", "rank 0, step", "lower the learning rate")


def checkpoints(folder, text, plan):
    """What mpt-run writes, another layout goes on with, and a Hugging Face folder gets."""
    saved, log = f"{folder}/checkpoints", f"{folder}/resumed.jsonl"
    train = ["mpt-run", plan, "--data", text, "--checkpoints", saved]
    trained = run(*train, "--steps", 4, "--save-every", 2, "--validation-share", 0.1, "--evaluate-every", 2, "--sample", "a line")
    expect("run, checkpoints", trained, 0, "validation ", "step-00000002: a line")
    if f"step-00000004: {run('mpt-run', 'sample', saved, '--prompt', 'a line').stdout}" not in trained.stdout:
        FAILURES.append("run: --sample printed another text than mpt-run sample prints of its checkpoint")
    sampled = run("mpt-run", plan, "--data", text, "--checkpoints", f"{folder}/sampled", "--steps", 5, "--sample", "a line", "--every", 2)
    expect("run, samples between checkpoints", sampled, 0, "step-00000002: a line", "step-00000004: a line", "step-00000005: a line")
    if sampled.stdout.count(": a line") != 3 or [name for name in os.listdir(f"{folder}/sampled") if name != ".running"] != ["step-00000005"]:
        FAILURES.append(f"run: samples between checkpoints left {os.listdir(f'{folder}/sampled')} behind, and printed\n{sampled.stdout}")
    expect("run, how often no sample is printed", run(*train, "--steps", 6, "--resume", "auto", "--sample-every", 2), 2, "--sample-every", "--sample")
    expect("run, a sample without checkpoints", run("mpt-run", plan, "--data", text, "--steps", 1, "--sample", "a"), 2, "--sample", "--checkpoints FOLDER")
    expect("run, a tokenizer that is none", run(*train, "--steps", 6, "--resume", "auto", "--tokenizer", "t.json"), 2, "t.json")
    expect("run, a sample that is too long", run(*train, "--steps", 6, "--resume", "auto", "--sample", "a" * 32), 2, "--prompt: 32 tokens")
    expect("run, resume auto", run(*train, "--steps", 6, "--resume", "auto", "--validation-share", 0.1, "--log", log), 0,
           "step-00000004 after step 4", "step 6/6")
    if '"step":5,' not in open(log).read().splitlines()[1]:
        FAILURES.append("resume: the log does not begin with step 5")
    expect("run, nothing left", run(*train, "--steps", 6, "--resume", saved, "--validation-share", 0.1), 0, "nothing to do", "ask for more steps")
    expect("run, other data", run(*train, "--steps", 7, "--resume", "auto"), 0, "was trained on other data")
    expect("inspect", run("mpt-run", "inspect", saved, "--tensors"), 0, "step     7 (0 skipped)", "embedding.weight", "all checksums right", "any layout can resume it")
    expect("inspect, json", run("mpt-run", "inspect", saved, "--json"), 0, '"format": "mpt-checkpoint"')
    expect("inspect, nothing", run("mpt-run", "inspect", folder), 2, "no complete checkpoint")
    first = run("mpt-run", "sample", saved, "--prompt", "a line", "--tokens", 5, "--temperature", 0)
    expect("sample", first, 0, "a line")
    if first.stdout != run("mpt-run", "sample", saved, "--prompt", "a line", "--tokens", 5, "--top-k", 1).stdout:
        FAILURES.append("sample: the likeliest of one token is another one")
    sampled = run("mpt-run", "sample", saved, "--prompt", "a line", "--tokens", 12).stdout
    stop = next(letter for letter in sampled[6:] if letter not in "\\abcdefx0123456789\n")  # no part of an escaped byte
    until = sampled[:sampled.index(stop, 6)] + "\n"
    if run("mpt-run", "sample", saved, "--prompt", "a line", "--tokens", 12, "--stop", stop).stdout != until:
        FAILURES.append("sample: --stop does not end the text where its text first comes")
    if run("mpt-run", "sample", saved, "--prompt", "a line", "--tokens", 5, "--top-k", 1, "--stop", "a line").stdout != first.stdout:
        FAILURES.append("sample: --stop ends the text in the prompt")
    if len({run("mpt-run", "sample", saved, "--prompt", "a", "--temperature", 100, "--seed", seed).stdout for seed in (1, 2, 1)}) != 2:
        FAILURES.append("sample: seeds do not decide the draws")
    expect("sample, an empty prompt", run("mpt-run", "sample", saved, "--prompt", ""), 2, '--prompt: ""; expected a value', "give it one")
    expect("sample, too long", run("mpt-run", "sample", saved, "--prompt", "a" * 32), 2, "--prompt: 32 tokens; expected fewer than the model's 32 positions")
    expect("sample, another tokenizer", run("mpt-run", "sample", saved, "--prompt", "a", "--tokenizer", little_tokenizer(folder, 300)), 2, "ids 0 to 299")
    expect("export", run("mpt-run", "export", saved, f"{folder}/exported", "--type", "bf16"), 0, "config.json", "without a tokenizer")
    os.makedirs(f"{folder}/other")
    write(f"{folder}/other/config.json", {"bos_token_id": 1, "eos_token_id": [2, 3], "hidden_size": 9})
    write(f"{folder}/other/generation_config.json", {"temperature": 0.6})
    little_tokenizer(f"{folder}/other")
    expect("export, like another", run("mpt-run", "export", saved, f"{folder}/like", "--like", f"{folder}/other", "--type", "bf16"), 0, "tokenizer.json", "generation_config.json")
    config = json.load(open(f"{folder}/like/config.json"))
    if [config.get(key) for key in ("bos_token_id", "eos_token_id", "dtype")] != [1, [2, 3], "bfloat16"] or 9 in config.values():
        FAILURES.append(f"export, like another: {config}")
    kept_for_exports(folder, text, saved)
    expect("export, again", run("mpt-run", "export", saved, f"{folder}/exported"), 2, "is there already")
    expect("plan, of an export", run("mpt-plan", "--model", f"{folder}/exported/config.json", "--cluster", "this-machine:2",
                                     "--global-batch", 4, "--seq", 32, "-o", f"{folder}/exported.json"), 0)
    expect("run, init", run("mpt-run", f"{folder}/exported.json", "--data", text, "--steps", 1, "--init", f"{folder}/exported"), 0,
           "starting with the weights of")
    rank = os.path.join(saved, "step-00000007", "rank-00000.safetensors")
    os.truncate(rank, os.path.getsize(rank) - 1)
    expect("run, damaged checkpoint", run(*train, "--steps", 8, "--resume", "auto"), 0, "passed over", "step-00000006 after step 6")
    expect("inspect, damaged", run("mpt-run", "inspect", os.path.dirname(rank)), 2, "rank-00000.safetensors", "the checkpoint is damaged")


def kept_for_exports(folder, text, saved):
    """A run that began with a Hugging Face folder, or knows its tokenizer, exports both without --like; so do runs that resume it."""
    def exported(name, *options):
        expect(f"export of {name}", run("mpt-run", "export", f"{folder}/{name}", f"{folder}/{name}-exported", *options), 0, "tokenizer.json")
        return json.load(open(f"{folder}/{name}-exported/config.json")), sorted(os.listdir(f"{folder}/{name}-exported"))

    expect("plan, of an export with tokens", run("mpt-plan", "--model", f"{folder}/like/config.json", "--cluster", "this-machine:2", "--global-batch", 4, "--seq", 32,
                                                 "-o", f"{folder}/tuned.json"), 0)
    tuning = ("mpt-run", f"{folder}/tuned.json", "--data", text, "--checkpoints", f"{folder}/tuned")
    expect("run, init with tokens", run(*tuning, "--steps", 1, "--init", f"{folder}/like"), 0, "starting with the weights of")
    expect("run, resumed without init", run(*tuning, "--steps", 2, "--resume", "auto"), 0, "step 2/2")
    config, files = exported("tuned")
    if [config.get(key) for key in ("bos_token_id", "eos_token_id", "dtype")] != [1, [2, 3], "bfloat16"] or "generation_config.json" not in files:
        FAILURES.append(f"export, of a run with --init: {config}, {files}")
    tokenizer = little_tokenizer(folder, 256)
    expect("run, with a tokenizer", run("mpt-run", f"{folder}/tuned.json", "--data", text, "--checkpoints", f"{folder}/told", "--steps", 1, "--tokenizer", tokenizer), 0)
    config, files = exported("told", "--type", "fp16")
    if config["eos_token_id"] is not None or config["dtype"] != "float16" or open(tokenizer).read() != open(f"{folder}/told-exported/tokenizer.json").read():
        FAILURES.append(f"export, of a run with --tokenizer: {config}, {files}")
    with_default, named = (run("mpt-run", "sample", f"{folder}/told", "--prompt", "a", *more) for more in ((), ("--tokenizer", tokenizer)))
    if with_default.stdout != named.stdout or with_default.returncode != 0:
        FAILURES.append(f"sample: not by the tokenizer of the run: {with_default} {named}")
    with open(tokenizer, "w", encoding="utf-8") as file:
        file.write("a private file that the checkpoint names")
    expect("export, a file that is no tokenizer", run("mpt-run", "export", f"{folder}/told", f"{folder}/handed-on"), 2, tokenizer)
    if os.path.exists(f"{folder}/handed-on/tokenizer.json"):
        FAILURES.append("export: a file that is no tokenizer was copied")
    os.remove(tokenizer)
    expect("export, a tokenizer that is gone", run("mpt-run", "export", f"{folder}/told", f"{folder}/gone"), 0, "which the run used, is gone", "without a tokenizer")


def wrong_training(folder, text, plan):
    def refused(name, *parts, data=(text,), options=()):
        expect("run, " + name, run("mpt-run", plan, "--data", *data, "--steps", 2, *options), 2, *parts)

    refused("resume from nothing", "no complete checkpoint", options=["--resume", f"{folder}/none"])
    refused("resume auto without a folder", "add --checkpoints", options=["--resume", "auto"])
    refused("init from nothing", "no complete checkpoint", options=["--init", f"{folder}/none"])
    refused("a learning rate that rises", "--min-lr: 0.1", "at most --lr, which is 0.01", options=["--lr", 0.01, "--min-lr", 0.1])
    refused("init and resume", "given with --init", options=["--init", folder, "--resume", folder])
    refused("evaluation without data", "--validation-share", options=["--evaluate-every", 2])
    refused("half a blend", "a weight and its file", data=("0.5", text, "0.5"))
    refused("tokens of unknown width", "--data-format", data=(write(f"{folder}/tokens.bin", "0123456789"),))
    write(f"{folder}/tokens.idx", "nothing of the kind, but long enough for a header")
    refused("no index", "MMIDIDX", data=(f"{folder}/tokens",), options=["--data-format", "megatron"])
    refused("a folder for checkpoints that cannot be", "--checkpoints", options=["--checkpoints", "/proc/none"])
    expect("run, no data", run("mpt-run", plan), 2, "--data", "missing")
    gpus = f"{folder}/gpus.json"
    eight = f"{folder}/eight.json"
    run("mpt-plan", "--model", "gpt2-124m", "--cluster", "dgx-h100:1", "--global-batch", 64, "--offload", "on", "--tp", 2, "-o", gpus)
    own = f"{folder}/own.json"
    run("mpt-plan", "--model", "gpt2-124m", "--cluster", "dgx-h100:1", "--global-batch", 64, "--framework", "mpt", "-o", own)
    expect("run, a plan for GPUs without one", run("mpt-run", own, "--data", text), 3, "no GPU can be used", "without a GPU: --device cpu",
           f"mpt-plan export {own} --to FRAMEWORK")
    expect("run, a plan for GPUs without one, last remedy", run("mpt-plan", "export", own, "--to", "megatron-core", "-o", f"{folder}/job"), 0, "wrote")
    expect("run, another framework's plan for GPUs", run("mpt-run", gpus, "--data", text), 3, "no GPU can be used")
    run("mpt-plan", "--model", "tiny-gpt", "--cluster", "dgx-h100:1", "--global-batch", 8, "--seq", 64, "--dp", 2, "--tp", 1, "--pp", 1, "--ranks",
        2, "-o", gpus)
    expect("run, a plan whose predictions are another framework's", run("mpt-run", gpus, "--data", text, "--device", "cpu", "--steps", 1), 0,
           "predicted for megatron-core")
    run("mpt-plan", "--model", "tiny-gpt", "--cluster", "dgx-h100:1", "--global-batch", 8, "--seq", 64, "--dp", 1, "--tp", 2, "--pp", 1, "--ranks",
        2, "--framework", "mpt", "--precision", "fp8", "-o", eight)
    in_8_bits = run("mpt-run", eight, "--data", text, "--device", "cpu", "--steps", 2)
    expect("run, fp8", in_8_bits, 0, "peak memory")
    peaks = [line for line in in_8_bits.stdout.splitlines() if "peak memory" in line]
    if not peaks or not all(line.endswith("as predicted") for line in peaks):
        FAILURES.append(f"run, fp8: {peaks}")
    run("mpt-plan", "--model", "tiny-gpt", "--cluster", "dgx-b200:1", "--global-batch", 8, "--seq", 64, "--dp", 1, "--tp", 2, "--pp", 1, "--ranks",
        2, "--precision", "mxfp8", "-o", eight)
    expect("run, mxfp8", run("mpt-run", eight, "--data", text, "--device", "cpu", "--steps", 2), 2, "/layout", "mxfp8", "fp16, fp8", "plan again with --framework mpt")
    expect("run, an unknown device", run("mpt-run", gpus, "--data", text, "--device", "emulate"), 2, "--device", "auto, cpu, cuda")
    os.environ.update(RANK="2", WORLD_SIZE="2")
    expect("run, a launcher's nonsense", run("mpt-run", plan, "--data", text), 2, "environment variable RANK", "0 to 1")
    os.environ.update(RANK="0", WORLD_SIZE="3")
    expect("run, processes that do not divide", run("mpt-run", plan, "--data", text), 2, "3 processes", "divides the plan's 4 ranks")
    del os.environ["RANK"], os.environ["WORLD_SIZE"]


def interrupted(plan, text):
    command = [os.path.join(PROGRAMS, "mpt-run"), plan, "--data", text, "--steps", "1000000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stdout:  # ends, too, if the program does
        if line.startswith("step"):
            break
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    done = subprocess.CompletedProcess(command, process.returncode, output, errors)
    expect("run, interrupted", done, 130, "Measured against predicted", "stopped after step")



def own_kernels(folder):
    log = write(f"{folder}/all_reduce.txt", """# nThread 1 nGpus 4
#  Rank  0 Group  0 Pid   1 on   node device  0 [0x0f] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   1 on   node device  1 [0x2d] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid   1 on   node device  2 [0x44] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid   1 on   node device  3 [0x5b] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     8388608       2097152     float     sum      -1   10751.1   0.78    1.17      0   10687.2   0.78    1.17      0
   536870912     134217728     float     sum      -1   233010    2.30    3.45      0   232740    2.30    3.46      0
# Avg bus bandwidth    : 2.31
""")
    simumax = write(f"{folder}/simumax.json", {"accelerator": {"op": {"matmul": {"tflops": 989, "accurate_efficient_factor": {
        "b=1, m=4096, k=8192, n=10240, layout=TN, accumulate=False, out_dtype=bf16": 0.645,
        "b=1, m=10240, k=4096, n=8192, layout=NT, accumulate=False, out_dtype=bf16": 0.6, "b=3, m=1": 0.5, "x" * 100000: 0.5}}}}})
    trace = write(f"{folder}/kineto.json", {"traceEvents": [
        {"cat": "cpu_op", "name": "aten::mm", "args": {"External id": 7, "Input Dims": [[4096, 8192], [8192, 1024]]}},
        {"cat": "kernel", "name": "gemm", "dur": 101.5, "args": {"External id": 7}}, {"ph": "M"}, 3,
        {"cat": "cpu_op", "args": {"External id": "x"}},
        {"cat": "cpu_op", "name": "aten::mm", "args": {"External id": 9, "Input Dims": [[], "x"]}}]})
    kernels, device = f"{folder}/kernels.json", ["--device", "h100-sxm-80gb"]
    expect("import", run("mpt-profile", "import", log, "--operation", "all_reduce", simumax, trace, *device, "-o", kernels), 0,
           "2 matrix products, 0 attention shapes and 2 collectives of h100-sxm-80gb from 3 files", f"--kernels {kernels}")
    held = json.load(open(kernels))
    first, last = held["collectives"][0], held["products"][1]
    if (first["operation"], first["ranks"], first["bytes"]) != ("all_reduce", 4, 8388608) or abs(first["seconds"] - 0.0107511) > 1e-9:
        FAILURES.append(f"import: {first}")
    if (last["pass"], last["m"], last["n"], last["k"]) != ("any", 4096, 1024, 8192) or abs(last["seconds"] - 101.5e-6) > 1e-9:
        FAILURES.append(f"import: {last}")
    problem = ["--model", "llama3-8b", "--cluster", "dgx-h100:1", "--global-batch", 32, "--tp", 4, "--sp", "off", "--top", 1]
    slow, fast = run("mpt-plan", *problem, "--kernels", kernels, "--json"), run("mpt-plan", *problem, "--json")
    if json.loads(slow.stdout)["prediction"]["step_time_s"] < 3 * json.loads(fast.stdout)["prediction"]["step_time_s"]:
        FAILURES.append("import: an all-reduce a hundred times slower does not show in the plan")
    plan = write(f"{folder}/own.json", slow.stdout)
    expect("import, explained without them", run("mpt-plan", "explain", plan, "--why-not", "tp=2"), 2, "--kernels", "digest")
    expect("import, explained", run("mpt-plan", "explain", plan, "--why-not", "tp=2", "--kernels", kernels), 0, "Why not tp=2?", "The fastest of the")
    expect("import, explained with others", run("mpt-plan", "explain", plan, "--operators", "--kernels", write(f"{folder}/fewer.json", {**held, "collectives": []})),
           2, "--kernels", "another file")
    expect("import, kernels that no plan had", run("mpt-plan", "explain", write(f"{folder}/catalog.json", fast.stdout), "--why-not", "tp=2", "--kernels", kernels),
           2, "--kernels", "leave it out")
    run("mpt-profile", "--model", "tiny-gpt", "--seq", 32, "--quick", "--quiet", "--max-micro-batch", 1, "--max-ranks", 1,
        "--max-tensor", 1, "-o", f"{folder}/measured.json")
    measured = json.load(open(f"{folder}/measured.json"))
    measured["machine"].update(kind="gpu", device="NVIDIA H100 80GB HBM3")
    expect("import, a profile in fp32", run("mpt-profile", "import", write(f"{folder}/own.json", measured), *device, "-o", kernels), 2,
           "/precision", "bf16 or fp16")
    own = write(f"{folder}/own.json", {**measured, "precision": "bf16"})
    expect("import, a profile", run("mpt-profile", "import", own, *device, "-o", kernels), 0, ", 2 attention shapes and 0 collectives")
    expect("import, a profile of another GPU", run("mpt-profile", "import", own, "--device", "h200-sxm-141gb", "-o", kernels), 2,
           "NVIDIA H100 80GB HBM3; expected h200-sxm-141gb")
    measured["machine"].update(kind="cpu")
    expect("import, a CPU's profile", run("mpt-profile", "import", write(f"{folder}/own.json", measured), *device, "-o", kernels), 2, "--device")
    expect("import, without a name", run("mpt-profile", "import", log, *device, "-o", kernels), 2, "--operation")
    network_is_not_the_node(folder, device)
    expect("import, something else", run("mpt-profile", "import", __file__, *device, "-o", kernels), 2, "nccl-tests")
    expect("import, other JSON", run("mpt-profile", "import", write(f"{folder}/other.json", [1]), *device, "-o", kernels), 2, "no times that can be read")
    expect("import, unknown device", run("mpt-profile", "import", trace, "--device", "abacus", "-o", kernels), 2, "--device")
    expect("import, no file", run("mpt-profile", "import", f"{folder}/none", *device, "-o", kernels), 2, "none")
    elsewhere = ["--model", "llama3-8b", "--cluster", "dgx-a100:1", "--global-batch", 32]
    expect("kernels of another device", run("mpt-plan", *elsewhere, "--kernels", kernels), 2, "times of h100-sxm-80gb")
    held["products"][0]["seconds"] = -1
    expect("kernels, wrong fields", run("mpt-plan", *problem, "--kernels", write(f"{folder}/wrong_kernels.json", held)), 2, "/products/0/seconds")
    held["products"][0]["seconds"], held["collectives"][0]["operation"] = 1e-3, "gossip"
    expect("kernels, wrong operation", run("mpt-plan", *problem, "--kernels", write(f"{folder}/wrong_kernels.json", held)), 2, "/collectives/0/operation")
    expect("profile without a model", run("mpt-profile"), 2, "--model", "missing")


def network_is_not_the_node(folder, device):
    """A slow all-reduce of nccl-tests between two hosts, as srun -l shows it: it costs between nodes, and nothing inside them."""
    rows = "".join(f"0:  {8 << 20 << n}  1  float  sum  -1  {40000 << n}.0  0.21  0.41  0\n" for n in range(6))
    two_hosts = write(f"{folder}/two_hosts.txt", "0: # Collective test starting: all_reduce_perf\n" + "".join(
        f"0: #  Rank {rank:2} Group  0 Pid   1 on  node{rank // 8} device  {rank % 8} [0x18] NVIDIA H100 80GB HBM3\n" for rank in range(16)) + rows)
    network = f"{folder}/network.json"
    expect("import, two hosts", run("mpt-profile", "import", two_hosts, *device, "-o", network), 0, "6 collectives")
    if {(c["ranks"], c.get("hosts")) for c in json.load(open(network))["collectives"]} != {(16, 2)}:
        FAILURES.append("import: ranks on two hosts are not known as such")
    exposed = []
    for options in ([], ["--kernels", network]):
        done = run("mpt-plan", "estimate", "--model", "llama3-8b", "--cluster", "dgx-h100:2", "--global-batch", 32, "--tp", 4, "--dp", 4, *options, "--json")
        exposed.append({e["kind"]: e["seconds"] for e in json.loads(done.stdout)["prediction"]["exposed"]})
    if exposed[1]["tensor"] != exposed[0]["tensor"] or exposed[1]["gradients"] < 3 * exposed[0]["gradients"]:
        FAILURES.append(f"import: what was measured between hosts changes {exposed}")


def lines_of_requests(folder):
    """A file of requests: each line has its answer, which is that of the same request alone."""
    small = {
        "model": {"name": "gpt-22b", "hidden": 6144, "vocab": 51200, "max_positions": 2048, "norm": "layer_norm", "position": "learned",
                  "layers": equal_layers(48, {"heads": 64, "kv_heads": 64, "head_dim": 96}, 24576), "tied_embeddings": True},
        "global_batch": 4, "seq": 2048, "framework": "megatron-core", "cluster": "dgx-a100:1",
        "layout": {"tensor": 8, "pipeline": 1, "data": 1, "chunks": 1, "micro_batch": 4, "sequence_parallel": True, "recompute": "selective",
                   "precision": "fp16", "schedule": "1f1b", "layers_per_stage": [48]}}

    def lines(name, *requests):
        path = f"{folder}/{name}.jsonl"
        with open(path, "w") as file:
            file.writelines((request if isinstance(request, str) else json.dumps(request)) + "\n" for request in requests)
        return path

    def answers(*words):
        return [json.loads(line) for line in run("mpt-plan", "estimate", "--requests", *words).stdout.splitlines()]

    three = lines("three", small, "", small | {"cluster": "abacus:1"}, small | {"global_batch": 8})
    one, none, more = answers(three)
    alone = json.loads(run("mpt-plan", "estimate", "--request", write(f"{folder}/alone.json", small), "--json").stdout)
    if any(one[part] != alone[part] for part in ("model", "cluster", "workload", "layout", "memory_limit_bytes", "cost", "notes")):
        FAILURES.append("estimate --requests: another answer than --request has")
    if one["prediction"] | {"start_s": [], "end_s": []} != alone["prediction"] | {"start_s": [], "end_s": []} or not one["fits"]:
        FAILURES.append(f"estimate --requests: {one['prediction']}, alone {alone['prediction']}")
    step_s = one["prediction"]["step_time_s"]
    if abs(sum(one["work_s"].values()) - step_s) > 1e-9 or not 0 < one["safe_bytes"] < one["memory_limit_bytes"] or more["prediction"]["step_time_s"] < 1.5 * step_s:
        FAILURES.append(f"estimate --requests: {one}")
    if list(none) != ["error"] or "abacus" not in none["error"] or "three.jsonl:3" in none["error"]:
        FAILURES.append(f"estimate --requests: {none}")
    expect("estimate, requests of which one is wrong", run("mpt-plan", "estimate", "--requests", three), 2, "step_time_s", "abacus")
    expect("estimate, requests", run("mpt-plan", "estimate", "--requests", lines("right", small), "--json"), 0, "step_time_s")
    expect("estimate, no requests", run("mpt-plan", "estimate", "--requests", lines("empty")), 0)
    for name, line, words in (("no_json", "text", ["no_json.jsonl:1"]), ("number", "3", ["number.jsonl:1", "the number 3"]),
                              ("misspelt", small | {"seqq": 1}, ["misspelt.jsonl:1 at /seqq", "seq"]),
                              ("execution", small | {"execution": ["attention=flash9"]}, ["attention"])):
        expect(f"estimate, requests, {name}", run("mpt-plan", "estimate", "--requests", lines(name, line)), 2, *words)
    expect("estimate, requests missing", run("mpt-plan", "estimate", "--requests", f"{folder}/none.jsonl"), 2, "none.jsonl")
    expect("estimate, requests beside a request", run("mpt-plan", "estimate", "--requests", three, "--request", f"{folder}/alone.json"), 2, "--requests", "excludes --request")
    for option in ("--calibration", "--without-source"):
        expect(f"estimate, {option} alone", run("mpt-plan", "estimate", "--request", f"{folder}/alone.json", option, "x"), 2, option, "without --requests")
    slow, = answers(f"{folder}/right.jsonl", "--calibration", write(f"{folder}/slow.json", {"sustained": 0.86}))
    if not slow["prediction"]["step_time_s"] > step_s:
        FAILURES.append("estimate --requests --calibration: nothing changes")
    for name, values, words in (("half", {"sustained": 0.5}, ["half.json at /sustained", "between 0.85 and 1"]), ("bad", {"sustained": "x"}, ["sustained"])):
        expect(f"estimate, {name} calibration", run("mpt-plan", "estimate", "--requests", three, "--calibration", write(f"{folder}/{name}.json", values)), 2, *words)
    apart, = answers(f"{folder}/right.jsonl", "--without-source", "megatron")
    if apart["prediction"]["step_time_s"] != step_s or apart["prediction"]["confidence"] == one["prediction"]["confidence"]:
        FAILURES.append("estimate --requests --without-source: the same confidence")
    expect("estimate, no such source", run("mpt-plan", "estimate", "--requests", three, "--without-source", "megatrn"), 2, "--without-source", 'did you mean "megatron')
    expect("validate is a script", run("mpt-plan", "validate", f"{folder}/right.jsonl"), 2, "validate")


def frameworks_by_name():
    gpu = ["--model", "gpt2-1.5b", "--cluster", "dgx-h100:1", "--global-batch", 64]
    expect("framework", run("mpt-plan", *gpu, "--framework", "pytorch"), 0, "tp1")
    expect("unknown framework", run("mpt-plan", *gpu, "--framework", "megatron-cor"), 2, "--framework", "megatron-core")



def command_after(done, heading):
    """The first command below a heading, as words, for these programs."""
    words = shlex.split(done.stdout.split(heading + "\n")[1].split("\n\n")[0].replace("\\\n", " "), comments=True)
    return [os.path.basename(words[0]), *words[1:]]


def remedies(folder):
    """Commands that are printed work as they stand."""
    plan, better = f"{folder}/one_node.json", f"{folder}/better.json"
    run("mpt-plan", "--model", "llama3-8b", "--cluster", "dgx-h100:1", "--global-batch", 64, "-o", plan)
    done = run("mpt-plan", "estimate", "--plan", plan, "--cluster", "dgx-a100:2")
    expect("estimate, another cluster", done, 0, "NEXT", "--request")
    command = [better if word == "plan.json" else word for word in command_after(done, "NEXT")]
    expect("estimate, the next command", run(*command), 0, "RECOMMENDED", "wrote " + better)
    bounded = f"{folder}/bounded.json"
    run("mpt-plan", "--request", plan, "--tp", 8, "-o", bounded)
    done = run("mpt-plan", "estimate", "--plan", bounded, "--cluster", "dgx-a100:2")
    expect("estimate, a plan with limits", done, 0, "BETTER")
    if "NEXT" in done.stdout:
        FAILURES.append("estimate, a plan with limits: a command that keeps them:\n" + done.stdout)
    beyond = ["--model", "gpt2-124m", "--cluster", "dgx-h100:1", "--global-batch", 64, "--seq", 1024, "--tp", 1, "--pp", 2, "--dp", 4, "--schedule", "zb-h1"]
    done = run("mpt-plan", *beyond, "--beyond-framework", "-o", f"{folder}/beyond.json")
    expect("beyond the framework", done, 0, "wrote")
    expect("beyond the framework, export", run("mpt-plan", "export", f"{folder}/beyond.json", "--to", "megatron-core", "-o", folder), 2, "schedule",
           "mpt-plan --framework megatron-core plans for what it can", "--force")
    lacking = ["--model", "opt-30b", "--cluster", "dgx-h100:2", "--global-batch", 64, "--seq", 2048]
    expect("a model that the usual framework lacks", run("mpt-plan", *lacking), 0, "does not train this: planned for --framework deepspeed")
    lacking += ["--framework", "megatron-core"]
    expect("a model that the framework lacks", run("mpt-plan", *lacking), 2, "--beyond-framework")
    run("mpt-plan", *lacking, "--beyond-framework", "-o", f"{folder}/lacking.json")
    done = run("mpt-plan", "export", f"{folder}/lacking.json", "--to", "megatron-core", "-o", folder)
    expect("a model that the framework lacks, export", done, 2, "no plan of this model and way to train would run there")
    own = f"{folder}/on_cpus.json"
    run("mpt-plan", "--model", "tiny-gpt", "--cluster", "this-machine:2", "--framework", "pytorch", "--global-batch", 8, "--seq", 64, "--zero", 3, "-o", own)
    done = run("mpt-plan", "export", own, "--to", "pytorch", "-o", folder)
    expect("export, a plan for PyTorch on CPUs", done, 0, "wrote")
    if "warning" in done.stdout:
        FAILURES.append("export, a plan for PyTorch on CPUs: " + done.stdout)


def smoke(folder):
    """Exports for two CPU processes keep the kind of model and the first axis, and frameworks that do not start there are named."""
    plan = f"{folder}/smoke.json"
    run("mpt-plan", "--model", "llama3-8b", "--cluster", "dgx-h100:2", "--global-batch", 64, "--framework", "pytorch", "--pp", 4, "--tp", 2, "--schedule", "1f1b",
        "--recompute", "full", "-o", plan)
    expect("smoke", run("mpt-plan", "export", plan, "--smoke", "--to", "pytorch", "-o", f"{folder}/smoke"), 0, "CUDA_VISIBLE_DEVICES= torchrun --nproc-per-node 2")
    text = open(f"{folder}/smoke/mpt_train.py").read()
    for words in ("MESH = [2, 1, 1, 1, 1]", "LAYERS = [2, 2]", "RECOMPUTED = [2, 2]", '"hidden": 512', '"heads": 4', '"kv_heads": 2', '"head_dim": 128', 'PRECISION = "fp32"'):
        if words not in text:
            FAILURES.append(f"smoke: no {words} in mpt_train.py")
    for target, why in (("torchtitan", "mpt.verify runs a step"), ("trl", "trained weights"), ("slurm", "a batch file for a cluster")):
        expect(f"smoke, {target}", run("mpt-plan", "export", plan, "--smoke", "--to", target, "-o", f"{folder}/none"), 2, f"--smoke --to {target}: ", why, "expected one of pytorch")
    if os.path.exists(f"{folder}/none"):
        FAILURES.append("smoke: files of a target that is refused")


def less_memory(folder):
    """What the page offers to whoever runs out of memory fits."""
    for model, options in (("llama3-70b", ["--cluster", "dgx-h100:8"]), ("qwen3-30b-a3b", ["--cluster", "dgx-h100:1", "--framework", "torchtitan"])):
        plan, page = f"{folder}/{model}.json", f"{folder}/{model}.html"
        run("mpt-plan", "--model", model, *options, "--global-batch", 64, "-o", plan, "--report", page)
        limits = re.findall(r"--request plan.json --memory ([0-9.]+[GM]iB)", open(page).read())
        if not limits:
            expect(f"less memory, {model}: nothing is offered", run("mpt-plan", "--request", plan, "--memory", f"{int(0.9 * peak_of(plan))}B"), 2, "needs at least")
        for limit in limits:
            expect(f"less memory, {model}", run("mpt-plan", "--request", plan, "--memory", limit), 0, "RECOMMENDED")


def peak_of(plan):
    return max(rank["peak_bytes"] for rank in json.load(open(plan))["prediction"]["memory"])


def values_that_are_none(folder):
    job = ["--model", "llama3-8b", "--cluster", "dgx-h100:1", "--global-batch", 64]
    expect("values, one is missing", run("mpt-plan", *job, "--tp", "1,,2"), 2, '--tp: "1,,2"', "one comma")
    expect("values, an empty one", run("mpt-plan", *job, "--framework", ""), 2, '--framework: ""', "leave the option out")
    expect("values, an option of which a part was typed", run("mpt-plan", *job, "--mem", "3GiB"), 2, "did you mean --memory?")
    expect("values, an option twice", run("mpt-plan", *job, "--report", f"{folder}/a.html", "--report", f"{folder}/b.html"), 2, "--report: given 2 times; expected one value")
    plan = f"{folder}/values.json"
    run("mpt-plan", *job, "-o", plan)
    expect("values, an option that is needed", run("mpt-plan", "export", plan), 2, "--to: missing")
    expect("values, below the least", run("mpt-plan", *job, "--goodput", 0), 2, '--goodput: "0"; expected numbers from 0.01')
    expect("values, a number beyond all", run("mpt-plan", "explain", write(f"{folder}/large.json", '{"format": 1e999}')), 2, "a number that is too large")
    expect("values, fp8 on CPUs", run("mpt-profile", "--model", "tiny-gpt", "--precision", "fp8"), 2, "--precision: fp8 on CPUs", "fp32, bf16 or fp16")
    zoo = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models/zoo/llama3-8b.json")
    expect("a file of the zoo", run("mpt-plan", "model", zoo), 0, "8.03B")
    nameless = {**json.load(open(zoo)), "name": ""}
    expect("a model without a name", run("mpt-plan", "model", write(f"{folder}/nameless.json", nameless)), 2, "/name: an empty text")


with tempfile.TemporaryDirectory() as folder:
    model, text, profile, plan, base = first_use(folder)
    wrong_profile(folder, model, profile)
    noisy_profile(folder, text, profile, base)
    offloaded(folder, text, base)
    tokenized(folder)
    unevenly_loaded(folder)
    planned_for_another_framework(folder, text)
    profile_of_two_hosts(folder, model)
    wrong_plan(folder, model, profile, base)
    plan_commands(folder, base, profile)
    judged(folder)
    compared(folder)
    exported_elsewhere(folder)
    other_clusters(folder)
    lines_of_requests(folder)
    frameworks_by_name()
    own_kernels(folder)
    remedies(folder)
    less_memory(folder)
    smoke(folder)
    values_that_are_none(folder)
    wrong_run(folder, text, plan)
    checkpoints(folder, text, plan)
    wrong_training(folder, text, plan)
    interrupted(plan, text)
print("\n".join(FAILURES))
print(f"{CHECKS - len(FAILURES)} of {CHECKS} as expected")
sys.exit(1 if FAILURES else 0)
