# SPDX-License-Identifier: Apache-2.0
"""Compares programs in turn for scripts/gpu-check, and reads the GPU's state from the driver meanwhile."""

import contextlib
import json
import pathlib
import statistics
import subprocess
import time

from gpu_programs import launch, stop


class Peer:
    """A program that does one task for each line of input, and answers by a line of JSON."""

    def __init__(self, check, *command):
        self.check, self.log = check, check.file("peer.log")
        with open(self.log, "w") as out:
            self.process = launch(command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, text=True, env=check.environment)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        stop(self.process)
        self.process.wait()

    def answers(self):
        with open(self.log, errors="replace") as log:
            return [json.loads(line) for line in log if line.startswith("{") and line.endswith("}\n")]

    def ask(self, line, timeout):
        """The answer; if there is none, the reason."""
        known, end = len(self.answers()), time.monotonic() + min(timeout, self.check.left())
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:  # it has ended
            end = 0.0
        while time.monotonic() < end and self.process.poll() is None and len(self.answers()) == known:
            time.sleep(0.05)
        if len(self.answers()) > known:
            return self.answers()[known]
        text = pathlib.Path(self.log).read_text(errors="replace")[-600:].strip()
        return {"failed": f"ended with {self.process.poll()}: {text}" if self.process.poll() is not None else f"no answer in time: {text}"}


class Watch:
    """The driver's readings of the GPU while something runs."""

    FIELDS = ("clocks.sm", "power.draw", "temperature.gpu", "memory.used")

    def __init__(self, check):
        self.log, self.environment = check.file("watch.csv"), check.environment
        self.rows = []

    def __enter__(self):
        with open(self.log, "w") as out:
            self.process = launch(["nvidia-smi", "--query-gpu=" + ",".join(self.FIELDS), "--format=csv,noheader,nounits", "-i", "0",
                                   "-lms", "200"], stdout=out, stderr=subprocess.STDOUT, env=self.environment)
        return self

    def __exit__(self, *_):
        stop(self.process)
        self.process.wait()
        for line in pathlib.Path(self.log).read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):  # "[N/A]", or a line that was cut off
                self.rows.append([float(cell) for cell in line.split(",")])
        self.rows = [row for row in self.rows if len(row) == len(self.FIELDS)]

    def most_memory_gib(self):
        return max((row[3] for row in self.rows), default=0.0) / 1024

    def text(self):
        if not self.rows:
            return "the driver said nothing"
        clocks, watts, celsius, _ = zip(*self.rows)
        return f"{statistics.median(clocks):,.0f} MHz, {statistics.median(watts):,.0f} W, {max(celsius):.0f} C at most"


class Measured:
    """The results of a training's turns."""

    def __init__(self, training):
        self.training = training
        self.own, self.theirs = [], {}

    def rates_of(self, backend):
        return [answer["tokens_per_s"] for answer, _ in self.theirs.get(backend, []) if "tokens_per_s" in answer]

    def report(self, check, prediction, source):
        t, runs = self.training, [(records, watch) for records, watch in self.own if records]
        for backend, turns in self.theirs.items():
            self.report_torch(check, backend, turns)
        if not runs:
            return
        seconds = [statistics.median(r["step_time_s"] for r in records[2:]) for records, _ in runs]
        step_s, tokens = statistics.median(seconds), t.sequence * t.micro_batch * t.micro_batches
        records = [r for of_run, _ in runs for r in of_run[2:]]
        peak = max(rank["peak_bytes"] for r in records for rank in r["ranks"])
        rates = {backend: statistics.median(self.rates_of(backend)) for backend in ("cudnn", "flash") if self.rates_of(backend)}
        check.say(f"| {t.name()} | {t.sequence} | {t.micro_batch} x {t.micro_batches} | {step_s * 1e3:.1f} ms | "
                  f"{prediction['step_time_s'] * 1e3:.1f} ms | {source} | {tokens / step_s:,.0f} | "
                  f"{statistics.median(r.get('model_flop_utilization', 0.0) for r in records):.1%} | {peak / 2**30:.2f} GiB | "
                  f"{max(m['peak_bytes'] for m in prediction['memory']) / 2**30:.2f} GiB | "
                  f"{max(watch.most_memory_gib() for _, watch in runs):.2f} GiB | "
                  f"{' | '.join(f'{rates[b]:,.0f}' if b in rates else '-' for b in ('cudnn', 'flash'))} | "
                  f"{f'{tokens / step_s / max(rates.values()):.2f}x' if rates else '-'} |")
        check.say_beside(f"{t.name()}, mpt-run: {spread([tokens / s for s in seconds])}; {runs[-1][1].text()}.\n")

    def report_torch(self, check, backend, turns):
        failed = [answer["failed"] for answer, _ in turns if "failed" in answer]
        rates = self.rates_of(backend)
        if failed and failed[0].startswith("ended with 3:"):
            return check.say_beside(f"({self.training.name()}, PyTorch {backend}: {failed[0].split(': ', 1)[1]})\n")
        if failed:
            check.fail(f"PyTorch {self.training.name()}, {backend}", failed[0])
        if rates:
            told = {key: value for key, value in turns[0][0].items() if key not in ("tokens_per_s", "attention", "loss")}
            check.say_beside(f"{self.training.name()}, PyTorch with {turns[0][0]['attention']}: {spread(rates)}; {turns[-1][1].text()}; "
                             f"{', '.join(f'{key} {value}' for key, value in told.items())}.\n")
        return None


def spread(rates):
    return f"{min(rates):,.0f} to {max(rates):,.0f} tokens/s in {len(rates)} turns" if len(rates) > 1 else f"{rates[0]:,.0f} tokens/s in one turn"
