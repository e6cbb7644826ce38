#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Commands drawn by chance over models, clusters, frameworks and options, beside the gate.

Usage: drawn.py PROGRAMS SEED SECONDS. Found are: another exit code than 0 to 4, an inner error, a signal, and a command that takes over two
minutes; plans of one and of two threads that differ; and an exported file that is read back as another layout, workload or step time.
Prints each with its command, and ends with 1 if there is any. Each draw has a number: drawn.py PROGRAMS SEED SECONDS --from N goes on there."""

import argparse
import collections
import json
import os
import pathlib
import random
import subprocess
import tempfile
import time

CLUSTERS = ["dgx-h100:1", "dgx-h100:2", "dgx-h100:8", "dgx-h100:64", "dgx-a100:1", "dgx-a100:4", "8xl40s", "2x5090", "a100-40gb:8", "dgx-b200:2", "h100:16",
            "dgx-h100:2+dgx-a100:2@100Gb/s", "dgx-b200:1+dgx-h100:1@200Gb/s", "this-machine:4", "4x4090", "1xh100"]
# The file that names the layout, of those that are exported.
FILES = {"transformers-fsdp": "accelerate.yaml", "transformers-ddp": "accelerate.yaml", "transformers-deepspeed": "accelerate.yaml",
         "deepspeed": "deepspeed.json", "automodel": "automodel.yaml", "torchtitan": "mpt_torchtitan.py", "megatron-core": "megatron_args.txt",
         "megatron-bridge": "mpt_layout.py", "pytorch": "mpt_train.py", "trl": "sft.yaml", "llamafactory": "recipe.yaml", "axolotl": "recipe.yaml"}
TUNERS = ["trl", "llamafactory", "axolotl"]  # which write LoRA for the Trainer's frameworks
# Of a layout, what its file may leave open if the step takes as long.
FREE = {"execution", "overlap_parameter_gather", "overlap_gradient_reduce"}
OPTIONS = [[], [], ["--recompute", "full"], ["--recompute", "none"], ["--recompute", "selective"], ["--precision", "fp8"], ["--precision", "fp16"], ["--precision", "fp32"],
           ["--zero", "1"], ["--zero", "2"], ["--zero", "3"], ["--tp", "2"], ["--pp", "2"], ["--cp", "2"], ["--ep", "2"], ["--sp", "on"], ["--schedule", "1f1b"],
           ["--lora", "16"], ["--lora", "8", "--frozen-weights", "nf4"], ["--optimizer", "adamw8"], ["--optimizer", "muon"], ["--gap", "1%"], ["--pareto"],
           ["--micro-batch", "1"], ["--micro-batch", "4"], ["--execution", "loss=chunked"], ["--offload", "on"], ["--limit", "85%"], ["--time-limit", "2"], ["--deterministic"]]


class Draws:
    def __init__(self, programs, folder):
        self.program, self.folder = str(pathlib.Path(programs).resolve() / "mpt-plan"), folder
        self.found, self.codes = [], collections.Counter()
        listed = subprocess.run([self.program, "model", "list"], capture_output=True, text=True, check=True).stdout
        self.models = [line.split()[0] for line in listed.splitlines()[2:] if line.strip()]
        self.frameworks = [*FILES, "mpt"]

    def run(self, *words):
        try:
            done = subprocess.run([self.program, *words], capture_output=True, text=True, timeout=120, cwd=self.folder)
        except subprocess.TimeoutExpired:
            self.find(words, "takes over two minutes")
            return None
        self.codes[words[0] if not words[0].startswith("-") else "plan", done.returncode] += 1
        if done.returncode not in range(5) or "internal error" in done.stderr:
            self.find(words, f"exit code {done.returncode}: {done.stderr.strip()[-300:]}")
        return done

    def find(self, words, what):
        self.found.append(what)
        print(f"FOUND {what}\n  mpt-plan {' '.join(words)}", flush=True)

    def plan(self, rng, name, threads):
        return None if self.run(*self.request(rng), "--threads", threads, "-o", name) is None else self.read(name)

    def request(self, rng):
        words = ["--model", rng.choice(self.models), "--cluster", rng.choice(CLUSTERS), "--global-batch", str(rng.choice([8, 16, 32, 64, 96, 256, 1024])),
                 "--seq", rng.choice(["1024", "2048", "4096", "8k", "32k"])]
        if rng.random() < 0.85:
            words += ["--framework", rng.choice(self.frameworks)]
        for option in rng.sample(OPTIONS, rng.choice([0, 1, 1, 2, 3])):
            words += option
        return words

    def read(self, name):
        path = os.path.join(self.folder, name)
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def round_trip(self, rng, plan, words):
        """What is exported says the same when it is read."""
        framework = plan["layout"]["execution"]["framework"]
        asked = words[words.index("--framework") + 1] if "--framework" in words else framework
        # An alias has other defaults; a part of a mixed cluster cannot be asked for; one rank has no ZeRO.
        to = rng.choice(TUNERS) if plan["layout"].get("training", {}).get("adapter_rank") and framework.startswith("transformers") else framework
        if asked != framework or "+" in words[3] or ranks(plan) == 1 or to not in FILES:
            return
        out = f"out{len(os.listdir(self.folder))}"
        exported = self.run("export", "one.json", "--to", to, "-o", out)
        file = os.path.join(out, FILES[to])
        if exported is None or exported.returncode != 0 or not os.path.exists(os.path.join(self.folder, file)):
            return
        back = [word for name in ("--execution", "--limit") for i, at in enumerate(words) if at == name for word in (at, words[i + 1])]
        done = self.run("import", file, "--cluster", words[3], "--gpus", str(ranks(plan)), "--from", framework, *back, "-o", "back.json")
        again = self.read("back.json")
        if done is not None and done.returncode == 2:
            self.find(words, f"{framework}: its own file is refused: {done.stderr.strip()[-200:]}")
        if done is None or again is None:
            return
        layout = plan["layout"]
        open_keys = FREE | ({"zero"} if layout["data"] * layout["context"] == 1 else set())
        different = {key: (value, again["layout"].get(key)) for key, value in layout.items() if key not in open_keys and again["layout"].get(key) != value}
        ratio = again["prediction"]["step_time_s"] / plan["prediction"]["step_time_s"]
        if different or plan["workload"] != again["workload"] or abs(ratio - 1) > 1e-4 and to not in TUNERS:  # which have other losses
            kept = plan["layout"]["execution"]
            changed = {key: (value, again["layout"]["execution"].get(key)) for key, value in kept.items() if again["layout"]["execution"].get(key) != value}
            self.find(words, f"{framework} reads back otherwise: {different} {changed} workload {plan['workload'] == again['workload']}, step time {ratio:.6f}")
        os.remove(os.path.join(self.folder, "back.json"))

    def draw(self, seed):
        rng = random.Random(seed)
        words = self.request(rng)
        for name in ("one.json", "two.json", "back.json"):
            if os.path.exists(os.path.join(self.folder, name)):
                os.remove(os.path.join(self.folder, name))
        self.run(*words, "--threads", "1", "-o", "one.json")
        plan = self.read("one.json")
        if plan is None:
            return
        if rng.random() < 0.2 and not {"--time-limit", "--gap"} & set(words):
            self.run(*words, "--threads", "2", "-o", "two.json")
            other = self.read("two.json")
            if other is None or other["ranking"] != plan["ranking"] or other["layout"] != plan["layout"]:
                self.find(words, "plans of one and of two threads differ")
        self.round_trip(rng, plan, words)
        kind = rng.random()
        if kind < 0.1:
            self.run("explain", "one.json", *rng.choice([[], ["--operators"], ["--json"]]))
        elif kind < 0.2:
            self.run("export", "one.json", "--to", rng.choice([*FILES, "slurm", "kubernetes"]), "-o", f"more{seed}")
        elif kind < 0.3:
            self.run("doctor", *words)
        elif kind < 0.35:
            self.run("recommend", *words[:2], "--tokens", "1B", *words[2:4])


def ranks(plan):
    layout = plan["layout"]
    return layout["tensor"] * layout["context"] * layout["pipeline"] * layout["data"]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("programs")
    options.add_argument("seed", type=int)
    options.add_argument("seconds", type=float)
    options.add_argument("--from", dest="begin", type=int, default=0, help="number of the first draw")
    given = options.parse_args()
    end, number = time.monotonic() + given.seconds, given.begin
    with tempfile.TemporaryDirectory() as folder:
        draws = Draws(given.programs, folder)
        while time.monotonic() < end:
            before = len(draws.found)
            draws.draw(f"{given.seed} {number}")
            if len(draws.found) > before:
                print(f"  draw {number}", flush=True)
            number += 1
    print(f"{number - given.begin} draws, {len(draws.found)} found; exit codes: " + ", ".join(f"{name} {code}: {count}" for (name, code), count in sorted(draws.codes.items())))
    return int(bool(draws.found))


if __name__ == "__main__":
    raise SystemExit(main())
