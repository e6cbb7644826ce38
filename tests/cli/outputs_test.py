# SPDX-License-Identifier: Apache-2.0
"""No output of any program replaces what it reads, another output, or a file that an export did not write.

The options come from the programs' own help: one that names a file and is in no table here is a failure.
Usage: outputs_test.py FOLDER_OF_PROGRAMS
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

PROGRAMS = sys.argv[1]
CONFIG = dict(model_type="llama", hidden_act="silu", hidden_size=32, intermediate_size=64, max_position_embeddings=64,
              num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=256)
SCRIPT = "--num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 8 "
LOG = ("# Collective test starting: all_reduce_perf\n#  Rank  0 Group  0 Pid 100 on  node00 device  0 [0x18] NVIDIA H100 80GB HBM3\n"
       "#  Rank  1 Group  0 Pid 100 on  node00 device  1 [0x2a] NVIDIA H100 80GB HBM3\n"
       "  1048576  262144  float  sum  -1  50.0  20.97  20.97  0  50.0  20.97  20.97  0\n")
JOB = ["--global-batch", 16, "--seq", 64]
ON, TWO, TINY = ["--cluster", "dgx-h100:1"], ["--cluster", "dgx-h100:1,dgx-a100:1"], ["--model", "tiny-gpt"]
# What reads a request: the words before and behind the file, by option.
REQUEST = {"--model": (*ON, *JOB, "--model"), "--cluster": (*TINY, *JOB, "--cluster"), "--kernels": (*TINY, *ON, *JOB, "--kernels"),
           "--profile": (*TINY, "--cluster", "this-machine:2", *JOB, "--profile")}


def with_words(words, rows=REQUEST):
    return {option: (*words, *row) for option, row in rows.items()}


# (program, command): for each option or argument that names an input, the words before the file.
INPUTS = {
    ("mpt-plan", ""): {**REQUEST, "--request": ("--request",), "--from": ("--from",), "--observed": (*TINY, *ON, *JOB, "--observed")},
    ("mpt-plan", "estimate"): {**REQUEST, "--request": ("--request",), "--plan": ("--plan",), "--observed": (*TINY, *ON, *JOB, "--observed")},
    ("mpt-plan", "doctor"): {**REQUEST, "--request": ("--request",), "--plan": ("--plan",), "--observed": (*TINY, *ON, *JOB, "--observed")},
    ("mpt-plan", "import"): {"FILE": ON, **with_words(["SCRIPT"])},
    ("mpt-plan", "check"): {"PATHS": ON, **with_words(["SCRIPT"])},
    ("mpt-plan", "cluster"): {"NAME": ()},
    ("mpt-plan", "model"): {"NAME": ()},
    ("mpt-plan", "page"): {},
    ("mpt-plan", "export"): {"PLAN": ("--to", "slurm")},
    ("mpt-plan", "explain"): {"PLAN": (), **{option: ("PLAN", "--why-not", "recompute=full", option) for option in ("--profile", "--kernels")}},
    ("mpt-plan", "diagnose"): {"PLAN": ("--measured", "1s"), "LOG": ("PLAN",), "--profile": ("PLAN", "--measured", "1s", "--profile"),
                               "--kernels": ("PLAN", "--measured", "1s", "--kernels")},
    ("mpt-plan", "compare"): {"PLANS": ("PLAN",), "--model": (*TWO, *JOB, "--model"), "--cluster": (*TINY, *JOB, "--cluster", "dgx-h100:1", "--cluster"),
                              "--kernels": (*TINY, *TWO, *JOB, "--kernels"), "--request": ("--over", "memory=60GiB,70GiB", "--request"),
                              "--observed": (*TINY, *ON, *JOB, "--over", "memory=60GiB,70GiB", "--observed"),
                              "--profile": (*TINY, "--cluster", "this-machine:1,this-machine:2", *JOB, "--profile")},
    ("mpt-plan", "recommend"): {"--model": (*ON, *JOB, "--model"), "--kernels": (*TINY, *ON, *JOB, "--kernels"), "--offers": (*TINY, *JOB, "--offers"),
                                "--profile": (*TINY, "--cluster", "this-machine:2", *JOB, "--profile")},
    ("mpt-plan", "tune"): {"REQUEST": ("--folder", "TUNE", "--launch", "true")},
    ("mpt-profile", ""): {"--model": ("--quick", "--seq", 32, "--max-micro-batch", 1, "--max-tensor", 1, "--max-ranks", 1, "--model")},
    ("mpt-profile", "import"): {"FILES": ("--device", "h100-sxm-80gb")},
    ("mpt-run", ""): {"PLAN": ("--data", "TEXT", "--steps", 1), "--data": ("PLAN", "--steps", 1, "--data"),
                      "--tokenizer": ("PLAN", "--data", "TEXT", "--steps", 1, "--checkpoints", "SAVES", "--sample", "a", "--tokenizer"),
                      "--init": (), "--resume": ()},  # folders: in runs() below
    ("mpt-run", "inspect"): {"CHECKPOINT": ()},
    ("mpt-run", "export"): {"CHECKPOINT": ()},
}
FOLDERS = {("mpt-plan", "check", "--base"), ("mpt-plan", "check", "--root"), ("mpt-plan", "import", "--root"), ("mpt-plan", "export", "--output"), ("mpt-plan", "page", "--output"), ("mpt-plan", "tune", "--folder"), ("mpt-run", "", "--checkpoints"), ("mpt-run", "", "--tensorboard"), ("mpt-run", "export", "FOLDER"), ("mpt-run", "export", "--like")}
# With them a command writes no file.
ALONE = {("mpt-plan", "estimate", "--requests"), ("mpt-plan", "estimate", "--calibration")}
# Placeholders of values that are no files.
WORDS = set("N X NAME NAMES SIZE SHARE COUNT HOW AXIS on|off RANK FORMAT PARTS LENGTHS NAME=VALUE OPTION=VALUES LAYOUT NUMBER FIGURE REV TYPE WORD "
            "NODES RATE TIME MONEY COMMAND TOKENS PROMPT PORT STEPS SECONDS FACTOR WHAT GIB GPU".split())
FILES = {"FILE", "FILE.html", "FILES", "FOLDER", "RUN", "PATH", "MODEL", "CLUSTER", "CLUSTERS"}
FAILED = []


def check(what, right, why=""):
    if not right:
        FAILED.append(what)
        print(f"FAILED {what}: {str(why)[-1500:]}")


def run(program, *words, timeout=60):
    command = [os.path.join(PROGRAMS, program), *(word for word in map(str, words) if word)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None, f"still running after {timeout} s"
    return done.returncode, done.stdout.decode("utf-8", "replace")


def write(path, content):
    with open(path, "w") as file:
        file.write(content if isinstance(content, str) else json.dumps(content))
    return path


def read(path):
    with open(path, "rb") as file:
        return file.read()


def options_of(program, command):
    """The options and arguments of a command with the words for their values, as its help has them."""
    code, text = run(program, command, "--help-all")
    if code != 0:
        text = run(program, command, "--help")[1]
    found = {}
    for line in text.splitlines():
        if line.startswith("Commands"):
            break
        argument = re.match(r"  ([A-Z]+)(?:  |$)|  \[([A-Z]+)\]", line)
        option = re.match(r"  (?:-\w, )?(--[a-z-]+)(?:, --[a-z-]+)? ?(\S*)", line)
        if argument:
            found[argument[1] or argument[2]] = "FILE"
        elif option and re.match(r"\S+(?:, \S+)* [^ ]", line[2:]):
            found[option[1]] = option[2]
    return found


def every_option():
    """Yields program, command, inputs and outputs, and says which option has no role."""
    for (program, command), inputs in INPUTS.items():
        outputs = []
        for option, word in options_of(program, command).items():
            place = (program, command, option)
            check(f"{place}: does {word} name a file?", word == "" or word in WORDS or word in FILES)
            if option in inputs or place in FOLDERS | ALONE or word not in FILES:
                continue
            check(f"{place} names a file that is no output", word in ("FILE", "FILE.html"))
            outputs.append(option)
        yield program, command, inputs, outputs
    commands = {program: set(re.findall(r"^  ([a-z]+)  ", run(program, "--help")[1].partition("\nCommands")[2], re.M)) for program in ("mpt-plan", "mpt-profile")}
    for program, names in commands.items():
        check(f"commands of {program}", names == {command for known, command in INPUTS if known == program} - {""}, names)


class Files:
    """A whole input of each kind."""

    def __init__(self, folder):
        self.folder = folder
        self.named = {"SCRIPT": write(f"{folder}/script.sh", SCRIPT), "TEXT": write(f"{folder}/text.txt", "words of a text\n" * 200)}
        self.model = write(f"{folder}/model.json", CONFIG)
        self.named.update({"PLAN": f"{folder}/plan.json", "SAVES": f"{folder}/saves"})
        code, text = run("mpt-plan", "--model", self.model, "--cluster", "this-machine:1", "--global-batch", 4, "--seq", 32, "-o", self.named["PLAN"])
        check("a plan", code == 0, text)
        self.cluster = f"{folder}/cluster.json"
        run("mpt-plan", "cluster", "dgx-h100:1", "-o", self.cluster)
        self.request = write(f"{folder}/request.json", run("mpt-plan", *TINY, *ON, *JOB, "--print-request")[1])

    def content(self, program, command, option):
        kinds = {"--model": self.model, "--cluster": self.cluster, "--request": self.request, "--from": self.named["PLAN"], "--plan": self.named["PLAN"],
                 "PLAN": self.named["PLAN"], "PLANS": self.named["PLAN"], "FILE": self.named["SCRIPT"], "REQUEST": self.request, "PATHS": self.named["SCRIPT"],
                 "--data": self.named["TEXT"], "NAME": self.cluster if command == "cluster" else self.model}
        if option == "--tokenizer":
            return json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})
        if option == "--observed":
            return "tp1 pp1 dp8 mbs1=1.0s\n"
        return read(kinds[option]).decode() if option in kinds else LOG if program == "mpt-profile" else "{}"

    def words(self, row):
        return [self.named.get(word, word) for word in row]


def command_line(files, program, command, option, row, file):
    return (program, command, *files.words(row), file)


def outputs_over_inputs(files):
    """Each output of each command on each of its inputs, by its own name and through links."""
    pairs = 0
    for program, command, inputs, outputs in every_option():
        for option, row in inputs.items():
            if option in ("--init", "--resume", "CHECKPOINT"):
                continue
            for number, output in enumerate(outputs):
                folder = tempfile.mkdtemp(dir=files.folder)
                # The ending is one that import and check know.
                file = write(f"{folder}/input" + (".sh" if option in ("FILE", "PATHS") else ".json"), files.content(program, command, option))
                before = read(file)
                names = {"the file": file, "its path": f"{folder}/../{os.path.basename(folder)}/./{os.path.basename(file)}"}
                os.link(file, f"{folder}/hard")
                os.symlink(file, f"{folder}/soft")
                names.update({"a hard link": f"{folder}/hard", "a link": f"{folder}/soft"} if number == 0 else {})
                for what, name in names.items():
                    place = f"{program} {command}: {output} on {what} of {option}"
                    code, text = run(*command_line(files, program, command, option, row, file), output, name)
                    check(place, code == 2 and output in text and "the same file as" in " ".join(text.split()) and "name another file" in text, f"exit {code}\n{text}")
                    check(f"{place}, the file is kept", os.path.exists(file) and read(file) == before)
                    if read(file) != before:
                        write(file, before.decode())
                    pairs += 1
    check("pairs of input and output were tried", pairs > 150, pairs)


def pipes_and_devices(files):
    """A reader of JSON or text says no, and does not wait for somebody to write."""
    pipe = f"{files.folder}/pipe.sh"
    os.mkfifo(pipe)
    for (program, command), inputs in INPUTS.items():
        for option, row in inputs.items():
            # These take folders; and check passes over pipes, and prints errors of files in its table.
            if option in ("--init", "--resume", "CHECKPOINT") or (command == "check" and option != "--cluster"):
                continue
            for file in (pipe, "/dev/zero"):
                code, text = run(*command_line(files, program, command, option, row, file), timeout=10)
                check(f"{program} {command}: {option} {file}", code == 2 and "is no regular file" in text, f"exit {code}\n{text}")
    os.makedirs(f"{files.folder}/piped")
    os.mkfifo(f"{files.folder}/piped/config.json")
    code, text = run("mpt-plan", "--model", f"{files.folder}/piped", *ON, *JOB, timeout=10)
    check("config.json of a folder is a pipe", code == 2 and "is no regular file" in text, f"exit {code}\n{text}")
    command = f"'{PROGRAMS}/mpt-plan' explain <(cat '{files.named['PLAN']}')"
    done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    check("a pipe of the shell is read", done.returncode == 0, done.stdout)


def indirect_inputs(files):
    """Files that another input names."""
    folder = tempfile.mkdtemp(dir=files.folder)
    request = json.loads(read(files.request))
    model = write(f"{folder}/model.json", CONFIG)
    write(f"{folder}/config.json", CONFIG)
    values = write(f"{folder}/values.sh", "LAYERS=8\n")
    script = write(f"{folder}/script.sh", f"source {values}\ntorchrun pretrain_gpt.py " + SCRIPT.replace("layers 8", "layers $LAYERS") + "\n")
    recipes = os.path.join(folder, "recipes")
    os.makedirs(recipes)
    shutil.copy(script, recipes)
    named = write(f"{folder}/request.json", {**request, "model": model})
    for what, file, command in (
            ("the model of a request", model, ("mpt-plan", "--request", named, "-o")),
            ("config.json of a folder", f"{folder}/config.json", ("mpt-plan", "model", folder, "-o")),
            ("what a script sources", values, ("mpt-plan", "import", script, *ON, "-o")),
            ("what a recipe sources", values, ("mpt-plan", "check", recipes, *ON, "--json")),
            ("a file of a folder", f"{recipes}/script.sh", ("mpt-plan", "check", recipes, *ON, "--junit"))):
        before = read(file)
        code, text = run(*command, file)
        check(f"{what} as output", code == 2 and "the same file as" in " ".join(text.split()), f"exit {code}\n{text}")
        check(f"{what}, it is kept", read(file) == before)


def exports(files):
    """An export replaces its own files, and no others."""
    plan = files.named["PLAN"]
    other = f"{files.folder}/other.json"
    run("mpt-plan", "--model", files.model, "--cluster", "this-machine:1", "--global-batch", 8, "--seq", 32, "-o", other)
    targets = re.findall(r"^  ([a-z][a-z0-9-]+) +[A-Za-z]", run("mpt-plan", "export", "--help")[1].partition("What --to takes")[2].partition("Examples")[0], re.M)
    check("targets of the export", len(targets) == 14, targets)
    for target in targets:
        export = ("mpt-plan", "export", plan, "--to", target, "-o")
        first = tempfile.mkdtemp(dir=files.folder)
        check(f"{target}, a new folder", run(*export, first)[0] == 0)
        names = sorted(set(os.listdir(first)) - {".mpt-export"})
        check(f"{target}, again", run(*export, first)[0] == 0)
        code, text = run("mpt-plan", "export", other, "--to", target, "-o", first)
        check(f"{target}, another plan over its own files", code == 0, text)
        for name in names:
            for link in (False, True):
                folder = tempfile.mkdtemp(dir=files.folder)
                own = write(f"{folder}/{'users' if link else name}", "of the user\n")
                if link:
                    os.symlink("users", f"{folder}/{name}")
                code, text = run(*export, folder)
                check(f"{target}, {name} of the user", code == 2 and name in text and "another folder with -o" in text, f"exit {code}\n{text}")
                check(f"{target}, {name} is kept", read(own) == b"of the user\n")
                check(f"{target}, nothing else is written", len(os.listdir(folder)) == 1 + link, os.listdir(folder))
            os.remove(f"{folder}/{name}")
            check(f"{target}, with {name} out of the way", run(*export, folder)[0] == 0)
        with open(f"{first}/{names[0]}", "a") as edited:
            edited.write("# edited\n")
        code, text = run(*export, first)
        check(f"{target}, an edited file", code == 2 and names[0] in text, f"exit {code}\n{text}")
        check(f"{target}, the edit is kept", read(f"{first}/{names[0]}").endswith(b"# edited\n"))
    # A plan may stand in the folder of its model.
    folder = tempfile.mkdtemp(dir=files.folder)
    config = write(f"{folder}/config.json", {**CONFIG, "unknown_to_everyone": 1})
    own_plan = f"{folder}/plan.json"
    run("mpt-plan", "--model", config, "--cluster", "this-machine:1", "--global-batch", 4, "--seq", 32, "-o", own_plan)
    done = subprocess.run([f"{PROGRAMS}/mpt-plan", "export", own_plan, "--to", "transformers-fsdp", "-o", "."], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    check("export into the model's folder", done.returncode == 2 and b"config.json" in done.stdout, done.stdout)
    check("export into the model's folder, it is kept", b"unknown_to_everyone" in read(config))
    write(f"{folder}/.mpt-export", "of the user\n")
    check("a list that no export wrote", run("mpt-plan", "export", own_plan, "--to", "slurm", "-o", folder)[0] == 2)
    check("a list that no export wrote is kept", read(f"{folder}/.mpt-export") == b"of the user\n")


def runs(files):
    """Files of checkpoints and weights, and the names that a run itself makes."""
    train = ("mpt-run", files.named["PLAN"], "--data", files.named["TEXT"])
    saved, weights = f"{files.folder}/saved", f"{files.folder}/weights"
    check("a run", run(*train, "--steps", 2, "--checkpoints", saved)[0] == 0)
    check("its weights", run("mpt-run", "export", saved, weights)[0] == 0)
    step = f"{saved}/step-00000002"
    for option, folder, path in (("--init", weights, weights), ("--resume", step, step), ("--resume", step, saved)):
        for name in sorted(os.listdir(folder)):
            before = read(f"{folder}/{name}")
            code, text = run(*train, "--steps", 3, option, path, "--log", f"{folder}/{name}")
            check(f"--log on {name} of {option}", code == 2 and "the same file as" in " ".join(text.split()), f"exit {code}\n{text}")
            check(f"{name} of {option} is kept", read(f"{folder}/{name}") == before)
    os.makedirs(f"{files.folder}/new")
    for output in ("--log", "--trace", "--report"):
        for made in ("", "/.running", "/step-00000009", "/step-00000003/log", "/.unfinished-step-00000003", "/../new/.running"):
            code, text = run(*train, "--steps", 3, "--checkpoints", f"{files.folder}/new", output, f"{files.folder}/new{made}")
            check(f"{output} as new{made}", code == 2 and output in text and "--checkpoints" in text, f"exit {code}\n{text}")
    lock = write(f"{saved}/.running", "words of a text\n" * 200)
    code, text = run("mpt-run", files.named["PLAN"], "--data", lock, "--steps", 2, "--checkpoints", saved)
    check("--data is the lock", code == 2 and "the same file as --data" in " ".join(text.split()), f"exit {code}\n{text}")
    check("--data is the lock, it is kept", os.path.getsize(lock) == 3200)
    os.remove(lock)
    code, text = run(*train, "--steps", 3, "--checkpoints", f"{files.folder}/third", "--log", f"{files.folder}/third.jsonl")
    check("a log beside the folder", code == 0, text)
    code, text = run(*train, "--steps", 4, "--checkpoints", f"{files.folder}/third", "--resume", "auto", "--log", f"{files.folder}/third/log.jsonl")
    check("a log in the folder, under a name of its own", code == 0 and os.path.getsize(f"{files.folder}/third/log.jsonl") > 0, text)


def main():
    with tempfile.TemporaryDirectory() as folder:
        files = Files(folder)
        outputs_over_inputs(files)
        pipes_and_devices(files)
        indirect_inputs(files)
        exports(files)
        runs(files)
    print("failed: " + "; ".join(FAILED) if FAILED else "all outputs are kept apart from inputs")
    sys.exit(1 if FAILED else 0)


main()
