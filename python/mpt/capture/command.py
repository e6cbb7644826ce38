# SPDX-License-Identifier: Apache-2.0
"""The command python -m mpt.capture: a watched process runs the script; this one waits for its answer and writes it."""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import importlib.util
import json
import os
import runpy
import shlex
import signal
import sys
import tempfile
import traceback
from typing import Any, Dict, List, NoReturn, Optional, Sequence

from mpt.capture import failure, frameworks, launchers, shell
from mpt.capture.finder import Finder
from mpt.capture.guard import Guard
from mpt.capture.launchers import Job, Refused

FRAMEWORKS = "Megatron-LM, Megatron-Bridge, torchtitan, NeMo AutoModel or the Trainer of transformers"
EXPECTED = f"a script that calls {FRAMEWORKS}"
# The remedy for a script that no framework configures.
PLAIN = ("A plain loop of PyTorch says its layout in code: price it by mpt-plan estimate with its degrees, "
         "or let mpt.torch.parallelize run a plan (docs/python.md)")


class Watched:
    """The process that runs the script. It answers once, and ends."""

    def __init__(self, command: Sequence[str], found: shell.Found, folder: str, answer: int):
        self.command, self.found, self.folder, self.pipe = command, found, folder, answer
        self.job: Optional[Job] = None
        self.guard: Optional[Guard] = None
        self.trace = ""

    def answer(self, value: Dict[str, Any]) -> NoReturn:
        if self.guard is not None:
            value.update(diverted=self.guard.files.diverted, asked=self.guard.asked, unsent=self.guard.unsent, sealed=self.guard.sealed)
        if self.job is not None:
            value.update(script=f"{'-m ' if self.job.is_module else ''}{self.job.script}", ranks=self.job.ranks)
        text = memoryview(json.dumps({**value, "trace": self.trace}).encode())
        while text:
            text = text[os.write(self.pipe, text):]
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # skips the script's handlers and the libraries' threads

    def end(self, place: str, what: str) -> NoReturn:
        self.answer({"ended": {"at": place, "what": what}})

    def done(self, captured: frameworks.Captured) -> NoReturn:
        software = f"{captured.package} {importlib.metadata.version(captured.package)}"
        files = {name: frameworks.plain(content) for name, content in captured.files.items()}
        self.answer({"captured": {"framework": captured.framework, "software": software, "at": captured.at, "files": files}})

    def run(self) -> NoReturn:
        try:
            self._run()
            self.answer({"finished": True})
        except SystemExit as left:
            text = left.code if isinstance(left.code, str) else ""
            self.answer({"left": {"code": left.code if isinstance(left.code, int) else 1 if text else 0, "text": text}})
        except Refused as refused:
            self.answer({"refused": str(refused)})
        except BaseException as error:  # any failure is reported to the user
            self.trace = traceback.format_exc()
            self.answer({"failed": failure.describe(error)})

    def _run(self) -> None:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: the process ends with the command
        os.chdir(self.found.folder)
        os.environ.update(self.found.environment)
        guard = self.guard = Guard(self.folder, self.end)
        frameworks.INSIDE.done = self.done  # type: ignore[method-assign]
        guard.watch()
        Finder({**frameworks.HOOKS, **guard.hooks(lambda: self.job.ranks if self.job else 1)}).install()
        job = self.job = launchers.job_of(self.found.words)
        os.environ.update({**job.environment, "RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0", "NODE_RANK": "0", "WORLD_SIZE": str(job.ranks),
                           "LOCAL_WORLD_SIZE": str(job.ranks_per_node), "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"})
        sys.argv = [job.script, *job.arguments]
        if job.is_module:
            sys.path.insert(0, os.getcwd())
            if importlib.util.find_spec(job.script.split(".")[0]) is None:
                raise Refused(f"-m {job.script}: found no such module; expected one of this environment, or of {os.getcwd()}; correct its name")
            runpy.run_module(job.script, run_name="__main__", alter_sys=True)
        else:
            if not os.path.exists(job.script):
                raise Refused(f"{job.script}: found no such file in {os.getcwd()}; expected a script of Python; correct its path")
            sys.path.insert(0, os.path.dirname(os.path.abspath(job.script)))
            runpy.run_path(job.script, run_name="__main__")


def _answer(command: Sequence[str], found: shell.Found) -> Dict[str, Any]:
    """The watched process's answer. Without one: how the process ended."""
    with tempfile.TemporaryDirectory(prefix="mpt-capture-") as folder:
        sys.stdout.flush()
        sys.stderr.flush()
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reads)
            Watched(command, found, os.path.realpath(folder), writes).run()
        os.close(writes)
        try:
            with open(reads, "rb") as pipe:
                text = pipe.read()
            _, status = os.waitpid(child, 0)
        except BaseException:  # Ctrl-C
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
    if text:
        return json.loads(text)
    return {"died": (f"signal {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else f"exit code {os.WEXITSTATUS(status)}")}


def _listed(names: List[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _beside(answer: Dict[str, Any]) -> str:
    """Other events of the capture as text that begins with a blank."""
    said = ""
    if answer.get("diverted"):
        said += f" What it wrote went to a temporary folder, which is gone: {_listed(answer['diverted'])}."
    if answer.get("asked"):
        said += f" These programs were asked: {_listed(answer['asked'])}."
    if not answer.get("sealed", True):
        said += " This kernel has no Landlock, so files that compiled code writes were not watched."
    if answer.get("unsent"):
        said += f" Not sent: {_listed(answer['unsent'])}."
    return said


def _refusal(answer: Dict[str, Any], found: shell.Found) -> str:
    """Place, finding, expectation and remedy of a command that gave no configuration."""
    named = next((word for word in found.words if word.endswith(".py")), found.words[0])
    script, ranks = answer.get("script", named), answer.get("ranks", 1)
    ran = f" {script} ran in one process as rank 0 of {ranks}, and was ended there: nothing was trained or saved, and no file changed."
    if "refused" in answer:
        return f"{script}: {answer['refused']}"
    if "ended" in answer:
        at, what = answer["ended"]["at"], answer["ended"]["what"]
        return f"{at}: found that it {what}, before a framework had parsed its configuration; expected {EXPECTED}.{ran}{_beside(answer)} {PLAIN}."
    if "failed" in answer:
        place, finding, remedy = answer["failed"]
        return (f"{place}: found {finding}, before a framework had parsed its configuration; expected a script that starts in this environment; {remedy}. "
                f"The whole traceback: --traceback.{_beside(answer)}")
    if "left" in answer:
        text = f" with '{answer['left']['text']}'" if answer["left"]["text"] else f" with exit code {answer['left']['code']}"
        return (f"{script}: found that it ended itself{text}, before a framework had parsed its configuration; expected {EXPECTED}; "
                f"what it printed above says why.{_beside(answer)}")
    if "died" in answer:
        return (f"{script}: found that its process ended by {answer['died']}, before a framework had parsed its configuration; expected {EXPECTED}; "
                "run it without mpt.capture to see why")
    return f"{script}: found that it ended before a framework had parsed its configuration; expected {EXPECTED}.{_beside(answer)} {PLAIN}."


def _write(path: str, command: Sequence[str], answer: Dict[str, Any], found: shell.Found) -> None:
    captured = answer["captured"]
    executed = (f"{answer['script']} ran in one process as rank 0 of {answer['ranks']} until {captured['at']}; "
                f"nothing was trained, and no file changed.{_beside(answer)}" + (f" {found.said}." if found.said else ""))
    result = {"framework": captured["framework"], "ranks": answer["ranks"],
              "run": {"command": list(command), "executed": executed, "software": captured["software"]},
              "reads": next(iter(captured["files"])), "files": captured["files"]}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    print(f"mpt.capture: {executed}\nWrote {path}. Next: mpt-plan import --captured {shlex.quote(path)} --cluster NAME")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m mpt.capture", usage="python -m mpt.capture [-o FILE] [--seq N] [--traceback] -- COMMAND ...",
        description="Runs the command's script in one process as rank 0, with the environment that its launcher sets, until the framework has parsed "
                    "its configuration, and writes that for mpt-plan import --captured. The first backward, optimizer step, save, exchange of data or "
                    "new process ends it. Files stay as they are. Scripts of the shell are read, not run.")
    parser.add_argument("-o", "--output", default="captured.json", metavar="FILE", help="what to write (default: captured.json)")
    parser.add_argument("--seq", type=int, metavar="N", help="tokens of a sequence, which the Trainer of transformers does not know")
    parser.add_argument("--traceback", action="store_true", help="where the script stops with an error, print all of it")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what starts the training")
    return parser


def main(words: Optional[Sequence[str]] = None) -> int:
    parser = _parser()
    args = parser.parse_args(words)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        parser.error("no command; expected one after --, such as torchrun --nproc-per-node 8 pretrain_gpt.py ...")
    frameworks.INSIDE.sequence = args.seq
    try:
        found = shell.find(command, dict(os.environ), os.getcwd())
    except Refused as refused:
        print(f"mpt.capture: {refused}", file=sys.stderr)
        return 2
    answer = _answer(command, found)
    if "captured" in answer:
        _write(args.output, command, answer, found)
        return 0
    if args.traceback and answer.get("trace"):
        print(answer["trace"], file=sys.stderr)
    said = f" {found.said}." if found.said else ""
    print(f"mpt.capture: {_refusal(answer, found)}{said}", file=sys.stderr)
    return 2
