# SPDX-License-Identifier: Apache-2.0
"""The one function of libmpt: a question in, an answer out. ctypes releases the GIL while it works."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import re
import sys
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional

_PROGRESS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
_STOP = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class Problem(NamedTuple):
    """One mistake of an input."""

    place: str
    finding: str
    expectation: str
    remedy: str


class Error(Exception):
    """The planner has no answer."""

    problems: List[Problem] = []


class InputError(Error, ValueError):
    """An input is wrong, or nothing fits. `place`, `finding`, `expectation` and `remedy` come from the first of `problems`."""

    def __init__(self, text: str, problems: List[Problem]):
        super().__init__(text)
        self.problems = problems
        self.place, self.finding, self.expectation, self.remedy = problems[0]

    def __reduce__(self) -> Any:  # an exception is pickled with its text alone, and a pool of processes waits for ever
        return InputError, (str(self), self.problems)


class Defect(Error, RuntimeError):
    """A defect of MPT. Please report it."""


def wrong(place: str, finding: str, expectation: str, remedy: str = "") -> InputError:
    text = f"{place}: found {finding}; expected {expectation}" + (f"; {remedy}" if remedy else "")
    return InputError(text, [Problem(place, finding, expectation, remedy)])


class Progress(NamedTuple):
    """The progress of a search. `best_s`: step time of the best layout so far; None before the first one that fits."""

    what: str
    layouts: int
    seconds: float
    best_s: Optional[float]
    bound_s: Optional[float]


def _library() -> ctypes.CDLL:
    name = "libmpt.dylib" if sys.platform == "darwin" else "libmpt.so"
    library = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), name))
    library.mpt_answer.restype = ctypes.c_void_p
    library.mpt_answer.argtypes = [ctypes.c_char_p, _PROGRESS, _STOP, ctypes.c_void_p]
    library.mpt_free.argtypes = [ctypes.c_void_p]
    library.mpt_free.restype = None
    return library


_loaded: Optional[ctypes.CDLL] = None


class _Asking:
    def __init__(self, question: str, on_progress: Optional[Callable[[Progress], Any]]):
        self.question, self.on_progress = question.encode(), on_progress
        self.stop = False
        self.failed: Optional[BaseException] = None
        self.text = ""
        self.done = threading.Event()  # an interrupted Thread.join() would count the thread as ended (Python 3.11)

    def _progress(self, _context: Any, told: bytes) -> None:
        try:
            if self.on_progress is not None and self.on_progress(Progress(**json.loads(told))) is False:
                self.stop = True
        except BaseException as failed:  # raised again for the caller; it cannot pass through C++
            self.failed, self.stop = failed, True

    def run(self) -> None:
        global _loaded
        try:
            if _loaded is None:
                _loaded = _library()
            progress = _PROGRESS(self._progress) if self.on_progress is not None else _PROGRESS()
            answer = _loaded.mpt_answer(self.question, progress, _STOP(lambda _context: int(self.stop)), None)
            if not answer:
                raise MemoryError("mpt: no memory for the answer")
            self.text = ctypes.string_at(answer).decode()
            _loaded.mpt_free(answer)
        except BaseException as failed:
            self.failed = self.failed or failed
        finally:
            self.done.set()


def _error(error: Dict[str, Any]) -> Error:
    if error["kind"] == "defect":
        return Defect(error["text"])
    problems = [Problem(**{**problem, "place": _keyword(problem["place"])}) for problem in error["problems"]]
    text = re.sub(r"^( *)(--[a-z-]+)(?=: )", lambda found: found[1] + _keyword(found[2]), error["text"], flags=re.M)
    return InputError(text.replace("see --help", "see help(mpt)"), problems or [Problem("", text, "", "")])


def _keyword(place: str) -> str:
    """An option of mpt-plan as the keyword of this module."""
    return place[2:].replace("-", "_") if place.startswith("--") else place


_root: Optional[str] = None


def read_below(folder: "str | os.PathLike[str]") -> None:
    """From now on this process reads plans, logs, models and clusters only below the folder; links are resolved, and hidden files left out.
    For paths that somebody else chooses. It cannot be taken back."""
    global _root
    ask({"do": "read_below", "folder": os.path.realpath(folder)})
    _root = os.path.realpath(folder)


def opened(path: Any) -> Any:
    """The file, to be read as text."""
    if _root is not None:
        within = os.path.relpath(os.path.realpath(path), _root)
        if _root == os.sep or any(part.startswith(".") for part in within.split(os.sep)):
            raise wrong(os.fspath(path), "outside of the recipes, not read", f"a file below {_root}, not hidden", "copy it there")
    return open(os.fspath(path), encoding="utf-8", errors="replace")  # a number would be an open file of somebody else


class Answer(NamedTuple):
    value: Any
    stopped: bool  # a search was stopped and returned the best so far


def _plain(value: Any) -> Any:
    """Numbers of NumPy or PyTorch as those of Python, and the fields that an object of mpt.types has."""
    if dataclasses.is_dataclass(value):
        return {name: field for name, field in vars(value).items() if field is not None}
    read = getattr(value, "tolist", None) or getattr(value, "item", None)
    if read is None:
        raise wrong("request", f"an object of type {type(value).__name__}", "numbers, texts and lists of them")
    return read()


def ask(question: Dict[str, Any], on_progress: Optional[Callable[[Progress], Any]] = None) -> Answer:
    """Answers in a separate thread, so that the first Ctrl-C ends a search with the best so far."""
    asking = _Asking(json.dumps(question, default=_plain), on_progress)
    interrupted = False
    if threading.current_thread() is threading.main_thread():
        threading.Thread(target=asking.run, name="mpt", daemon=True).start()
        while not asking.done.is_set():
            try:
                asking.done.wait(0.1)
            except KeyboardInterrupt:
                if interrupted:
                    raise
                interrupted = asking.stop = True
    else:
        asking.run()
    if asking.failed is not None:
        raise asking.failed
    answer = json.loads(asking.text)
    if interrupted and ("error" in answer or not answer["stopped"]):
        raise KeyboardInterrupt
    if "error" in answer:
        raise _error(answer["error"])
    return Answer(answer["answer"], answer["stopped"])
