# SPDX-License-Identifier: Apache-2.0
"""Keeps files unchanged: the script's writes go to a temporary folder, and are read back from there.

A file's copy has its whole path below that folder. Python's own functions are diverted; the guard refuses other accesses. Existing files
are never removed, renamed or changed. An attempt ends the capture with an explanation.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import pathlib
import shutil
from typing import Any, Callable, Dict, List, NoReturn, Optional

_COPIED_BYTES = 64 << 20  # a larger file that a script opens to change it is not copied

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _missing(path: Any) -> NoReturn:
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _there_already(path: Any) -> NoReturn:
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


class Files:
    """`refuse` takes the description of a forbidden change, and ends the capture."""

    def __init__(self, root: str, free: List[str], refuse: Callable[[str], NoReturn]):
        self.root = root
        self.free = [os.path.abspath(folder) for folder in free]  # writes below these are allowed
        self.refuse = refuse
        self.diverted: List[str] = []  # by the script's names
        self.os: Dict[str, Callable[..., Any]] = {}  # Python's own functions

    def is_free(self, path: Any) -> bool:
        if isinstance(path, int):
            return True  # a descriptor was checked when it was opened
        whole = os.path.abspath(os.fsdecode(path))
        return any(whole == folder or whole.startswith(folder.rstrip("/") + "/") for folder in self.free)

    def _copy(self, path: Any) -> str:
        return self.root + os.path.abspath(os.fsdecode(path))

    def _is_there(self, path: Any) -> bool:
        try:
            self.os["lstat"](path)
            return True
        except OSError:
            return False

    def now_at(self, path: Any) -> Any:
        """The path to read for a path of the script."""
        if not self.diverted or path is None or isinstance(path, int) or self.is_free(path):
            return path
        return self._copy(path) if self._is_there(self._copy(path)) else path

    def _new(self, path: Any) -> str:
        """A path in the temporary folder. Its parent must exist for the script; otherwise this fails like the original call."""
        parent = os.path.dirname(os.path.abspath(os.fsdecode(path)))
        if not self._is_there(parent) and not self._is_there(self._copy(parent)):
            _missing(path)
        folder = self._copy(parent)
        while not self._is_there(folder):  # os.makedirs is diverted, too
            above = folder
            while not self._is_there(os.path.dirname(above)):
                above = os.path.dirname(above)
            self.os["mkdir"](above)
        self.note(path)
        return self._copy(path)

    def note(self, path: Any) -> None:
        name = os.path.relpath(os.fsdecode(path))
        name = os.path.abspath(name) if name.startswith("..") else name
        if name not in self.diverted:
            self.diverted.append(name)

    def to_write(self, path: Any, new: bool, changes: bool) -> Any:
        """The path to open for writing. `new`: the file must not exist; `changes`: the old content stays."""
        if self.is_free(path):
            return path
        if self._is_there(self._copy(path)):
            return self._copy(path)
        is_there = self._is_there(path)
        if is_there and new:
            _there_already(path)
        if is_there and changes and self.os["stat"](path).st_size > _COPIED_BYTES:
            self.refuse(f"would change {os.fsdecode(path)}")
        place = self._new(path)
        if is_there and changes:
            with self.os["open"](path, "rb") as source, self.os["open"](place, "wb") as target:
                shutil.copyfileobj(source, target)
        return place

    # The diverted versions of Python's functions.

    def open(self, file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        writes = not isinstance(file, int) and set(mode) & set("wax+")
        if writes and "r" in mode and not self._is_there(self.now_at(file)):
            _missing(file)
        return self.os["open"](self.to_write(file, "x" in mode, "w" not in mode) if writes else self.now_at(file), mode, *arguments, **named)

    def open_descriptor(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: Optional[int] = None) -> int:
        if dir_fd is not None:
            return self.os["os.open"](path, flags, mode, dir_fd=dir_fd)
        if not flags & WRITES:
            return self.os["os.open"](self.now_at(path), flags, mode)
        if not flags & os.O_CREAT and not self._is_there(self.now_at(path)):
            _missing(path)
        return self.os["os.open"](self.to_write(path, bool(flags & os.O_CREAT and flags & os.O_EXCL), not flags & os.O_TRUNC), flags, mode)

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: Optional[int] = None) -> None:
        if dir_fd is not None or self.is_free(path):
            return self.os["mkdir"](path, mode, dir_fd=dir_fd)
        if self._is_there(path) or self._is_there(self._copy(path)):
            _there_already(path)
        self.os["mkdir"](self._new(path), mode)

    def _own(self, path: Any, what: str) -> str:
        """The path of a file that may be removed: one that the script made. A file from before ends the capture."""
        if self.is_free(path):
            return path
        if self._is_there(self._copy(path)):
            return self._copy(path)
        if self._is_there(path):
            self.refuse(f"would {what} {os.fsdecode(path)}")
        _missing(path)

    def remove(self, path: Any, *, dir_fd: Optional[int] = None) -> None:
        self.os["remove"](path if dir_fd is not None else self._own(path, "remove"), dir_fd=dir_fd)

    def rmdir(self, path: Any, *, dir_fd: Optional[int] = None) -> None:
        self.os["rmdir"](path if dir_fd is not None else self._own(path, "remove"), dir_fd=dir_fd)

    def replace(self, source: Any, target: Any, **named: Any) -> None:
        if named:
            return self.os["replace"](source, target, **named)
        self.os["replace"](self._own(source, "rename"), target if self.is_free(target) else self._new(target))

    def symlink(self, source: Any, target: Any, *arguments: Any, **named: Any) -> None:
        if named.get("dir_fd") is not None or self.is_free(target):
            return self.os["symlink"](source, target, *arguments, **named)
        if self._is_there(self.now_at(target)):
            _there_already(target)
        self.os["symlink"](self.now_at(os.path.join(os.path.dirname(os.path.abspath(os.fsdecode(target))), os.fsdecode(source))), self._new(target))

    def _reads(self, name: str) -> Callable[..., Any]:
        def read(path: Any = ".", *arguments: Any, **named: Any) -> Any:
            return self.os[name](path if named.get("dir_fd") is not None else self.now_at(path), *arguments, **named)
        return read

    def _labels(self, name: str) -> Callable[..., Any]:
        """Changes times and rights of the script's files only. Other files keep theirs, and are listed with the diverted ones."""
        def label(path: Any, *arguments: Any, **named: Any) -> Any:
            if named.get("dir_fd") is not None or self.is_free(path) or self.now_at(path) != path:
                return self.os[name](path if named.get("dir_fd") is not None else self.now_at(path), *arguments, **named)
            return self.note(path) if self._is_there(path) else _missing(path)
        return label

    def divert(self) -> None:
        """Replaces Python's functions by these."""
        ours: Dict[str, Callable[..., Any]] = {"mkdir": self.mkdir, "remove": self.remove, "unlink": self.remove, "rmdir": self.rmdir,
                                               "rename": self.replace, "replace": self.replace, "symlink": self.symlink}
        ours.update({name: self._reads(name) for name in ("stat", "lstat", "access", "listdir", "scandir", "readlink")})
        ours.update({name: self._labels(name) for name in ("chmod", "chown", "utime")})
        self.os = {name: getattr(os, name) for name in ours}
        self.os.update({"open": builtins.open, "os.open": os.open})
        for name, function in ours.items():
            setattr(os, name, function)
        os.open = self.open_descriptor  # type: ignore[assignment]
        builtins.open = io.open = self.open  # type: ignore[assignment]
        accessor = getattr(pathlib, "_NormalAccessor", None)  # before Python 3.11 paths held the functions themselves
        if accessor is not None:
            ours["open"] = self.open_descriptor if accessor.open is self.os["os.open"] else self.open
            for name in filter(accessor.__dict__.__contains__, ours):
                setattr(accessor, name, staticmethod(ours[name]))
