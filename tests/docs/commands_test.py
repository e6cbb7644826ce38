# SPDX-License-Identifier: Apache-2.0
"""Every command of the documents works, in its order, in a folder with the files that its page names, and every output that
README.md and docs/cases.md show is today's.

Usage: commands_test.py SOURCES BIN [PAGE...]

Commands stand in blocks of code and in cells of tables. Long runs are cut: of more than 20 steps a hundredth is trained, and
mpt-profile measures less. torchrun and mpirun are stand-ins that set the variables of the real ones.
Of ./scripts/..., the page "demo" runs that one and gpu-check's dry run; build and test are the gate's, the others are scripts_test.py's.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCES, BIN = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
COMMAND = re.compile(r"^(\$ )?((\w+=\S+ )*(torchrun|mpirun) |(build/release/bin/)?mpt-(plan|run|profile) )")
CELL = re.compile(r"mpt-(plan|run|profile) .*--")
# A model of one's own, as Hugging Face describes it.
CONFIG = {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
          "intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
          "tie_word_embeddings": True, "hidden_act": "silu"}
LAUNCHER = """#!/usr/bin/env python3
import os, subprocess, sys
count = int(sys.argv[sys.argv.index({flag!r}) + 1])
command = sys.argv[sys.argv.index("mpt-run"):]
def variables(rank):
    return {{name: str(value) for name, value in {variables}.items()}}
started = [subprocess.Popen(command, env={{**os.environ, **variables(rank)}}) for rank in range(count)]
sys.exit(max(process.wait() for process in started))
"""
TORCHRUN = LAUNCHER.format(flag="--nproc-per-node", variables='{"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, '
                           '"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29511}')
MPIRUN = LAUNCHER.format(flag="-np", variables='{"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": count, '
                         '"OMPI_COMM_WORLD_LOCAL_RANK": rank, "MASTER_PORT": 29513}')


def commands_of(page):
    """Commands in code, with the lines that continue them, and in cells of tables. Of a block with outputs, the lines with a "$"."""
    lines = read(page).split("\n")
    found, i, fenced, outputs = [], 0, False, False
    while i < len(lines):
        line = lines[i].strip()
        if line.startswith("```"):
            fenced = not fenced
            outputs = fenced and lines[i + 1].startswith("$ ")
        elif line.startswith("| "):
            found += [code for code in re.findall(r"`([^`]+)`", line) if CELL.match(code)]
        elif COMMAND.match(line) and (fenced or lines[i].startswith("    ")) and outputs == line.startswith("$ "):
            while line.endswith("\\"):
                i += 1
                line = line[:-1] + " " + lines[i].strip()
            if " ... " not in line:
                found.append(line.removeprefix("$ "))
        i += 1
    return found


def shortened(command):
    def fewer(match):
        count = int(match[2])
        return f"{match[1]} {count if count <= 20 else max(2, count // 100)}"
    command = re.sub(r"(--steps|--save-every) (\d+)", fewer, command).replace("MASTER_ADDR=node1", "MASTER_ADDR=127.0.0.1")
    if re.search(r"mpt-run \S+\.json", command) and "--steps" not in command:
        command += " --steps 4"
    if "--quick" not in command:
        command = command.replace("mpt-profile ", "mpt-profile --quick --max-micro-batch 2 --max-tensor 2 ")
    return command


def run(command, folder, environment):
    return subprocess.run(["bash", "-c", command], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)


def prepare(page, folder, environment):
    """What the page takes for granted."""
    os.makedirs(os.path.join(folder, "build/release"))
    os.symlink(BIN, os.path.join(folder, "build/release/bin"))
    shutil.copy(os.path.join(SOURCES, "README.md"), folder)
    for name in ("docs", "reports/validation"):
        shutil.copytree(os.path.join(SOURCES, name), os.path.join(folder, name))
    os.makedirs(os.path.join(folder, "launchers"))
    for name, text in (("torchrun", TORCHRUN), ("mpirun", MPIRUN)):
        path = os.path.join(folder, "launchers", name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o755)
    if page == "README.md":
        os.makedirs(os.path.join(folder, "path/to"))
        with open(os.path.join(folder, "path/to/config.json"), "w") as file:
            json.dump(CONFIG, file)
    if page not in ("docs/training.md", "docs/gpu.md"):
        return
    shutil.copy(os.path.join(SOURCES, "docs/architecture.md"), os.path.join(folder, "text.txt"))
    if page == "docs/gpu.md":
        return
    for name in ("books.txt", "pages.jsonl"):
        with open(os.path.join(folder, name), "w") as file:
            file.write(json.dumps({"text": "an apple a day " * 100}) + "\n")
    with open(os.path.join(folder, "tokenizer.json"), "w") as file:
        json.dump({"model": {"type": "BPE", "vocab": {letter: i for i, letter in enumerate("abdelnopty")}, "merges": []},
                   "added_tokens": [{"id": 10, "content": "<|endoftext|>"}], "pre_tokenizer": {"type": "Metaspace", "replacement": "a", "split": False}}, file)
    tiny = "--model tiny-gpt --global-batch 8 --seq 64 --memory 2GiB"
    for command in (f"mpt-plan {tiny} --cluster this-machine:4 --tp 2 --pp 2 --micro-batch 1 -o plan.json",
                    f"mpt-plan {tiny} --cluster this-machine:4 --tp 1 --pp 4 --micro-batch 1 -o other-layout.json",
                    "mpt-run other-layout.json --data text.txt --steps 1 --checkpoints path/to/trained",
                    "mpt-run export path/to/trained path/to/model", "cp text.txt tokens"):
        done = run(command, folder, environment)
        if done.returncode != 0:
            sys.exit(f"preparing {page}: {command}\nexit code {done.returncode}\n{done.stdout[-2000:]}")


def check_outputs(page):
    """The page shows what its commands print today."""
    done = run(f"python3 {SOURCES}/scripts/update_outputs --check {BIN} {os.path.join(SOURCES, page)}", SOURCES, None)
    if done.returncode != 0:
        sys.exit(f"{page}: {done.stdout}")
    print(f"{page}: {len(done.stdout.splitlines())} commands, with the outputs that they print today")


def check_readme():
    """Short, with the commands that the gate reads."""
    lines = read("README.md").splitlines()
    if len(lines) > 100:
        sys.exit(f"README.md has {len(lines)} lines; at most 100, so that it is read")
    scripts = re.findall(r"^\./scripts/(\w+)", "\n".join(lines), re.M)
    if scripts[:2] != ["demo", "test"]:
        sys.exit(f"README.md names {scripts[:2]} first; expected ./scripts/demo and ./scripts/test")


def check_links():
    """Every page and picture that a document links or names is there."""
    pages = ["README.md", "CONTRIBUTING.md", *(f"docs/{name}" for name in sorted(os.listdir(os.path.join(SOURCES, "docs")))
                                               if name.endswith(".md"))]
    broken = []
    for page in pages:
        text = re.sub(r"```.*?```", "", read(page), flags=re.S)
        linked = [os.path.join(os.path.dirname(page), target) for target in re.findall(r"\]\(([^)#:]+)\)", text)]
        named = re.findall(r"`((?:docs|reports/results|scripts|benchmarks)/[\w/.]+)`", text)
        broken += [f"{page}: {target}" for target in linked + named
                   if target != "reports/results/gpu.md" and not os.path.exists(os.path.join(SOURCES, target))]
    if broken:
        sys.exit("links that lead nowhere:\n" + "\n".join(broken))
    print(f"{len(pages)} documents: every link leads somewhere")


def read(page):
    with open(os.path.join(SOURCES, page)) as file:
        return file.read()


def check_demo():
    """The whole product, as the README's first command shows it, with programs that are built and fewer measurements."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("core", "models", "planner", "profiler", "runtime", "reports", "docs", "scripts"):
            shutil.copytree(os.path.join(SOURCES, name), os.path.join(folder, name))
        shutil.copy(os.path.join(SOURCES, "README.md"), folder)
        programs = os.path.join(folder, "programs")
        os.makedirs(programs)
        for name in ("mpt-plan", "mpt-run"):
            os.symlink(os.path.join(BIN, name), os.path.join(programs, name))
        quick = os.path.join(programs, "mpt-profile")
        with open(quick, "w") as file:
            file.write(f"#!/bin/sh\nexec {BIN}/mpt-profile --quick --max-micro-batch 2 --max-tensor 2 \"$@\"\n")
        os.chmod(quick, 0o755)
        done = run("./scripts/demo 2", folder, {**os.environ, "MPT_BIN": programs})
        wrong = [part for part in ("step 2/2", "Measured against predicted", "Open build/demo/report.html") if part not in done.stdout]
        wrong += [name for name in ("profile.json", "plan.json", "run.jsonl", "trace.json", "report.html")
                  if not os.path.exists(os.path.join(folder, "build/demo", name))]
        if done.returncode != 0 or wrong:
            sys.exit(f"demo: exit code {done.returncode}, missing {wrong}\n{done.stdout[-3000:]}")
        done = run("./scripts/gpu-check --dry-run", folder, None)
        if done.returncode != 0 or "mpt-profile --model gpt2-1.5b" not in done.stdout:
            sys.exit(f"gpu-check --dry-run: exit code {done.returncode}\n{done.stdout[-3000:]}")
    print("scripts/demo: profile, plan, run, report; scripts/gpu-check --dry-run")


def check(page, fewest):
    if page == "demo":
        return check_demo()
    if page == "links":
        return check_links()
    if page == "docs/cases.md":
        return check_outputs(page)
    if page == "README.md":
        check_readme()
        check_outputs(page)
    commands = commands_of(page)
    if len(commands) < fewest:
        sys.exit(f"{page}: {len(commands)} commands; is the form of the page another one?")
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PATH": f"{folder}/launchers:{BIN}:{os.environ['PATH']}"}
        prepare(page, folder, environment)
        for command in commands:
            done = run(shortened(command), folder, environment)
            expected = done.returncode == 3 and page == "docs/gpu.md" and "no GPU" in done.stdout  # as documented
            if done.returncode != 0 and not expected:
                sys.exit(f"{page}: {command}\nas {shortened(command)}\nexit code {done.returncode}\n{done.stdout[-2000:]}")
            if "diagnose gpus.json" in command and "Measured 300 TFLOP/s per GPU" not in done.stdout:
                sys.exit(f"the figure was not judged:\n{done.stdout}")
    print(f"{page}: {len(commands)} commands")


PAGES = {"links": 1, "README.md": 10, "docs/tutorial.md": 12, "docs/training.md": 9, "docs/gpu.md": 3, "docs/cases.md": 9, "demo": 1}
for page in sys.argv[3:] or PAGES:
    check(page, PAGES[page])
