# SPDX-License-Identifier: Apache-2.0
"""Explains why a script stopped by itself: finding, place and remedy."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import traceback
from typing import Dict, List, Optional, Tuple

from mpt.capture.guard import is_library, place

_GPU = re.compile(r"no nvidia driver|cuda.{0,40}(not available|not compiled|no device|unavailable)|no (cuda|gpu)|0 active drivers|libcuda\.so|nvml|rocm", re.I)


def _of_script(frames: List[traceback.FrameSummary]) -> Optional[traceback.FrameSummary]:
    """The last line of the user's own files."""
    return next((frame for frame in reversed(frames) if not is_library(frame.filename) and "/mpt/capture/" not in frame.filename), None)


def _packages(frames: List[traceback.FrameSummary]) -> Dict[str, str]:
    """The versions of the packages on the stack, by their names on the index, the outermost first."""
    owners, found = importlib.metadata.packages_distributions() if hasattr(importlib.metadata, "packages_distributions") else {}, {}
    for frame in frames:
        inside = re.search(r"/(?:site|dist)-packages/([^/.]+)", frame.filename)
        for name in owners.get(inside[1], []) if inside and inside[1] != "mpt" else []:  # mpt.capture itself runs the script
            if name not in found:
                found[name] = importlib.metadata.version(name)
    return found


def _unmet(names: List[str]) -> Tuple[List[str], List[str]]:
    """Unmet requirements of these packages in this environment: those on the interpreter and on each other, and those on further
    packages."""
    try:
        from packaging.requirements import Requirement
        from packaging.specifiers import SpecifierSet
    except ImportError:
        return [], []
    decisive, beside = [], []
    for name in names:
        held = importlib.metadata.metadata(name)
        wanted = held.get("Requires-Python")
        if wanted and not SpecifierSet(wanted).contains(platform.python_version(), prereleases=True):
            decisive.append(f"{name} {held['Version']} needs Python {wanted}, and this is {platform.python_version()}")
        for asked in map(Requirement, held.get_all("Requires-Dist") or []):
            try:
                there = importlib.metadata.version(asked.name)
            except importlib.metadata.PackageNotFoundError:
                continue
            if (asked.marker is None or asked.marker.evaluate({"extra": ""})) and not asked.specifier.contains(there, prereleases=True):
                said = f"{name} {held['Version']} needs {asked.name}{asked.specifier}, and this is {there}"
                (decisive if asked.name in names else beside).append(said)
    return decisive, beside


def _remedy(error: BaseException, packages: Dict[str, str]) -> str:
    unmet, beside = _unmet(list(packages))
    if unmet:
        return f"{'; '.join(unmet[:3])}: use an environment with the versions that {'it needs' if len(unmet) == 1 else 'they need'}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return (f"the module {error.name} is not in this environment (Python {platform.python_version()}); install its package, "
                "or run the Python that the training runs with")
    if _GPU.search(str(error)):
        return "this library asks for a GPU before its configuration is parsed; run mpt.capture on a machine that has one"
    if isinstance(error, (PermissionError, ConnectionError)):
        return "mpt.capture changes no file, starts no program and sends nothing; leave this call out for the capture"
    if isinstance(error, FileNotFoundError):
        return "run mpt.capture in the folder where the training starts, and with its files"
    if packages:
        last = list(packages)[-1]
        versions = ", ".join(f"{name} {version}" for name, version in list(packages.items())[:4])
        return (f"these versions may not go together: {'; '.join([versions, *beside[:3]])}. "
                f"Try python SCRIPT.py without mpt.capture on one rank: if {last} stops it as well, use the versions that the framework is made for")
    return "mend the script, so that it starts by itself, and try again"


def _shortened(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text if len(text) <= 300 else text[:297] + '...'}"


def describe(error: BaseException) -> Tuple[str, str, str]:
    """Place, finding, remedy."""
    frames = list(traceback.extract_tb(error.__traceback__))
    own, last = _of_script(frames), frames[-1] if frames else None
    if isinstance(error, SyntaxError) and error.filename:
        return place(error.filename, error.lineno or 0), _shortened(error), "mend the script, and try again"
    where = place(own.filename, own.lineno or 0) if own else place(last.filename, last.lineno or 0) if last else "the script"
    finding = _shortened(error)
    if last is not None and (own is None or last.filename != own.filename):
        finding += f" (raised in {place(last.filename, last.lineno or 0)})"
    return where, finding, _remedy(error, _packages(frames))
