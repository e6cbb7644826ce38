# SPDX-License-Identifier: Apache-2.0
"""Converts models and clusters from users' forms into the planner's."""

from __future__ import annotations

import ctypes
import difflib
import functools
import json
import math
import os
from typing import Any, Dict, List, Union

from . import types
from ._door import ask, wrong


@functools.lru_cache(maxsize=None)
def names() -> Dict[str, Any]:
    return ask({"do": "names"}).value


def model_of(model: Any) -> Union[str, Dict[str, Any]]:
    """A name, a path, a hub id, a dict, a configuration of transformers, or a model that has one."""
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    if isinstance(model, dict):
        return model
    if hasattr(model, "to_json_string") and hasattr(model, "model_type"):
        return json.loads(model.to_json_string(use_diff=False))
    if getattr(model, "config", None) is not None:
        return model_of(model.config)
    raise wrong("model", f"an object of type {type(model).__name__}",
                "a name, a path, a dict, a configuration of transformers, or a model with a .config", "see docs/python.md")


def cluster_of(cluster: Any) -> Union[str, Dict[str, Any]]:
    if isinstance(cluster, (str, os.PathLike)):
        return os.fspath(cluster)
    if isinstance(cluster, dict):
        return dict(cluster)
    raise wrong("cluster", f"an object of type {type(cluster).__name__}", "a name, a path, a dict, or mpt.this_machine()", "see docs/python.md")


def _run_of(run: Any) -> Any:
    """A measured run. LAYOUT=FIGURES of the command line becomes an object; a short form has equals signs, and the last one begins the figures."""
    if not isinstance(run, str):
        return run
    layout, _, measured = map(str.strip, run.rpartition("="))
    if not layout or not measured:
        raise wrong("observed", repr(run)[:60], "a layout and its figures", 'for example "tp2 pp2 mbs1=28.1s,61GiB"')
    return {"layout": layout, "measured": measured}


def request_of(model: Any, cluster: Any, options: Dict[str, Any]) -> Dict[str, Any]:
    request: Dict[str, Any] = {} if model is None else {"model": model_of(model)}
    if cluster is not None:
        request["cluster"] = cluster_of(cluster)
    bounds: Dict[str, Any] = {}
    typed: Dict[str, str] = {}  # in the words of the command line
    for name, value in options.items():
        if value is None:
            continue
        value = os.fspath(value) if isinstance(value, os.PathLike) else value.tolist() if hasattr(value, "tolist") else value  # of NumPy
        if name not in types.OPTIONS and name != "layout":
            near = difflib.get_close_matches(name, types.OPTIONS, 1)
            raise wrong(name, "no option of that name", "an option of mpt-plan, with underscores: mpt.types.OPTIONS",
                        "for the days of a training: plan.days(tokens)" if name in ("tokens", "goodput") else f"did you mean {near[0]}?" if near else "")
        if isinstance(value, float) and not math.isfinite(value):
            raise wrong(name, str(value), "a finite number")
        if name == "observed":
            value = [_run_of(one) for one in (value if isinstance(value, (list, tuple)) else [value])]
        if name in types.LISTS and not isinstance(value, str):
            value = list(value) if isinstance(value, (list, tuple, set, range)) else [value]
        if name in types.SWITCHES:
            value = value if isinstance(value, str) else [{True: "on", False: "off"}.get(one, one) if isinstance(one, bool) else one for one in value]
        (typed if isinstance(value, str) else bounds if name in types.BOUNDS else request)[name] = value
    return {**request, **({"bounds": bounds} if bounds else {}), **({"typed": typed} if typed else {})}


def _torch_names() -> List[str]:
    try:
        import torch
    except ImportError:
        return []
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []


class _Nvml:
    """Queries to NVIDIA's library, which every driver installs."""

    def __init__(self) -> None:
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self._check(self.nvml.nvmlInit_v2())

    @staticmethod
    def _check(code: int) -> None:
        if code != 0:
            raise OSError(f"NVML answers {code}")

    def _handles(self) -> List[ctypes.c_void_p]:
        count = ctypes.c_uint()
        self._check(self.nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)))
        handles = [ctypes.c_void_p() for _ in range(count.value)]
        for index, handle in enumerate(handles):
            self._check(self.nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)))
        return handles

    def names(self) -> List[str]:
        found = []
        for handle in self._handles():
            text = ctypes.create_string_buffer(96)
            self._check(self.nvml.nvmlDeviceGetName(handle, text, ctypes.c_uint(96)))
            found.append(text.value.decode(errors="replace"))
        return found

    def links(self) -> int:
        """The least number of active NVLinks of a GPU."""
        def of(handle: ctypes.c_void_p) -> int:
            up = 0
            for link in range(18):
                active = ctypes.c_uint()
                if self.nvml.nvmlDeviceGetNvLinkState(handle, ctypes.c_uint(link), ctypes.byref(active)) == 0:
                    up += active.value
            return up
        return min((of(handle) for handle in self._handles()), default=0)


def this_machine() -> Dict[str, Any]:
    """The GPUs of this machine as a cluster file's content. The base is the catalog's node with that GPU."""
    try:
        nvml = _Nvml()
        found = nvml.names()
    except (OSError, AttributeError):  # no driver, or one without these functions
        nvml, found = None, []
    gpus = _torch_names() or found
    if not gpus:
        raise wrong("this machine", "no GPU that torch or NVML names", "at least one",
                    'name the cluster, such as "dgx-h100:1"; for CPU ranks "this-machine:4" and framework="mpt"')
    question = {"do": "machine", "gpus": gpus}
    if nvml is not None and len(gpus) > 1 and len(found) == len(gpus):
        question["nvlinks"] = nvml.links()
    return ask(question).value
