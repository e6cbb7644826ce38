# SPDX-License-Identifier: Apache-2.0
"""What the modules of this folder share: they judge the folders of a work folder one by one, and print one JSON line for each."""

import contextlib
import io
import json
import multiprocessing
import os
import sys
import traceback
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "../../support")]

from flat_model import flat  # noqa: E402

REAL_STDOUT = sys.stdout


class Comparison:
    """Collects the fields in which the accepted configuration differs from the plan."""

    def __init__(self, plan):
        self.plan, self.model, self.layout = plan, flat(plan["model"]), plan["layout"]
        self.execution, self.workload = self.layout["execution"], plan["workload"]
        self.differences, self.compared = [], 0

    def same(self, field, planned, accepted):
        self.compared += 1
        close = isinstance(planned, float) and isinstance(accepted, (int, float)) and abs(planned - accepted) <= 1e-9 * abs(planned)
        if planned != accepted and not close:
            self.differences.append({"field": field, "plan": planned, "framework": accepted})

    @property
    def replicas(self):
        return self.layout["data"] * self.layout["context"]

    @property
    def ranks(self):
        return self.replicas * self.layout["tensor"] * self.layout["pipeline"]

    @property
    def nodes(self):
        cluster = self.plan["cluster"]
        per_node = min(cluster.get("devices_per_host") or cluster["devices_per_node"], self.ranks)
        return -(-self.ranks // per_node)

    @property
    def stages(self):
        return self.layout["pipeline"] * self.layout["chunks"]

    @property
    def micro_batches(self):
        return self.workload["global_batch"] // (self.layout["data"] * self.layout["micro_batch"])

    @property
    def layers_of_stages(self):
        """Decoder layers of each virtual stage, in the order of the model."""
        return self.layout["layers_per_stage"] or [self.model["layers"] // self.stages] * self.stages

    @property
    def recomputed_of_stages(self):
        """Layers of each virtual stage that recompute in full."""
        if self.layout["recompute"] != "full":
            return [0] * self.stages
        if not self.layout["recomputed_layers"]:
            return self.layers_of_stages
        return [min(pair) for pair in zip(self.layers_of_stages, self.layout["recomputed_layers"])]


def place(error):
    """The last line of the framework's own code that the error passed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "site-packages" in frame.filename]
    if not frames:
        frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    return f"{last.filename.split('site-packages/')[-1]}:{last.lineno}"


def apart(work):
    """What work() returns, computed in a child process: frameworks keep meshes and groups in globals that one process fills once."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=lambda: there.send(work()))
    child.start()
    there.close()
    try:
        return here.recv()
    except EOFError:
        child.join()
        raise RuntimeError(f"the process ended with {child.exitcode}") from None
    finally:
        child.join()


def verdict_of(check, plan):
    """Accepted, refused or differs; whatever check() raises is a refusal."""
    comparison = Comparison(plan)
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            check(comparison)
        if comparison.compared == 0:
            raise RuntimeError("nothing was compared")
    except (Exception, SystemExit) as error:  # a framework refuses in any way that it likes
        message = str(error) if not isinstance(error, SystemExit) else said.getvalue().strip().split("\n")[-1]
        words = " ".join((message or "no message").split())[:400]
        return {"outcome": "refused", "message": f"{type(error).__name__} at {place(error)}: {words}", "differences": []}
    differences = json.loads(json.dumps(comparison.differences, default=str))
    return {"outcome": "differs" if differences else "accepted", "message": "", "differences": differences}


def judge(check):
    """Runs check(folder, comparison) for every folder in the work folder, or for the named ones, each in a process of its own."""
    warnings.simplefilter("ignore")
    work = sys.argv[1]
    for name in sys.argv[2:] or sorted(os.listdir(work)):
        folder = os.path.abspath(os.path.join(work, name))
        with open(os.path.join(folder, "plan.json"), encoding="utf-8") as file:
            plan = json.load(file)
        try:
            verdict = apart(lambda: verdict_of(lambda comparison: check(folder, comparison), plan))
        except RuntimeError as error:
            verdict = {"outcome": "refused", "message": str(error), "differences": []}
        print(json.dumps({"plan": name, **verdict}), file=REAL_STDOUT, flush=True)
