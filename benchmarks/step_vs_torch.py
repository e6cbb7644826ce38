# SPDX-License-Identifier: Apache-2.0
"""One training step (forward, backward, AdamW) of a GPT-2 style model: MPT against PyTorch, in turns, on one core and in
data parallel on two (PyTorch: DistributedDataParallel over gloo).

Usage: step_vs_torch.py TRAIN_STEP_PROGRAM [--quick] [--page FILE] [--python PYTHON]...

Each PYTHON has a PyTorch; one of release 2 and later also takes its steps compiled. Without any it is this one. Prints each peer with
its BLAS, and for each size the medians, PyTorch's time as a multiple of MPT's, median with least and most of all rounds, and
which share of the speed of matrix products on the same cores MPT's steps reach: products are measured before each step, and for as long.
--quick has two rounds of a small size; --page also writes FILE in Markdown. Exit code 3: there is no PyTorch to compare with.
"""

import argparse
import contextlib
import datetime
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile

from commands import processor

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_steps.py")
# layers, hidden, heads, sequence, batch of each rank, vocabulary; in which type. PyTorch computes bf16 by autocast.
SIZES = [((8, 128, 4, 256, 4, 256), "fp32"), ((4, 256, 4, 256, 2, 256), "fp32"),
         ((4, 512, 8, 256, 2, 256), "bf16"), ((2, 768, 12, 256, 1, 50257), "bf16")]
SMALL = [((2, 64, 4, 64, 2, 256), "fp32"), ((2, 64, 4, 64, 2, 256), "bf16")]
ROUNDS, WARM_UP = 15, 2  # the first two do not count
LARGEST_ERROR = 1e-4  # of a product in fp32; a sum of 384 rounds to about 1e-6
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}


class TorchPeer:
    """The processes of one PyTorch, one for each rank."""

    def __init__(self, python, compiled, environment, size, kind, ranks):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        flags = [*(["--compile"] if compiled else []), *(["--bf16"] if kind == "bf16" else [])]
        self.errors = tempfile.TemporaryFile("w+")
        self.workers = [subprocess.Popen([python, WORKER, *flags, *map(str, (rank, ranks, port, *size))], env=environment, text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors) for rank in range(ranks)]

    def read(self):
        lines = [worker.stdout.readline() for worker in self.workers]
        if not all(lines):
            failed = self.workers[lines.index("")]
            for worker in self.workers:
                worker.kill()
            failed.wait()
            self.errors.seek(0)
            said = self.errors.read().strip().split("\n")[-1]
            raise RuntimeError(said or f"ended with code {failed.returncode}")
        return lines

    def about(self):
        return json.loads(self.read()[0])

    def step(self):
        for worker in self.workers:
            worker.stdin.write("\n")
            worker.stdin.flush()
        return max(map(float, self.read()))

    def close(self):
        for worker in self.workers:
            with contextlib.suppress(BrokenPipeError):  # it has ended already
                worker.stdin.close()
        for worker in self.workers:
            worker.wait()
            worker.stdout.close()


class Mpt:
    def __init__(self, program, size, kind, ranks):
        self.process = subprocess.Popen([program, *map(str, (*size, ranks, kind))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.flops = float(self.process.stdout.readline())

    def ask(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def product_flop_per_s(self):
        return self.ask(0)

    def step(self):
        return self.ask(1)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def environments():
    """Environments to try a peer in, the fastest first. OPENBLAS_CORETYPE selects kernels for another processor."""
    common = {**os.environ, **ONE_THREAD}
    own = {name: value for name, value in common.items() if name not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    return [own, common] if own != common else [own]


def tried(python, compiled, environment):
    """A peer's description of itself after a step; RuntimeError if it cannot take one or should not."""
    peer = TorchPeer(python, compiled, environment, *SMALL[0], 1)
    try:
        about = peer.about()
        if about["product_error"] > LARGEST_ERROR:
            raise RuntimeError(f"{about['blas']} computes products wrongly, off by {about['product_error']:.1g}")
        if not compiled or can_compile(about):
            peer.step()
        return about
    finally:
        peer.close()


def can_compile(about):
    return int(about["torch"].split(".")[0]) >= 2


def find_peer(python, compiled):
    """(name, BLAS, python, compiled, environment) in the first environment in which it computes correctly, or None."""
    for environment in environments():
        try:
            about = tried(python, compiled, environment)
        except (RuntimeError, OSError) as error:
            print(f"left out: {python}{', compiled' if compiled else ''}: {error}", flush=True)
            continue
        if compiled and not can_compile(about):
            return None
        name = f"PyTorch {about['torch']}{', compiled' if compiled else ''}"
        print(f"{name}: {about['blas']}", flush=True)
        if about["blas"].startswith("reference BLAS"):
            print("  The reference BLAS is many times slower than others: a ratio to it says nothing of MPT.\n"
                  "  Once Debian's libopenblas0-pthread is installed, the same PyTorch uses that.")
        return name, about["blas"], python, compiled, environment
    return None


def compare(program, peers, size, kind, ranks, rounds):
    """The table of one size. All programs take turns, so that a busy minute affects all of them."""
    ours = Mpt(program, size, kind, ranks)
    others = [TorchPeer(python, compiled, environment, size, kind, ranks) for _, _, python, compiled, environment in peers]
    for other in others:
        other.about()
    mine, shares, theirs = [], [], [[] for _ in others]
    for number in range(WARM_UP + rounds):
        product = ours.product_flop_per_s()
        step_s = ours.step()
        turn = [other.step() for other in others]
        if number >= WARM_UP:
            mine.append(step_s)
            shares.append(ours.flops / step_s / product)
            for times, seconds in zip(theirs, turn):
                times.append(seconds)
    for process in (ours, *others):
        process.close()
    layers, hidden, _, sequence, batch, vocabulary = size
    rows = [Row("MPT", statistics.median(mine), share=statistics.median(shares))]
    for (name, *_), times in zip(peers, theirs):
        rows.append(Row(name, statistics.median(times), sorted(other / own for other, own in zip(times, mine))))
    words = f", {vocabulary:,} words" if vocabulary != 256 else ""
    return Table(kind, f"{layers} layers, hidden {hidden}, sequence {sequence}, batch {batch * ranks}{words}, "
                 f"{ranks} core{'s' if ranks > 1 else ''}", rows)


class Row:
    """Medians; ratios: a peer's time as a multiple of MPT's, of each round; share: of a product's speed."""

    def __init__(self, name, seconds, ratios=(), share=None):
        self.name, self.seconds, self.ratios, self.share = name, seconds, ratios, share

    def words(self):
        return (f"{statistics.median(self.ratios):5.2f}x of MPT's time ({self.ratios[0]:.2f} to {self.ratios[-1]:.2f})" if self.share is None else
                f"{self.share:5.1%} of a product's speed")


class Table:
    def __init__(self, kind, title, rows):
        self.kind, self.title, self.rows = kind, f"{kind}, {title}", rows

    def text(self):
        return "\n".join([self.title, *(f"  {row.name:<34}{row.seconds * 1e3:8.1f} ms   {row.words()}" for row in self.rows)])

    def fastest_peer(self):
        """The least median ratio over all peers."""
        return min(statistics.median(row.ratios) for row in self.rows if row.ratios)


def verdict(tables):
    def span(kind):
        fastest = [table.fastest_peer() for table in tables if table.kind == kind]
        return f"{min(fastest):.2f} to {max(fastest):.2f} times as long"
    return (f"The fastest PyTorch here takes {span('fp32')} for a step as MPT in fp32, and {span('bf16')} in bf16, "
            "by model and number of cores.")


def page(peers_text, tables, rounds):
    lines = ["# One training step against PyTorch", "",
             "`./scripts/bench step --page reports/results/step.md` writes this page.", "", verdict(tables), "",
             f"{datetime.date.today()}, {processor()}, {rounds} rounds. In each round all take one step in turn, with one thread "
             "for each rank. A step is forward, backward and AdamW of a GPT-2 style model. Ratios are medians, with least and most "
             "of all rounds.", "", "```", *peers_text, *(f"\n{table.text()}" for table in tables), "```", "",
             "`reports/results/step_vs_torch_202611.md` has earlier measurements, with the reference BLAS.", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--page", metavar="FILE")
    parser.add_argument("--python", action="append", default=[], metavar="PYTHON")
    options = parser.parse_args()
    pythons = options.python or [sys.executable]
    peers = [peer for python in pythons for compiled in (False, True) if (peer := find_peer(python, compiled))]
    if not peers:
        print("no PyTorch to compare with")
        sys.exit(3)
    print("One thread for each rank.")
    rounds, tables = 2 if options.quick else ROUNDS, []
    for ranks in (1, 2):
        for size, kind in SMALL if options.quick else SIZES:
            tables.append(compare(options.program, peers, size, kind, ranks, rounds))
            print(f"\n{tables[-1].text()}", flush=True)
    print(f"\n{verdict(tables)}")
    if options.page:
        with open(options.page, "w") as file:
            file.write(page([f"{name}: {blas}" for name, blas, *_ in peers], tables, rounds))


main()
