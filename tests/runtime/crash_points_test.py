# SPDX-License-Identifier: Apache-2.0
"""What is left of checkpoints whatever call of a run is the last, fails, is cut short or lies, and where the machine loses power.

A library that stands before the C library's (tests/support/faulty_calls) counts the calls that change files below the checkpoint folder.
Each is spoiled in turn, and the run is resumed: it ends with the losses of a run that nothing befell. For a loss of power the calls of one
run are played again up to each of them. Bytes without fsync may be gone or zeros, names without fsync of their folder may be there or not,
each apart from the others. Of whatever is left the newest whole checkpoint loads, and it is no older than the last one that was finished.

Usage: crash_points_test.py BIN LIBRARY [EVERY]. Of the calls that are spoiled each EVERY-th is tried (default: 7), beginning with the
day's; 1 tries all. MPT_CRASH_SEED sets where it begins.
"""

import concurrent.futures
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

BIN, LIBRARY = sys.argv[1], os.path.realpath(sys.argv[2])
EVERY = int(sys.argv[3]) if len(sys.argv) > 3 else 7
SEED = int(os.environ.get("MPT_CRASH_SEED", time.time() // 86400))
CONFIG = dict(model_type="llama", hidden_act="silu", hidden_size=16, intermediate_size=32, max_position_embeddings=32,
              num_attention_heads=2, num_hidden_layers=1, num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=256)
STEPS, FIRST = 5, 3
FAULTS = {"create": ("kill", "fail", "full"), "write": ("kill", "fail", "full", "short", "drop"), "fsync": ("kill", "fail", "full", "drop"),
          "rename": ("kill", "fail", "full"), "remove": ("kill", "fail", "drop"), "mkdir": ("kill", "fail", "full")}
FAILED = []


def check(what, right, why=""):
    if not right:
        FAILED.append(what)
        print(f"FAILED {what}: {str(why)[-1500:]}")


def train(folder, steps, *words, **environment):
    command = [f"{BIN}/mpt-run", f"{folder}/../plan.json", "--data", f"{folder}/../text.txt", "--steps", steps, "--save-every", 1, "--keep", 1,
               "--checkpoints", f"{folder}/run/saved", "--log", f"{folder}/log.jsonl", *words]
    return subprocess.run([str(word) for word in command], env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=120)


def losses(folder):
    out = {}
    for line in open(f"{folder}/log.jsonl"):
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue  # cut off by the end of the process
        if "loss" in row:
            out[row["step"]] = row["loss"]
    return out


def finished_steps(folder):
    """Losses by step of a run that goes on from what is in the folder."""
    done = train(folder, STEPS, "--resume", "auto")
    return done, losses(folder) if done.returncode == 0 else {}


def spoil(scratch, number, kind, fault, reference):
    folder = os.path.join(scratch, f"{fault}-{number}")
    os.makedirs(f"{folder}/run")
    broken = train(folder, FIRST, LD_PRELOAD=LIBRARY, MPT_FAULTS_BELOW=f"{folder}/run", MPT_FAULT=fault, MPT_FAULT_AT=str(number))
    what = f"{fault} call {number} ({kind})"
    wanted = {"kill": (137, -9), "short": (0,)}.get(fault, (0, 1, 2))
    check(f"{what}: exit code {broken.returncode}", broken.returncode in wanted, broken.stderr)
    check(f"{what}: in words", broken.returncode in (0, 137) or "mpt-run:" in broken.stderr and "internal error" not in broken.stderr, broken.stderr)
    if fault == "fail" and kind == "remove" and broken.returncode == 0:  # FIRST saves, each but the first removes one
        left = [name for name in os.listdir(f"{folder}/run/saved") if name.startswith("step-")]  # the mark of a run may stay behind
        check(f"{what}: what was not removed is told", len(left) == 1 or "cannot be removed" in broken.stderr, (left, broken.stderr))
    if not os.path.exists(f"{folder}/run/saved") and fault in ("kill", "fail", "full"):
        shutil.rmtree(folder)
        return
    done, got = finished_steps(folder)
    wrong = [step for step in got if got[step] != reference[step]]
    check(f"{what}: resumed", done.returncode == 0 and not wrong and STEPS in got, (done.stderr, wrong, sorted(got)))
    left = os.listdir(f"{folder}/run/saved")
    if fault == "drop":  # a description that was not written: nobody knows whose that checkpoint is, and so nobody deletes it
        left = [name for name in left if os.path.getsize(f"{folder}/run/saved/{name}/checkpoint.json") > 0]
    check(f"{what}: one checkpoint is left", left == [f"step-{STEPS:08}"], left)
    shutil.rmtree(folder)


class Node:
    """A file with the bytes that are written and those that are on the disk; or a folder, the same with its names."""

    def __init__(self, is_folder):
        self.is_folder = is_folder
        self.bytes, self.kept_bytes = bytearray(), b""
        self.names, self.kept_names, self.waiting = {}, {}, []  # waiting: changes of names that no fsync has followed


class Disk:
    def __init__(self, root):
        self.root, self.node = root, Node(True)

    def place(self, path):
        """The folder's node and the name in it."""
        at = self.node
        *folders, name = os.path.relpath(path, self.root).split("/")
        for folder in folders:
            at = at.names[folder]
        return at, name

    def find(self, path):
        folder, name = self.place(path)
        return self.node if name == "." else folder.names[name]

    def change(self, folder, *changes):
        """Changes of names that become durable together: (name, node or None)."""
        for name, node in changes:
            folder.names.pop(name, None) if node is None else folder.names.__setitem__(name, node)
        folder.waiting.append(changes)

    def play(self, kind, path, more):
        if kind in ("create", "mkdir"):
            folder, name = self.place(path)
            if name not in folder.names:
                self.change(folder, (name, Node(kind == "mkdir")))
            elif kind == "create":
                folder.names[name].bytes.clear()
        elif kind == "write":
            self.find(path).bytes += bytes.fromhex(more)
        elif kind == "remove":
            folder, name = self.place(path)
            self.change(folder, (name, None))
        elif kind == "rename":
            (one, before), (other, after) = self.place(path), self.place(more)
            assert one is other, "a rename from folder to folder"
            self.change(one, (before, None), (after, one.names[before]))
        elif kind == "fsync":
            node = self.find(path)
            node.kept_bytes = bytes(node.bytes)
            for changes in node.waiting:
                apply(node.kept_names, changes)
            node.waiting = []

    def write(self, to, names, data):
        """What is there after a loss of power. `names(changes)`: those that reached the disk; `data`: what stands for bytes without fsync."""
        def put(node, path):
            if not node.is_folder:
                kept = {"gone": node.kept_bytes, "zeros": node.kept_bytes + b"\\0" * (len(node.bytes) - len(node.kept_bytes)), "there": bytes(node.bytes)}
                with open(path, "wb") as file:
                    file.write(kept[data])
                return
            os.makedirs(path, exist_ok=True)
            there = dict(node.kept_names)
            for changes in names(node.waiting):
                apply(there, changes)
            for name, child in there.items():
                put(child, os.path.join(path, name))
        put(self.node, to)


def apply(names, changes):
    for name, node in changes:
        names.pop(name, None) if node is None else names.__setitem__(name, node)


def calls_of_a_run(scratch):
    folder = os.path.join(scratch, "recorded")
    os.makedirs(f"{folder}/run")
    done = train(folder, FIRST, LD_PRELOAD=LIBRARY, MPT_FAULTS_BELOW=f"{folder}/run", MPT_CALLS=f"{folder}/calls")
    check("a run with the library before the C library's", done.returncode == 0, done.stderr)
    return f"{folder}/run", [line.rstrip("\n").split("\t") for line in open(f"{folder}/calls")]


def newest_whole(folder):
    """The step that `mpt-run inspect` finds, as --resume auto does."""
    done = subprocess.run([f"{BIN}/mpt-run", "inspect", folder, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    return json.loads(done.stdout)["step"] if done.returncode == 0 else 0


def lose_power(scratch, reference):
    """Each prefix of the calls, with names and bytes that reached the disk or did not."""
    root, calls = calls_of_a_run(scratch)
    draw = random.Random(SEED)
    ways = {"no names": lambda waiting: [], "all names": lambda waiting: waiting, "the last name": lambda waiting: waiting[-1:],
            "all but the last": lambda waiting: waiting[:-1], "any": lambda waiting: [one for one in waiting if draw.random() < 0.5]}
    disk, finished, begun, tried, states = Disk(root), 0, 0, 0, set()
    for number, (kind, path, more) in enumerate(calls, 1):
        disk.play(kind, path, more)
        name = os.path.basename(more)
        if kind == "rename" and name.startswith("step-"):
            begun = int(name[5:])
        if kind == "fsync" and path.endswith("/saved"):
            finished = max([int(name[5:]) for name in disk.find(path).kept_names if name.startswith("step-")], default=0)
        for way, names in ways.items():
            for data in ("gone", "zeros", "there"):
                to = os.path.join(scratch, "power", "run")
                shutil.rmtree(os.path.dirname(to), ignore_errors=True)
                disk.write(to, names, data)
                there = sorted((path, [(name, hash(open(os.path.join(path, name), "rb").read())) for name in sorted(inner)]) for path, _, inner in os.walk(to))
                state = str((finished, begun, there))  # what has to be there grows
                if state in states:
                    continue
                states.add(state)
                tried += 1
                step = newest_whole(f"{to}/saved")
                check(f"power lost behind call {number} ({kind}), {way}, bytes {data}", finished <= step <= begun, f"step {step}, finished {finished}, begun {begun}")
                if tried % 25 == 0:
                    done, got = finished_steps(os.path.dirname(to))
                    check(f"power lost behind call {number}, resumed", done.returncode == 0 and all(got[step] == reference[step] for step in got), done.stderr)
    check("states of a lost power", tried > 60, tried)
    return calls, tried


def main():
    # In memory, where the system has such a folder: what reaches the disk is played, and not measured.
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as scratch:
        with open(f"{scratch}/config.json", "w") as file:
            json.dump(CONFIG, file)
        with open(f"{scratch}/text.txt", "w") as file:
            file.write("".join(f"line {i * 7919 % 997} of the text\n" for i in range(400)))
        subprocess.run([f"{BIN}/mpt-plan", "--model", f"{scratch}/config.json", "--cluster", "this-machine:1", "--global-batch", "2", "--seq", "16", "-o",
                        f"{scratch}/plan.json"], check=True, stdout=subprocess.DEVNULL)
        os.makedirs(f"{scratch}/whole/run")
        check("a run that nothing befalls", train(f"{scratch}/whole", STEPS).returncode == 0)
        reference = losses(f"{scratch}/whole")
        calls, states = lose_power(scratch, reference)
        points = [(number, kind, fault) for number, (kind, *_) in enumerate(calls, 1) for fault in FAULTS[kind]]
        chosen = points[SEED % EVERY::EVERY]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda point: spoil(scratch, *point, reference), chosen))
    print(f"{len(calls)} calls, {states} states of a lost power, {len(chosen)} of {len(points)} faults (seed {SEED})")
    print(f"{len(FAILED)} failed" if FAILED else "the newest whole checkpoint loads from each")
    return 1 if FAILED else 0


sys.exit(main())
