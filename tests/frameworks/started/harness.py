# SPDX-License-Identifier: Apache-2.0
"""Starts a case on 2 or 4 gloo processes, and compares loss, gradients and norm with one process.

As a program, `python -m started.harness NAME CASES...` runs cases of started/NAME.py with the interpreter of its environment, and
prints a line of JSON for each. The package is imported once, and each case runs in forks of that process.
"""

import contextlib
import faulthandler
import importlib
import json
import os
import pickle
import signal
import socket
import sys
import tempfile
import time
import traceback
from typing import NamedTuple

LIMIT_S = float(os.environ.get("MPT_CASE_SECONDS", "60"))
# A gradient is right when it differs by less than this part of the weight's largest gradient.
TOLERANCE = 1e-5


class Case(NamedTuple):
    name: str
    ranks: int
    axes: dict  # what is combined
    model: str
    expected: str  # "right", "wrong", "scaled FACTOR" (right but for a factor of all gradients) or "raises PHRASE"
    sentence: str  # what the row says to a reader
    sample: bool = False  # runs without --start, too
    tolerance: float = TOLERANCE


class Seen(NamedTuple):
    """What one process has after its step. Names of gradients are those of the whole model; a value may be a list of pieces."""

    loss: float | None
    gradients: dict  # name -> whole tensor, or None where the framework has none
    norm: float | None = None  # what clipping would divide by
    facts: dict = {}  # counts and sizes that the row keeps


class NotActive(Exception):
    """The framework ran, but not with the axis that the case is about."""


def require(active, what):
    if not active:
        raise NotActive(what)


def norm_of(gradients):
    return sum(float(value.double().pow(2).sum()) for value in gradients.values() if value is not None) ** 0.5


class Piece(NamedTuple):
    """A part of a weight's gradient, where a process holds no more of it."""

    offset: tuple
    value: object


def worse(known, difference, largest):
    value = float(difference.abs().max()) / max(largest, 1e-30)
    return value if not value <= known else known  # a NaN is worse, too


def compared(seen, alone, factor):
    """How far each gradient of this process is off, as a part of the weight's largest gradient; and once more after the factor."""
    off, scaled, lost, covered = {}, {}, [], {}
    for name, gradient in seen.gradients.items():
        if name not in alone.gradients:
            raise NotActive(f"a gradient of '{name}', which the model on one process lacks")
        want = alone.gradients[name]
        largest = float(want.abs().max()) if want is not None else 0.0
        if gradient is None:
            if largest:
                lost.append(name)
            continue
        off[name] = scaled[name] = 0.0
        for offset, value in gradient if isinstance(gradient, list) else [Piece((0,) * want.ndim, gradient)]:
            part = want[tuple(slice(start, start + size) for start, size in zip(offset, value.shape))]
            if part.shape != value.shape:
                raise NotActive(f"a gradient of '{name}' of {tuple(value.shape)} at {offset}, in one of {tuple(want.shape)}")
            covered.setdefault(name, {})[offset] = value.numel() / want.numel()
            off[name] = worse(off[name], value.float() - part, largest)
            scaled[name] = worse(scaled[name], value.float() / factor - part, largest)
    return {"off": off, "scaled": scaled, "lost": lost, "covered": covered, "names": list(alone.gradients), "alone_loss": alone.loss,
            "alone_norm": alone.norm, "loss": seen.loss, "norm": seen.norm, "facts": seen.facts}


def after_fork():
    """Makes the thread pool of this process before autograd's threads do: two that find the parent's at once end the process."""
    import torch
    torch.set_num_threads(1)


def alone_in_fork(module, case, folder):
    """What one process has; a process of its own, since frameworks change a model's functions for the whole process."""
    answer = os.path.join(folder, "alone")
    child = os.fork()
    if child == 0:
        log = os.open(os.path.join(folder, "alone.log"), os.O_CREAT | os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        try:
            after_fork()
            seen = module.alone(case)
            with open(answer, "wb") as file:
                pickle.dump(seen, file)
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(0)
    wait_for([child], LIMIT_S)
    if not os.path.exists(answer):
        with open(os.path.join(folder, "alone.log"), errors="replace") as file:
            raise RuntimeError(f"{case.name} on one process:\n{file.read()[-3000:]}")
    return answer


def factor_of(case):
    return float(case.expected.removeprefix("scaled ")) if case.expected.startswith("scaled ") else 1.0


def in_rank(module, case, rank, folder, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(case.ranks),
                      LOCAL_WORLD_SIZE=str(case.ranks))
    log = os.open(os.path.join(folder, f"{rank}.log"), os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.dump_traceback_later(max(LIMIT_S - 5, 1))
    before = set(sys.modules)
    try:
        after_fork()
        seen = module.run(case, rank)
        with open(os.path.join(folder, "alone"), "rb") as file:
            answer = compared(seen, pickle.load(file), factor_of(case))
    except BaseException as error:  # an error is what some cases are about
        traceback.print_exc()
        answer = {"error": type(error).__name__, "says": " ".join(str(error).split())}
    answer["imported"] = [name for name in sys.modules if name not in before]
    with open(os.path.join(folder, f"{rank}.part"), "wb") as file:
        pickle.dump(answer, file)
    os.rename(os.path.join(folder, f"{rank}.part"), os.path.join(folder, f"{rank}.answer"))
    # Who waits for a process that raised an error learns of it when that one ends.
    end = time.monotonic() + LIMIT_S / (10 if "error" in answer else 2)
    while time.monotonic() < end and not all(os.path.exists(os.path.join(folder, f"{other}.answer")) for other in range(case.ranks)):
        time.sleep(0.01)  # whoever leaves early cuts others off from their last collective
    sys.stdout.flush()
    os._exit(0)


def wait_for(children, limit_s):
    """Waits for the processes, ends those that are left, and says whether any was."""
    end = time.monotonic() + limit_s
    running = set(children)
    while running and time.monotonic() < end:
        for child in list(running):
            if os.waitpid(child, os.WNOHANG)[0]:
                running.discard(child)
        time.sleep(0.01)
    for child in running:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return bool(running)


def answers_of(module, case, limit_s):
    """One answer for each rank; None where a process had to be ended."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        children = []
        alone_in_fork(module, case, folder)
        for rank in range(case.ranks):
            child = os.fork()
            if child == 0:
                os.setpgid(0, 0)
                os.chdir(folder)
                in_rank(module, case, rank, folder, port)
            children.append(child)
        wait_for(children, limit_s)
        answers = []
        for rank in range(case.ranks):
            answers.append(None)
            with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, f"{rank}.answer"), "rb") as file:
                answers[-1] = pickle.load(file)
            if os.environ.get("MPT_LOGS"):
                with open(os.path.join(folder, f"{rank}.log"), errors="replace") as file:
                    sys.stderr.write(f"--- {case.name}, rank {rank}\n{file.read()[-6000:]}\n")
    return answers


def import_for_next(answers):
    """Imports here what the processes of a case imported, so that the next forks have it."""
    for name in answers[0]["imported"] if answers[0] else []:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def is_echo(answer):
    """Whether the error only says that another process ended."""
    return any(phrase in answer["says"] for phrase in ("gloo/transport", "Connection closed by peer", "Connection reset"))


def outcome_of(case, answers):
    """The row of a case: what happened, and how far the worst gradient is off."""
    errors = [answer for answer in answers if answer and "error" in answer]
    if errors:
        phrase = case.expected.removeprefix("raises ")
        error = min(errors, key=lambda answer: (answer["error"] != "NotActive", phrase not in answer["says"], is_echo(answer)))
        outcome = "not active" if error["error"] == "NotActive" else "raises"
        return {"outcome": outcome, "error": f"{error['error']}: {error['says'][:300]}"}
    if None in answers:
        return {"outcome": "hangs"}
    off = {}
    for answer in answers:
        for name, value in answer["off"].items():
            off[name] = max(off.get(name, 0.0), value if value == value else float("inf"))
        off.update(dict.fromkeys(answer["lost"], 1.0))
    names = answers[0]["names"]
    missing = [name for name in names if name not in off or part_held(answers, name) < 0.999]
    if missing:
        return {"outcome": "not active", "error": f"no process has {', '.join(missing[:4])}"}
    return figures_of(case, answers, off, names)


def part_held(answers, name):
    """How much of a weight the processes hold together."""
    pieces = {}
    for answer in answers:
        pieces.update(answer["covered"].get(name, {}))
    return sum(pieces.values()) if pieces else 1


def figures_of(case, answers, off, names):
    lost = sorted({name for answer in answers for name in answer["lost"]})
    wrong = [name for name in names if off[name] > case.tolerance and name not in lost]
    relative = {"loss": 0.0, "norm": 0.0}
    for answer in answers:
        for key in relative:
            if answer[key] is not None:
                relative[key] = max(relative[key], abs(answer[key] / answer["alone_" + key] - 1))
    bad = bool(lost or wrong or relative["norm"] > case.tolerance)
    row = {"outcome": "wrong" if bad else "right", "worst": rounded(max(off.values())), "weights": len(names)}
    after_factor = max((value for answer in answers for value in answer["scaled"].values()), default=1.0)
    if bad and not lost and factor_of(case) != 1.0 and after_factor <= case.tolerance:
        row.update(outcome="scaled", factor=factor_of(case), worst_after_factor=rounded(after_factor))
    elif bad:
        row.update(off=len(wrong), lost=len(lost), off_by_kind=kinds(wrong, off), lost_by_kind=kinds(lost, {}))
    for key in relative:
        if any(answer[key] is not None for answer in answers):
            row[key] = rounded(relative[key])
    facts = [answer["facts"] for answer in answers]
    if any(facts):
        row["facts"] = {key: [fact.get(key) for fact in facts] for key in facts[0]}
    return row


def rounded(value):
    return float(f"{value:.2g}")


def kinds(names, off):
    """Weights of one name in several layers are one kind: how many there are, and the worst of them."""
    found = {}
    for name in names:
        kind = ".".join("N" if part.isdigit() else part for part in name.split("."))
        count, worst = found.get(kind, (0, 0.0))
        found[kind] = (count + 1, max(worst, off.get(name, 1.0)))
    return {kind: [count, rounded(worst)] for kind, (count, worst) in sorted(found.items())}


def main():
    module = importlib.import_module(f"started.{sys.argv[1]}")
    module.prepare()
    cases = {case.name: case for case in module.CASES}
    for name in sys.argv[2:]:
        case = cases[name]
        start = time.monotonic()
        row = {"case": name, "framework": module.FRAMEWORK, "library": module.package_version(), "axes": case.axes, "model": case.model}
        answers = answers_of(module, case, LIMIT_S)
        row.update(outcome_of(case, answers), sentence=case.sentence)
        print(json.dumps({"row": row, "seconds": round(time.monotonic() - start, 1)}), flush=True)
        import_for_next(answers)


if __name__ == "__main__":
    main()
