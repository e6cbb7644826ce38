# SPDX-License-Identifier: Apache-2.0
"""Finds the command of a shell script that starts the training. Scripts are read, never run."""

from __future__ import annotations

import os
import re
from typing import Dict, List, NamedTuple, NoReturn, Optional, Sequence, Tuple

from mpt.capture.launchers import Refused
from mpt.capture.shell_words import Script, Statement

SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
_MODULES = ("torch.distributed.run", "torch.distributed.launch", "deepspeed.launcher.runner", "accelerate.commands.launch")
_STARTERS = ("srun", "mpirun", "mpiexec")  # start what follows their options
_BEFORE = ("exec", "nohup", "time", "command", "env", "stdbuf", "numactl", *_STARTERS)
_QUIET = ("set", "echo", "printf", "cd", "pushd", "popd", "shift", "exit", "return", "true", "false", ":", "[", "[[", "test", "trap", "ulimit", "unset", "wait",
          "sleep", "source", ".", "tee", "module", "conda", "read", "break", "continue", "local", "let", "eval")
_DEEPEST = 4
EXPECTED = ("expected one of torchrun, accelerate launch, deepspeed, python SCRIPT.py or python -m MODULE, or a shell script with one such command")


class Found(NamedTuple):
    """A command to capture, with its environment and folder."""

    words: List[str]
    environment: Dict[str, str]  # only differences
    folder: str
    said: str  # what was read and left out; empty for a command given directly


def _named(words: Sequence[str]) -> str:
    return os.path.basename(words[0]) if words else ""


def short(words: Sequence[str]) -> str:
    text = " ".join(words)
    return text if len(text) <= 60 else text[:57] + "..."


def is_script(words: Sequence[str]) -> bool:
    name = _named(words)
    if name in SHELLS:
        return True
    try:
        with open(words[0], "rb") as file:
            first = file.readline(200)
    except OSError:
        return name.endswith(".sh")
    return name.endswith(".sh") or bool(re.match(rb"#!.*\b(ba|da|z|k)?sh\b", first))


def _is_launcher(words: Sequence[str]) -> bool:
    name = _named(words)
    return name == "accelerate" and words[1:2] == ["launch"] or name in ("torchrun", "deepspeed") or name.startswith("python") and "-m" in words and \
        words[min(words.index("-m") + 1, len(words) - 1)] in _MODULES


def _is_training(words: Sequence[str]) -> bool:
    """Whether a script may start the training with these words."""
    name = _named(words)
    return _is_launcher(words) or is_script(words) or name.endswith(".py") or \
        name.startswith("python") and any(word == "-m" or word.endswith(".py") for word in words[1:])


def without_starters(words: Sequence[str], environment: Dict[str, str]) -> Tuple[List[str], str]:
    """The command that follows exec, env, srun and similar words, and the one of these that starts several processes."""
    left, starter = list(words), ""
    while left and _named(left) in _BEFORE:
        name = _named(left)
        starter = name if name in _STARTERS else starter
        left.pop(0)
        while left and not _is_training(left) and _named(left) not in _BEFORE:
            key, equals, value = left.pop(0).partition("=")
            if name == "env" and equals and not key.startswith("-"):
                environment[key] = value
    return left, starter


def _read(words: Sequence[str], environment: Dict[str, str], folder: str) -> Script:
    """`words`: bash run.sh ARGUMENTS, bash -c TEXT, or ./run.sh ARGUMENTS."""
    rest = list(words[1:]) if _named(words) in SHELLS else list(words)
    while rest and _named(words) in SHELLS and rest[0].startswith("-"):
        option = rest.pop(0)
        if not option.startswith("--") and option.endswith("c"):
            if not rest:
                break
            return Script(rest[0], rest[1] if len(rest) > 1 else f"{_named(words)} -c", rest[2:], environment, folder)
        if option in ("-o", "+o", "--rcfile", "--init-file") and rest:
            rest.pop(0)
    if not rest:
        raise Refused(f"{short(words)}: found no script to read; {EXPECTED}")
    try:
        with open(os.path.join(folder, rest[0]), encoding="utf-8", errors="replace") as file:
            return Script(file.read(), rest[0], rest[1:], environment, folder)
    except OSError as error:
        raise Refused(f"{rest[0]}: found that it cannot be read ({error.strerror}); expected a shell script; name one that is there") from error


def _remedy(script: Script) -> str:
    return (f"{script.name} was read and not run. Give the command itself: python -m mpt.capture -- torchrun ... SCRIPT.py ..., "
            "with the values that the script would give it")


def _candidates(script: Script) -> List[Tuple[Statement, List[str], str]]:
    """Launchers if there are some; else plain Python and scripts that the script starts."""
    commands = [(statement, *without_starters(statement.words, statement.environment)) for statement in script.statements]
    found = [one for one in commands if one[1] and _is_training(one[1])]
    return [one for one in found if _is_launcher(one[1])] or found


def _refuse(script: Script, line: int, what: str) -> NoReturn:
    raise Refused(f"{script.name} line {line}: {what}. {_remedy(script)}")


def _chosen(script: Script) -> Tuple[Statement, List[str]]:
    found = _candidates(script)
    if not found:
        raise Refused(f"{script.name}: found no command that starts a training in its {len(script.text.splitlines())} lines; {EXPECTED}. {_remedy(script)}")
    if len(found) > 1:
        lines = ", ".join(f"{one.line} ({' '.join(words[:1])})" for one, words, _ in found[:6])
        raise Refused(f"{script.name}: found {len(found)} commands that may start the training, in lines {lines}; expected one. {_remedy(script)}")
    statement, words, starter = found[0]
    if statement.inside:
        _refuse(script, statement.line, f"found {words[0]} inside of {statement.inside}; expected a command that always runs")
    if starter and not _is_launcher(words) and not is_script(words):
        _refuse(script, statement.line, f"found that {starter} starts {words[0]}, and how many times only a run knows; expected torchrun, which says it")
    return statement, words


def _left_out(script: Script, chosen: Statement) -> str:
    others = [f"{one.line} ({os.path.basename(one.words[0])})" for one in script.statements if one is not chosen and _named(one.words) not in _QUIET]
    if not others:
        return ""
    more = f" and {len(others) - 6} more" if len(others) > 6 else ""
    return f"; its lines {', '.join(others[:6])}{more} were left out"


def find(words: Sequence[str], environment: Dict[str, str], folder: str, depth: int = 0) -> Found:
    """The command to capture: the given one, or the one of the script that it names."""
    changed: Dict[str, str] = {}
    plain, starter = without_starters(words, changed)
    if not plain or not _is_training(plain):
        raise Refused(f"{short(words)}: found no command that mpt.capture can read; {EXPECTED}")
    if not is_script(plain):
        if starter and not _is_launcher(plain):
            raise Refused(f"{short(words)}: found that {starter} starts {plain[0]}, and how many times only a run knows; "
                          "expected torchrun --nproc-per-node N --nnodes N, which says it; give that command")
        return Found(plain, changed, folder, "")
    if depth == _DEEPEST:
        raise Refused(f"{short(plain)}: found scripts that start scripts {_DEEPEST} deep; give the command itself")
    try:
        script = _read(plain, {**environment, **changed}, folder)
    except RecursionError:
        raise Refused(f"{short(plain)}: found values nested too deep; give the command itself") from None
    return _of_script(script, environment, depth)


def _of_script(script: Script, environment: Dict[str, str], depth: int) -> Found:
    statement, chosen = _chosen(script)
    chosen = script.without_unset(chosen)
    for number, word in enumerate(chosen):
        why: Optional[str] = script.why(word)
        if why is not None:
            before = f" behind {chosen[number - 1]}" if number else ""
            _refuse(script, statement.line, f"found a word{before} that only a run knows: {why}")
    if script.why(statement.folder) is not None:
        _refuse(script, statement.line, f"found a folder that only a run knows: {script.why(statement.folder)}")
    known = {name: value for name, value in statement.environment.items() if script.why(value) is None}
    inner = find(chosen, known, statement.folder, depth + 1)
    said = f"{script.name} was read, not run: line {statement.line} is the command{_left_out(script, statement)}"
    changed = {name: value for name, value in {**known, **inner.environment}.items() if environment.get(name) != value}
    return Found(inner.words, changed, inner.folder, f"{said}. {inner.said}" if inner.said else said)
