# SPDX-License-Identifier: Apache-2.0
"""Runs programs and writes the report for scripts/gpu-check; has its trainings."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

from gpu_pack import ROOT, library_folders

# GPUs, and the name of their node in the catalog.
NODES = {"H100": "dgx-h100:1", "H200": "dgx-h200:1", "A100": "dgx-a100:1", "B200": "dgx-b200:1", "L40S": "l40s-pcie:1"}
# By use: model, sequence, sequences per micro-batch, micro-batches per step; how many of its layers, if not all.
TRAININGS = {"small": ["gpt2-124m", 1024, 32, 4], "gpt": ["gpt2-1.5b", 1024, 8, 8], "llama": ["llama3.2-1b", 2048, 4, 8],
             "long": ["llama3.2-1b", 8192, 1, 8], "ranks": ["tiny-llama", 64, 2, 4], "windows": ["gemma2-2b", 4096, 1, 2, 4],
             "latent": ["deepseek-v2", 4096, 1, 2, 1], "experts": ["mixtral-8x7b", 4096, 2, 2, 1],
             "processes": ["gpt2-124m", 1024, 16, 8], "spread": ["olmoe-1b-7b", 1024, 4, 8, 2], "full": ["llama3.2-1b", 8192, 12, 1]}


class Training:
    """A model, its sequence, sequences per micro-batch and micro-batches per step. Model files are in the folder of `file`."""

    def __init__(self, given, file):
        self.model, self.sequence, self.micro_batch, self.micro_batches, *layers = given
        self.layers = layers[0] if layers else None
        self.spec = os.path.join("models/zoo", self.model + ".json")
        if self.model.endswith(".json"):
            self.model = self.spec = os.path.join(os.path.dirname(os.path.abspath(file)), self.model)
        if not all(size > 0 for size in [self.sequence, self.micro_batch, self.micro_batches, *layers]):
            raise ValueError("a size below 1")

    def name(self):
        return os.path.splitext(os.path.basename(self.spec))[0]

    def cut(self, folder):
        """Writes the model with its lowest layers only, if the training has fewer layers."""
        if self.layers is None or os.path.dirname(self.spec) == folder:
            return
        model = json.loads(pathlib.Path(ROOT, self.spec).read_text())
        model.pop("source", None)
        names = [name for run in model["layers"]["order"] for name in run["of"] * run["repeat"]]
        model["layers"]["order"] = [{"repeat": 1, "of": names[:self.layers]}]
        used = set(names[:self.layers])
        model["layers"]["kinds"] = {name: kind for name, kind in model["layers"]["kinds"].items() if name in used}
        model["name"] = f"{self.name()}-{self.layers}-layers"
        self.model = self.spec = os.path.join(folder, model["name"] + ".json")
        pathlib.Path(self.spec).write_text(json.dumps(model))


def read_trainings(file):
    chosen = {**TRAININGS, **(json.loads(pathlib.Path(file).read_text()) if file else {})}
    if unknown := set(chosen) - set(TRAININGS):
        raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
    return {use: Training(given, file) for use, given in chosen.items()}


class OutOfTime(Exception):
    """The time of a part is over."""


def launch(command, **options):
    """Starts a program in a new session. stop() then reaches the processes that it starts, as compute-sanitizer does."""
    return subprocess.Popen([str(word) for word in command], start_new_session=True, cwd=ROOT, **options)


def stop(process):
    """Ends a program and the processes that it has started. They would keep its output open."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def output_of(process, timeout):
    """The output of a process, and whether it was stopped because it took longer."""
    try:
        return process.communicate(timeout=max(0.1, timeout))[0], False
    except subprocess.TimeoutExpired:
        stop(process)
        return process.communicate()[0], True
    except KeyboardInterrupt:  # sent to this session only, not to the process's
        stop(process)
        raise


class Check:
    """Runs the programs of the parts, and writes the report."""

    def __init__(self, options):
        self.options = options
        self.trainings = options.trainings
        self.failed = []
        self.held = None  # text that follows the present table
        self.cluster = NODES["H200"]
        self.profiles = {}  # of a model and a sequence: the file
        self.scratch = tempfile.mkdtemp(prefix="gpu-check-")
        unpacked = os.path.join(ROOT, "bin")
        build = options.binaries or (ROOT if os.path.isdir(unpacked) else os.path.join(ROOT, "build/release"))
        self.bin, self.tests = os.path.join(build, "bin"), os.path.join(build, "tests")
        self.end = time.monotonic() + options.budget  # of the whole check
        self.deadline = self.end                      # of the part at work
        self.environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(library_folders(build))}

    def say(self, text=""):
        print(text, flush=True)
        if self.options.dry_run:
            return
        with open(self.options.report, "a") as report:
            report.write(text + "\n")

    @contextlib.contextmanager
    def table(self, *columns):
        """Writes a table: say() adds a row, say_beside() adds text after the table."""
        self.say(f"| {' | '.join(columns)} |")
        self.say("| --- " * len(columns) + "|")
        self.held = []
        try:
            yield
        finally:
            held, self.held = self.held, None
            self.say("".join(f"\n{text}" for text in held) + "\n" * bool(held))

    def say_beside(self, text):
        if self.held is None:
            self.say(text)
        else:
            self.held.append(text)

    def left(self):
        return self.deadline - time.monotonic()

    def run(self, name, *command, env=None, timeout=570):
        """The output of a command. After a failure None, and the end of the output is printed."""
        if self.options.dry_run:
            print("would run:", " ".join(map(str, command)), flush=True)
            return None
        if self.left() <= 0:
            raise OutOfTime()
        limit = min(timeout, self.left())
        try:
            process = launch(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                            env={**self.environment, **(env or {})})
        except OSError as error:
            self.fail(name, str(error))
            return None
        output, late = output_of(process, limit)
        if not late and process.returncode == 0:
            return output
        self.fail(name, f"stopped after {limit:.0f} s\n{output[-1000:]}" if late else f"exit code {process.returncode}\n{output[-3000:]}")
        return None

    def fail(self, name, why):
        self.failed.append(name)
        self.say_beside(f"- FAILED: {name}: {why}")

    def program(self, name):
        return os.path.join(self.bin, name)

    def file(self, name):
        return os.path.join(self.scratch, name)


def wait_for_tests(check, process, log):
    """Ends the program when its log has not grown for a while."""
    size, since = -1, time.monotonic()
    try:
        while process.poll() is None:
            if os.path.getsize(log) != size:
                size, since = os.path.getsize(log), time.monotonic()
            if time.monotonic() - since > check.options.longest_test or check.left() <= 0:
                stop(process)
            time.sleep(0.1)
    except KeyboardInterrupt:
        stop(process)
        raise
