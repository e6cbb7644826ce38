# SPDX-License-Identifier: Apache-2.0
"""mpt-plan --or-nodes: the table of fewer nodes, its JSON, what checkpoints hold, and what is refused.

Usage: fewer_nodes_test.py FOLDER_OF_PROGRAMS
"""

import json
import os
import re
import shlex
import struct
import subprocess
import sys
import tempfile

PROGRAMS = os.path.abspath(sys.argv[1])
JOB = "--model llama3-8b --cluster dgx-h100:4 --global-batch 96 --framework torchtitan"
failures = []


def check(what, right, output=""):
    if not right:
        failures.append(f"{what}\n{output}")


def run(folder, program, words):
    done = subprocess.run([os.path.join(PROGRAMS, program), *(shlex.split(words) if isinstance(words, str) else words)], cwd=folder,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=200)
    return done.returncode, done.stdout, done.stderr


def plan(folder, words):
    code, out, err = run(folder, "mpt-plan", f"{words} --json")
    check(f"{words}: exit {code}", code == 0, err)
    return json.loads(out)


def rows_of(screen):
    """Nodes, GPUs, step time and share of each row of the table."""
    found = re.findall(r"^ +(\d+) +(\d+) +([\d.]+ m?s) +[\d,]+ +([\d.]+)% +[\d.]+ [GM]iB +\S+%? +(tp\d+ .*)$", screen, re.M)
    return {int(nodes): (int(gpus), step, float(share), layout.strip()) for nodes, gpus, step, share, layout in found}


def check_screen(folder):
    code, screen, err = run(folder, "mpt-plan", f"{JOB} --or-nodes 3,2,1 --storage-bandwidth 20GB/s -o plan.json")
    check(f"screen: exit {code}", code == 0, err)
    table = re.search(r"^FEWER NODES\n.*?\n\n", screen, re.M | re.S)[0]
    lines = screen.replace(table, "").splitlines()
    check("at most 40 lines beside the table, of at most 100 columns", len(lines) <= 40 and all(len(line) <= 100 for line in screen.splitlines()), screen)
    check("the alternatives are still there", "\nALTERNATIVES\n" in screen, screen)
    rows = rows_of(screen)
    check("a row for each number", sorted(rows) == [1, 2, 3], screen)
    held = json.load(open(os.path.join(folder, "plan.json")))
    for entry in held["fewer_nodes"]:
        gpus, _, share, layout = rows.get(entry["nodes"], (0, "", 0.0, ""))
        alone = plan(folder, f"{JOB.replace(':4', ':' + str(entry['nodes']))}")
        best = entry["best"]
        check(f"{entry['nodes']} nodes: the plan of such a cluster", best["layout"] == alone["layout"], json.dumps(best))
        check(f"{entry['nodes']} nodes: its step time", best["step_time_s"] == alone["prediction"]["step_time_s"])
        check(f"{entry['nodes']} nodes: GPUs", gpus == entry["gpus"] == 8 * entry["nodes"], screen)
        right = 100 * best["tokens_per_s"] / held["prediction"]["tokens_per_s"]
        check(f"{entry['nodes']} nodes: {share}% of the throughput, not {right}", abs(share - right) < 0.06, screen)
    kept = held["checkpoint"]
    count = 8030261248
    check("12 bytes a parameter", abs((kept["weight_bytes"] + kept["moment_bytes"]) / count - 12) < 1e-3, kept)
    check("bytes by bandwidth", abs(kept["read_s"] - (kept["weight_bytes"] + kept["moment_bytes"]) / 20e9) < 1e-6, kept)
    text = " ".join(screen.split())
    for part in ("reads a checkpoint of 89.7 GiB: 29.9 GiB of weights and 59.8 GiB of the optimizer's moments", "On 3 and 2 and 1 nodes the checkpoint is read as it is.",
                 "Each byte once at 20GB/s takes 5 s."):
        check(f"the screen says {part}", part in text, screen)
    code, again, _ = run(folder, "mpt-plan", "explain plan.json")
    check("explain repeats the table", rows_of(again) == rows, again)
    check("a plan's request repeats it", [e["nodes"] for e in plan(folder, "--request plan.json --top 1")["fewer_nodes"]] == [3, 2, 1])
    plain = plan(folder, JOB)
    check("without --or-nodes a plan has no such fields", not {"fewer_nodes", "checkpoint"} & set(plain), list(plain))
    check("the plan itself is the same", plain["layout"] == held["layout"])


def check_without(folder):
    code, screen, _ = run(folder, "mpt-plan", f"{JOB} --or-nodes 2")
    check("without a bandwidth no time is said", code == 0 and "is not estimated without --storage-bandwidth" in " ".join(screen.split()), screen)
    only = "--model llama3-8b --cluster dgx-h100:4 --framework torchtitan --tp 1 --pp 1 --cp 1 --global-batch"
    code, screen, _ = run(folder, "mpt-plan", f"{only} 128 --or-nodes 3")
    text = " ".join(screen.split())
    check("nothing divides: which would do", code == 0 and re.search(r"- 3 nodes: .*--global-batch 120 or --global-batch 144.*, or 2 nodes", text), screen)
    check("no cost of nothing", "reads a checkpoint" not in text, screen)
    for batch in (120, 144):
        check(f"--global-batch {batch} does", run(folder, "mpt-plan", f"{only.replace(':4', ':3')} {batch}")[0] == 0)


def check_refused(folder):
    for words, said in ((f"{JOB} --or-nodes 4", "--or-nodes: 4; expected fewer than the 4 nodes of the plan"), (f"{JOB} --or-nodes 0", "--or-nodes"),
                        (f"{JOB} --or-nodes 3,3", "3 twice"), (f"{JOB} --or-nodes " + ",".join(["1"] * 17), "at most 16 numbers"),
                        (f"{JOB} --or-nodes x", "--or-nodes"), (f"{JOB} --or-nodes 3 --pareto", "--pareto"),
                        (f"{JOB.replace(':4', ':1')} --or-nodes 1", "a cluster of several nodes"),
                        (f"{JOB.replace('dgx-h100:4', 'dgx-a100:2+dgx-h100:2')} --or-nodes 3", "one kind of node"),
                        (f"{JOB} --or-nodes 3 --storage-bandwidth 20", "--storage-bandwidth"), (f"estimate {JOB} --or-nodes 3", "--or-nodes")):
        code, out, err = run(folder, "mpt-plan", words)
        check(f"{words}: exit {code}", code == 2 and said in err and not out, err)


def check_help(folder):
    short, long = (run(folder, "mpt-plan", option)[1] for option in ("--help", "--help-all"))
    check("--help has 80 lines and not this option", len(short.splitlines()) == 80 and "--or-nodes" not in short, short)
    check("--help-all has both", "--or-nodes NODES" in long and "--storage-bandwidth RATE" in long, long)


def tensor_bytes(path):
    with open(path, "rb") as file:
        return os.path.getsize(path) - 8 - struct.unpack("<Q", file.read(8))[0]


def check_own_checkpoint(folder):
    """What mpt-run's checkpoints hold: the bytes that its files have."""
    with open(os.path.join(folder, "data.txt"), "w") as file:
        file.write("Nothing but words. " * 400)
    for precision in ("fp32", "bf16"):
        job = f"--model tiny-gpt --framework mpt --global-batch 16 --seq 64 --precision {precision}"
        said = plan(folder, f"{job} --cluster dgx-h100:2 --or-nodes 1")["checkpoint"]
        run(folder, "mpt-plan", f"{job} --cluster this-machine:2 --memory 2GiB -o cpu-{precision}.json")
        code, _, err = run(folder, "mpt-run", f"cpu-{precision}.json --data data.txt --steps 1 --checkpoints saved-{precision}")
        check(f"mpt-run, {precision}: exit {code}", code == 0, err)
        saved = os.path.join(folder, f"saved-{precision}", "step-00000001")
        held = sum(tensor_bytes(os.path.join(saved, name)) for name in os.listdir(saved) if name.endswith(".safetensors"))
        wanted = said["weight_bytes"] + said["moment_bytes"]
        check(f"{precision}: {wanted} bytes, and the files have {held}", abs(wanted / held - 1) < 2e-3, said)


def main():
    with tempfile.TemporaryDirectory() as folder:
        for part in (check_screen, check_without, check_refused, check_help, check_own_checkpoint):
            part(folder)
    for failure in failures:
        print("FAILED", failure)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
