# SPDX-License-Identifier: Apache-2.0
"""Every line that mpt-plan prints to be typed works: the commands under NEXT, and the remedies of errors, notes and risks.

Usage: lines_test.py FOLDER_OF_PROGRAMS [REQUESTS] [SEED]

Requests are drawn: models, clusters, frameworks, switches, degrees that do not divide, memory limits, wrong words. A printed command runs
and ends with 0. Each remedy is applied to the command that failed, and removes that error; the first one, again and again, ends in an
answer. What starts on GPUs is not run: its files are there.
"""

import concurrent.futures
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

PROGRAMS = os.path.abspath(sys.argv[1])
REQUESTS = int(sys.argv[2]) if len(sys.argv) > 2 else 70
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1
ENVIRONMENT = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
SLOWEST_S = 150
MOST_STEPS = 8  # remedies one after the other until there is an answer
DONE = (0, 4)  # 4: a checked layout may not fit

MODELS = ["llama3-8b", "llama3.2-1b", "llama3-70b", "qwen2.5-7b", "qwen3-0.6b", "qwen3-8b", "qwen3-30b-a3b", "mixtral-8x7b", "gemma3-4b",
          "gpt2-1.5b", "gpt-oss-20b", "deepseek-v2-lite", "qwen3.5-9b", "nemotron-nano-9b-v2", "falcon-h1-7b", "llama4-scout", "tiny-llama"]
SMALL_MODELS = ["tiny-gpt", "tiny-llama", "smollm2-135m", "llama3-8b"]
CLUSTERS = ["dgx-h100:1", "dgx-h100:1", "dgx-h100:2", "dgx-a100:1", "dgx-a100-40gb:1", "rtx4090:1x2", "rtx4090:1x8", "rtx4090:4", "rtx3090:1x4",
            "l40s-pcie:1", "gh200-quad:1", "mi300x:1", "dgx-h100:6", "this-machine:4", "this-machine:1"]
FRAMEWORKS = ["mpt", "megatron-core", "megatron-bridge", "torchtitan", "pytorch", "fsdp2", "transformers-fsdp", "transformers-deepspeed",
              "automodel", "deepspeed"]
SWITCHES = [  # how often, the option, its values
    (0.2, "--lora", [8, 16]), (0.02, "--lora-targets", ["qkv", "qkv,up"]), (0.05, "--frozen-weights", ["nf4", "bf16"]),
    (0.1, "--precision", ["fp8", "fp16", "fp32", "mxfp8"]), (0.1, "--memory", ["4GiB", "20GiB", "40GiB", "200GiB"]),
    (0.15, "--tp", [1, 2, 3, 4, 8, 16]), (0.15, "--pp", [1, 2, 3, 4, 6, 8]), (0.12, "--cp", [1, 2, 4]), (0.15, "--dp", [1, 2, 4, 5, 8]),
    (0.15, "--zero", [0, 1, 2, 3]), (0.05, "--ep", [2, 3, 8]), (0.12, "--micro-batch", [1, 2, 3, 64]),
    (0.12, "--recompute", ["none", "full", "selective"]), (0.06, "--offload", ["on", "off"]), (0.04, "--sp", ["on", "off"]),
    (0.06, "--schedule", ["1f1b", "interleaved", "zb-h1", "dualpipe-v", "gpipe"]), (0.05, "--optimizer", ["adamw8", "adafactor", "muon", "sgd"]),
    (0.04, "--chunks", [2, 3]), (0.04, "--cp-method", ["ring", "all_to_all"]), (0.04, "--gradients", ["fp32", "bf16"]),
    (0.03, "--dispatch", ["once"]), (0.03, "--etp", [1, 2]), (0.04, "--gpus", [2, 4, 8, 64]), (0.03, "--freeze", ["embedding", "experts"]),
    (0.04, "--execution", ["graphs=true", "loss=chunked", "fp8_attention=true"]), (0.03, "--recompute-modules", ["core_attn", "mlp"]),
    (0.02, "--expert-load", [1.5]), (0.02, "--price", [2]), (0.02, "--offload-activations", ["core_attn"])]
WRONG_WORDS = [  # what people type: options of other programs, values in other units, misspelt names
    ("", "--fsdp", None), ("", "--gradient-checkpointing", None), ("", "--activation-checkpointing", "full"), ("", "--batch-size", "64"),
    ("", "--nodes", "8"), ("", "--fsdp", "1"), ("", "--gradient-accumulation-steps", "8"), ("", "--num-gpus", "8"), ("", "--mbs", "2"),
    ("", "--global-batch", "4M"), ("", "--global-batch", "128k"), ("", "--seq", "4k5"), ("", "--tp", "0"), ("", "--tp", "1.5"), ("", "--zero", "4"),
    ("", "--precision", "int8"), ("", "--precision", "float16"), ("", "--execution", "help"), ("", "--execution", "flash=true"),
    ("", "--overlap", "help"), ("", "--model", "lama3-8b"), ("", "--model", "Qwen/Qwen3-Coder-Next"), ("", "--cluster", "h100"),
    ("", "--cluster", "8xh100"), ("", "--cluster", "a100:8"), ("", "--cluster", "h100:16"), ("", "--cluster", "this-machine"),
    ("", "--cluster", "rtx5090"), ("", "--framework", "axolotl"), ("", "--framework", "nemo"), ("", "--framework", "fsdp"), ("", "--memory", "80"),
    ("", "--freeze", "all"), ("", "--lora", "yes"), ("", "--recompute", "true"), ("", "--optimizer", "adam"), ("", "--offload", "cpu"),
    ("", "--schedule", "1F1B"), ("", "--frozen-weights", "int4"), ("", "--lora-targets", "all"), ("", "--memory-margin", "x"),
    ("", "--gpus", "0"), ("", "--layers-per-stage", "4,4"), ("", "--tokenizer", "gpt2"), ("", "--lr", "1e-4"), ("", "--epochs", "3"),
    ("estimate", "--tp", "2,4"), ("estimate", "--recompute", "selective,full"), ("estimate", "--zero", "0,1"), ("", "--seq", "1000000"),
    ("", "--pipeline-parallel-degree", "2"), ("", "--qlora", None), ("", "--lora-rank", "16"), ("", "--hours", "3")]
FILES = [  # commands over files, wrong or not
    "export plan.json", "export plan.json --to foo", "export plan.json --to megatron", "export plan.json --to torchtitan -o run",
    "export plan.json --to huggingface -o run", "export plan.json -o run", "export lora.json --to transformers-fsdp,slurm -o run",
    "export none.json --to megatron", "export text.txt --to megatron", "diagnose plan.json --step-time 60s", "diagnose plan.json",
    "diagnose plan.json --measured 18", "diagnose plan.json text.txt", "explain plan.json --why-not tp=3", "explain plan.json --why-not tpp=3",
    "explain plan.json --why-not", "explain none.json", "import none.yaml --cluster dgx-h100:1", "import text.txt --cluster dgx-h100:1",
    "import run.sh", "import run.sh --cluster dgx-h100:1 --global-batch 100", "compare --model llama3-8b --global-batch 8",
    "compare plan.json --over tp=1,2", "compare --model llama3-8b --cluster dgx-h100:1 --global-batch 8 --over foo=1,2",
    "doctor --model llama3-8b --cluster dgx-a100:1 --framework transformers-fsdp --global-batch 64 --zero 3 --dp 8 --micro-batch 8",
    "doctor --plan plan.json", "doctor", "model foo", "model llama3-8b --as x", "cluster h100:8", "cluster foo", "estimate --plan plan.json --tp 4", "plan llama3-8b",
    "estimate --plan none.json", "--from plan.json --model llama3-8b", "--request none.json", "--request plan.json --global-batch 100",
    "exprt plan.json --to megatron", "check none", "check recipes", "--from plan.json --report plan.html", "pareto", "estimate --plan lora.json",
    "--model llama3-8b --global-batch 8", "--cluster dgx-h100:1 --global-batch 8", "--model llama3-8b --cluster dgx-h100:1", ""]
JOB = "--model llama3-8b --cluster dgx-h100:1 --global-batch"
KNOWN = [  # what somebody typed, and what the answer must say
    (f"{JOB} 100 --dp 8 --tp 1 --pp 1 --cp 1", "--global-batch 96 or --global-batch 104"), (f"estimate {JOB} 100", "--global-batch 96 or --global-batch 104"),
    (f"{JOB} 100 --framework fsdp2 --dp 8", "--global-batch 96"), (f"{JOB} 128 --fsdp", "did you mean --zero 3?"),
    (f"{JOB} 128 --gradient-checkpointing", "did you mean --recompute full?"), (f"{JOB} 128 --qlora", "did you mean --lora 16 --frozen-weights nf4?"),
    (f"{JOB} 128 --bf16", "did you mean --precision bf16?"), (f"{JOB} 128 --cpu-offload", "did you mean --offload on?"),
    (f"{JOB} 128 --flash-attention", "did you mean --execution attention=flash2?"), (f"{JOB} 128 --seq 4,096", "--seq 4096 is that number"),
    (f"{JOB} 128 --deepspeed ds.json", "did you mean --framework transformers-deepspeed?"), (f"{JOB} 128 --per-device-batch-size 2", "did you mean --micro-batch?"),
    (f"{JOB} 128 --gradient-accumulation-steps 8", "did you mean --global-batch?"), (f"{JOB} 128 --framework unsloth", "--framework trl"),
    (f"{JOB} 128 --framework verl", "--framework pytorch"), (f"{JOB} 128 --lengths 512:2048 --seq 1024", "--seq 2048"),
    ("recommend --model llama3-8b --global-batch 64 --cluster dgx-h100", "--cluster dgx-h100:16"),
    (f"{JOB} 4M", "--global-batch 4M-tokens"), (f"{JOB} 128 --execution help", "fp8_head"), ("diagnose plan.json --step-time 60s", "did you mean --measured?"),
    ("--model llama3-8b --cluster this-machine --global-batch 128", "plan for GPUs, such as --cluster dgx-h100:1"),
    ("--model llama3-8b --cluster rtx4090:1 --gpus 8 --global-batch 8", "--cluster rtx4090:1x8"), ("export plan.json", "such as megatron-core,slurm"),
    ("--model llama3-8b --cluster h100-99gb:16 --global-batch 64", "did you mean \"dgx-h100\"?"),
    ("--model qwen3-8b --cluster dgx-h100:1 --global-batch 8 --seq 128k", "rope_scaling"), ("--request plan.json --global-batch 64", "-o new-plan.json"),
    ("--model llama3-8b --global-batch 64 --cluster 8x4090 --framework torchtitan", "--try-first")]
failures = []


VALUE = r"(?!--)(?:[^\s,;:()]|[,:](?=[^\s]))+"  # with commas and colons that stand in it, and none behind it


class Command:
    """Words of a command line. Options are in order, so that a remedy can set and remove them."""

    def __init__(self, words):
        self.words = list(words)

    def __str__(self):
        return shlex.join(self.words)

    def has(self, option):
        return any(word == option or word.startswith(option + "=") for word in self.words)

    def without(self, option, end=None):
        out, at = [], 0
        while at < len(self.words):
            word = self.words[at]
            at += 1
            if word != option:
                out += [] if word.startswith(option + "=") else [word]
            elif at < len(self.words) and not self.words[at].startswith("--") and not self.words[at] == "-o":
                at += 1
        return Command(out)

    def with_option(self, option, value=None):
        names = {"--ranks": "--gpus"}
        rest = self.without(option).without(names.get(option, option))
        return Command(rest.words + [option] + ([] if value is None else [value]))

    def with_word(self, old, new):
        return Command([new if word == old else word for word in self.words])


def options_of(text):
    """'--tp 4 --zero 3' as pairs."""
    return re.findall(rf"(--[a-z][a-z-]*)(?:[ =]({VALUE}))?", text)


def draw_request(rng):
    """Mostly one that somebody could make; its degrees, limits and switches may contradict each other."""
    command = rng.choice([[], [], [], ["estimate"], ["estimate"]])
    cluster = rng.choice(CLUSTERS)
    on_cpus = cluster.startswith("this-machine")
    words = ["mpt-plan", *command, "--model", rng.choice(SMALL_MODELS if on_cpus else MODELS), "--cluster", cluster,
             "--global-batch", str(rng.choice([16, 32, 64, 128] * 2 + [7, 100, 250]))]
    if not on_cpus and rng.random() < 0.8:
        words += ["--framework", rng.choice(FRAMEWORKS)]
    if rng.random() < 0.8:
        words += ["--seq", rng.choice(["512", "1024", "2048", "4096", "8k"] * 2 + ["32k", "1000", "128k"])]
    often = rng.choice([0.25, 1.0])  # one in two has hardly any switch, and mostly an answer
    for chance, option, values in SWITCHES:
        if rng.random() < often * chance:
            words += [option, str(rng.choice(values))]
    return Command(words)


def draw_wrong_words(rng):
    command, option, value = rng.choice(WRONG_WORDS)
    base = ["mpt-plan", *([command] if command else []), "--model", rng.choice(["llama3-8b", "qwen3-0.6b"]), "--cluster", rng.choice(["dgx-h100:1", "dgx-a100:2"]),
            "--global-batch", "128"]
    return Command(base).with_option(option, value)


def misspelt(rng, command):
    """A letter of an option or of a name is missing or comes twice."""
    places = [i for i, word in enumerate(command.words) if i > 0 and len(word) > 5 and not word.startswith("this-machine")]
    at = rng.choice(places)
    word = command.words[at]
    letter = rng.randrange(3, len(word))
    wrong = word[:letter] + (word[letter] if rng.random() < 0.5 else "") * 2 + word[letter + 1:]
    return Command([*command.words[:at], wrong, *command.words[at + 1:]])


def run(folder, words):
    try:
        return subprocess.run(words, cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=SLOWEST_S)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 124, "", f"took more than {SLOWEST_S} s")


# --- errors -------------------------------------------------------------------------------------------------------------------------------

class Problem:
    """Of an error: what is wrong, and the lines of its remedy."""

    def __init__(self, stderr):
        lines = [line for line in stderr.splitlines() if not re.match(r"mpt-\w+: note", line)]
        start = next((i for i, line in enumerate(lines) if re.match(r"mpt-\w+: error: ", line)), 0)
        lines = lines[start:]
        others = [i for i, line in enumerate(lines) if i > 0 and re.match(r"  \S", line)]
        lines = lines[: others[0]] if others else lines
        bar = " " * 15  # of memory, with its legend
        self.remedies = [line.strip() for line in lines if line.startswith("    ") and not line.startswith(bar)]
        self.text = re.sub(r"^mpt-\w+: error: ", "", " ".join(line.strip() for line in lines if not line.startswith("    ")))
        self.where = self.text.split(": ")[0]
        self.option = self.where.split()[0] if self.where.startswith("--") else ""
        self.kind = re.sub(r"(?<=layout )\S.*?(?=:)", "...", self.text.split("; expected")[0])
        expected = re.search(r"; expected (.*)", self.text)
        self.expected = expected[1] if expected else ""

    def __str__(self):
        return "\n    ".join([self.text, *self.remedies])


# Remedies that say what to look for, and no words to type. Each is the best that can be said of its error.
VAGUE = [
    r"^a smaller model$", r"^--force (.* )?writes the files all the same$", r"^check the unit, and that", r"^a larger --cluster$",
    r"docs/\S+ (says|has) ", r"^see --help", r"for (any )?other models?, name the path of its config.json", r"^check the path", r"^name another framework$",
    r"^another (--framework|number of GPUs)$", r"^is (this a file that mpt-plan wrote|the file complete)\?", r"^raise it, or bound the space",
    r"^set the device's", r"^name the file that holds", r"^remove it$", r"^a plan holds its", r"^the plan holds its", r"^download https://\S+ and name its path"]
NOTHING_TO_TYPE = [r"^\S+: (not there|cannot be read)", r"^--execution at /"]  # whoever typed the name knows the right one


def clauses(text):
    return [part for part in re.split(r", or |; | or (?=--)|, (?=--)|, and (?=--)", text) if part.strip()]


def fixes_of_clause(clause, command, problem):
    """Commands that a part of a remedy describes; None where it describes none."""
    clause = clause.strip().rstrip("?")
    option = problem.option
    if clause == "mpt-plan without estimate finds one":
        return [Command([word for word in command.words if word != "estimate"])]
    if found := re.match(r"(?:.* )?leave (?:out )?(it|the option|the others|--.*?)(?: out)?(?:: tp\d.*)?$", clause):
        names = [option] if found[1] in ("it", "the option", "the others") else [name for name, _ in options_of(found[1])]
        fixed = command
        for name in names:
            fixed = fixed.without(name)
        return [fixed] if names[0] else None
    if clause.startswith("did you mean --"):
        meant = options_of(clause)
        at = next((i for i, word in enumerate(command.words) if word.split("=")[0] == option), 0)
        typed = command.words[at + 1: at + 2]
        fixed = command.without(option)
        for name, value in meant:
            fixed = fixed.with_option(name, value or (typed[0] if typed and not typed[0].startswith("-") else "1"))
        return [fixed]
    if found := re.match(r"did you mean the command (\S+)$", clause):
        return [command.with_word(option or problem.where, found[1])]
    if found := re.match(r"did you mean \"?([^\"\s]+?)\"?$", clause):
        wrong = re.search(r"(?:unknown (?:\w+ )*|: )\"([^\"]*)\"", problem.text)
        return [Command([re.sub(rf"(?<![\w-]){re.escape(wrong[1])}(?![\w-])", found[1], word) for word in command.words])] if wrong else None
    if found := re.search(r"(?:^|: )(mpt-(?:plan|run|profile) .*?)(?: (?:plans|writes|says|shows) .*)?$", clause):
        return [Command(shlex.split(found[1]))]
    if found := re.match(r"(?:a|the smallest) cluster of this kind that holds it is (\S+): tp\d.*", clause):
        return [command.without("--gpus").with_option("--cluster", found[1])]
    if found := re.match(r"(?:for example|use|such as|write) ([^\s-]\S*)(?: or (\S+)| for .*)?$", clause):
        return [command.with_option(option, word) for word in found.groups() if word] if option else None
    if re.match(r"name another --framework$|name a framework that trains it$", clause):
        return []  # the list of them stands beside it
    if found := re.match(r"(--framework \S+) has .*", clause):
        return [command.with_option(*found[1].split())]
    if found := re.match(r"(?:--framework |(?=one of ))?(?:one of )?((?:[a-z][a-z0-9-]*(?:, | or )?)+)$", clause) if option == "--framework" else None:
        return [command.with_option("--framework", name) for name in re.split(r", | or ", found[1])]
    if found := re.match(r"(?:write|add|give|name|say|with|search with|choose|plan with|plan for GPUs, such as|for example|or|or give one figure:|such as)? ?((?:--[a-z-]+(?:[ =]" + VALUE + r")?\s*)+)"
                         r"(?:(?:instead|for|to|is|has) ?.*|: .*)?$", clause):
        fixed = command
        for name, value in options_of(found[1]):
            fixed = fixed.with_option(name, value or None)
        return [fixed]
    return None


def fixes(command, problem):
    """All that the remedies of an error say, in their order, and the parts that say nothing that a test knows."""
    found, not_understood = [], []
    for line in [*problem.remedies, *re.findall(r"did you mean [^;]*\?", problem.text)]:
        if line.startswith("use more GPUs"):
            found.append(None)
            continue
        line = line.removeprefix("the ranks share this machine's memory: ")
        if re.match(r"leave out --.*: tp\d", line):
            parts = [line]
        else:
            line = re.sub(r"--framework ([a-z0-9-]+(?: or [a-z0-9-]+)+)", lambda m: " or ".join(f"--framework {name}" for name in m[1].split(" or ")), line)
            parts = clauses(re.sub(r" \(.*?\)", "", line))
        for part in parts:
            if any(re.search(vague, part.strip()) for vague in VAGUE):
                found.append(None)
                continue
            fixed = fixes_of_clause(part, command, problem)
            if fixed is None:
                not_understood.append(part)
            else:
                found += fixed
    return found + of_expected(command, problem), not_understood


def of_expected(command, problem):
    """What was expected, where it is a list or a range, is a remedy, too."""
    option, text = problem.option, problem.expected
    if not option or (not command.has(option) and not re.search("such as|^one of", text)):
        return []
    if names := re.match(r"(?:one of|one that does:) ((?:[\w@.+-]+(?:, | or |$))+)", text):
        choices = [name for name in re.split(r", | or ", names[1]) if name]
        return [command.with_option(option, name) for name in choices[:3]] if option != "--cluster" else [command.with_option(option, choices[0])]
    if example := re.search(r"(?:such as|with its unit:|^none, or some of) (\S+?)(?:,|;| or |$)", text):
        return [command.with_option(option, example[1])]
    if most := re.match(r"at most (?:the )?(\d+)", text):
        return [command.with_option(option, most[1])]
    if least := re.match(r"(?:whole )?numbers from (\d+)", text):
        return [command.with_option(option, str(max(1, int(least[1]))))]
    if only := re.match(r"(\d+|fp32|bf16|fp16)(?:[:,]| or )", text + ","):
        return [command.with_option(option, only[1])]
    if names := re.match(r"--framework ([\w-]+) or ([\w-]+), whose", text):
        return [command.with_option("--framework", names[1])]
    return []


def follow_error(folder, command, done):
    """Every remedy removes its error; the first ones end in an answer."""
    seen, first = set(), command
    for step in range(MOST_STEPS):
        problem = Problem(done.stderr)
        if done.returncode == 3:
            return
        seen.add(str(command))
        described = f"$ {command}\n{problem}"
        if done.returncode not in (2, *DONE):
            failures.append(f"exit {done.returncode}\n$ {command}\n{done.stderr[-1500:]}")
            return
        found, not_understood = fixes(command, problem)
        if not_understood:
            failures.append(f"no test knows what this means: {not_understood}\n{described}")
        if not found and not not_understood and not any(re.search(known, problem.text) for known in NOTHING_TO_TYPE):
            failures.append(f"no remedy\n{described}")
        going_on = None
        for fixed in (fix for fix in found if fix is not None):
            again = run(folder, fixed.words)
            gone = again.returncode in (*DONE, 3) or (again.returncode == 2 and Problem(again.stderr).kind != problem.kind)
            if not gone:
                failures.append(f"the remedy does not help: {fixed}\n{described}\n  then: {Problem(again.stderr)}")
            elif going_on is None or (again.returncode in DONE and going_on[1].returncode not in DONE):
                going_on = (fixed, again)
        if going_on is None or going_on[1].returncode == 3:
            return
        if going_on[1].returncode in DONE:
            follow_next(folder, going_on[0], going_on[1].stdout)
            return
        command, done = going_on
        if str(command) in seen:
            failures.append(f"the remedies go round\n$ {first}\n  back at: {Problem(done.stderr)}")
            return
    failures.append(f"no answer after {MOST_STEPS} remedies\n$ {first}\n  at: $ {command}")


# --- answers ------------------------------------------------------------------------------------------------------------------------------

def next_lines(output):
    if "\nNEXT\n" not in output:
        return []
    block = output.split("\nNEXT\n")[1].split("\n\n")[0]
    return [re.sub(r"\s+# .*", "", " ".join(line.split())) for line in block.replace("\\\n", " ").splitlines()]


def starts_gpus(line):
    return re.match(r"(torchrun|python|sbatch|srun|bash|accelerate|kubectl|cd|[A-Z_]+=\S+ )", line)


def follow_next(folder, command, output):
    for line in next_lines(output):
        if starts_gpus(line):
            missing = [word for word in re.findall(r"[\w.-]+/[\w./-]+\.\w+", line) if not os.path.exists(os.path.join(folder, word))]
            if missing:
                failures.append(f"NEXT: {line}\n  names {missing}, which is not there\n$ {command}")
            continue
        words = shlex.split(line)
        if words[0].endswith("mpt-run"):
            if not data_is_right(folder, words):
                failures.append(f"NEXT: {line}\n  is not data of the model's vocabulary\n$ {command}")
            continue
        done = run(folder, words)
        if done.returncode != 0:
            failures.append(f"NEXT: {line}\n  ends with {done.returncode}: {done.stderr[-800:]}\n$ {command}")
            return


def data_is_right(folder, words):
    """Text is read as bytes. Other vocabularies need files of tokens that can hold every id."""
    import json
    with open(os.path.join(folder, words[1])) as file:
        vocab = json.load(file)["model"]["vocab"]
    form = words[words.index("--data-format") + 1] if "--data-format" in words else "text"
    return vocab == 256 if form == "text" else 1 << int(form[4:]) >= vocab


def follow_notes(folder, command, output):
    """Options that a note or a risk names in brackets, or after 'safer:' or 'add', are taken."""
    flat = re.sub(r"\n(?=[A-Z ]{4,}  |\n|[A-Z])", "\0", output)
    for part in (" ".join(part.split()) for part in flat.split("\0")):
        if not re.match(r"(NOTE|RISK|SWITCHES|TOGETHER|TRY FIRST|May not fit)", part):
            continue
        for said in re.findall(r"\((--[a-z][^()]*)\)|safer: (--\S+)|: add (--[^.]*)\.(?: |$)", part):
            options = options_of(next(text for text in said if text))
            fixed = command
            for name, value in options:
                fixed = fixed.with_option(name, value or None)
            done = run(folder, fixed.words)
            if done.returncode not in DONE:
                failures.append(f"note: {part}\n$ {fixed}\n  ends with {done.returncode}: {done.stderr[-800:]}")


def follow(job):
    index, command = job
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder)
        done = run(folder, command.words)
        before = len(failures)
        if done.returncode in DONE:
            follow_next(folder, command, done.stdout)
            follow_notes(folder, command, done.stdout)
        else:
            follow_error(folder, command, done)
        if len(failures) > before and "-v" in sys.argv:
            print("\n".join(failures[before:]), flush=True)
    return done.returncode


def known_answers(folder):
    for words, part in KNOWN:
        done = run(folder, ["mpt-plan", *words.split()])
        if part not in " ".join((done.stdout + done.stderr).split()):
            failures.append(f"lacks {part!r}\n$ mpt-plan {words}\n{done.stderr or done.stdout}")


def prepare(folder):
    shutil.copytree(PREPARED, folder, dirs_exist_ok=True)  # no links: what one job writes is no other's


def prepare_files(folder):
    for name, words in (("plan.json", "--model llama3-8b --cluster dgx-h100:1 --global-batch 128"),
                        ("lora.json", "--model llama3-8b --cluster rtx4090:1x2 --global-batch 16 --lora 16 --framework transformers-fsdp")):
        assert run(folder, ["mpt-plan", *words.split(), "-o", name]).returncode == 0
    with open(f"{folder}/text.txt", "w") as file:
        file.write("a line of text\n" * 1000)
    with open(f"{folder}/run.sh", "w") as file:
        file.write("torchrun pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 "
                   "--vocab-size 32000 --micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer --swiglu\n")


def main():
    global PREPARED
    rng = random.Random(SEED)
    share = REQUESTS // 5
    drawn = [draw_request(rng) for _ in range(REQUESTS - 3 * share)]
    drawn += [draw_wrong_words(rng) for _ in range(share)] + [misspelt(rng, draw_request(rng)) for _ in range(share)]
    drawn += [Command(["mpt-plan", *shlex.split(rng.choice(FILES))]) for _ in range(share)]
    drawn += [Command(["mpt-plan", *words.split()]) for words, _ in KNOWN]
    if "--all" in sys.argv:
        drawn += [Command(["mpt-plan", *shlex.split(words)]) for words in FILES]
        drawn += [Command(["mpt-plan", *([c] if c else []), "--model", "llama3-8b", "--cluster", "dgx-h100:1", "--global-batch", "128"]).with_option(o, v) for c, o, v in WRONG_WORDS]
    with tempfile.TemporaryDirectory() as PREPARED:
        prepare_files(PREPARED)
        known_answers(PREPARED)
        with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("MPT_TEST_THREADS", "2"))) as pool:
            codes = list(pool.map(follow, enumerate(drawn)))
    for failure in failures:
        print(f"FAILED {failure}\n")
    print(f"{len(drawn)} commands, {sum(code in DONE for code in codes)} with an answer; {len(failures)} failures")
    sys.exit(bool(failures))


main()
