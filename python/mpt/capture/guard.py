# SPDX-License-Identifier: Apache-2.0
"""Forbids a captured script to train, save, exchange data, change files, start processes and send.

The first such call ends the capture at that line. The process also ends there, so that no handler of the script runs. Python's audit events
report files and processes for any caller, functions of torch are replaced, and Landlock covers compiled code. Reading files and reading
from the hub stay allowed.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import sysconfig
import tempfile
import traceback
from typing import Any, Callable, Dict, List, NoReturn, Sequence

from mpt.capture import landlock
from mpt.capture.files import WRITES, Files

# Programs that only report, which libraries run when they are imported.
ASKED = {"uname", "ldconfig", "lscpu", "nvidia-smi", "nvcc", "rocm-smi", "amd-smi", "rocminfo", "hipconfig", "which", "getconf", "hostname"}
COMPILERS = {"gcc", "cc", "ld", "objdump"}  # ctypes.util.find_library runs them to find a library
GIT = {"rev-parse", "describe", "status", "log", "show", "diff", "ls-files"}

# Trackers write nothing and send nothing; caches that libraries fill at import are in the temporary folder.
OFFLINE = {"WANDB_MODE": "disabled", "COMET_MODE": "disabled", "COMET_START_MODE": "offline", "CLEARML_OFFLINE_MODE": "1", "NEPTUNE_MODE": "debug",
           "SWANLAB_MODE": "disabled", "AIM_TRACKING_ENABLED": "0", "DVCLIVE_TEST": "true", "DO_NOT_TRACK": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
CACHES = {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TORCH_EXTENSIONS_DIR": "extensions", "CUDA_CACHE_PATH": "cuda",
          "MPLCONFIGDIR": "matplotlib", "NUMBA_CACHE_DIR": "numba", "WANDB_DIR": "wandb", "MLFLOW_TRACKING_URI": "mlflow", "TMPDIR": "."}

COLLECTIVES = ("all_reduce", "all_reduce_coalesced", "all_gather", "all_gather_into_tensor", "all_gather_coalesced", "all_gather_object", "all_to_all",
               "all_to_all_single", "broadcast", "broadcast_object_list", "gather", "gather_object", "reduce", "reduce_scatter", "reduce_scatter_tensor",
               "scatter", "scatter_object_list", "send", "recv", "isend", "irecv", "send_object_list", "recv_object_list", "batch_isend_irecv")
UPLOADS = ("create_repo", "create_commit", "upload_file", "upload_folder", "upload_large_folder", "delete_file", "delete_folder", "delete_repo")

_LIBRARIES = tuple({os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")} |
                   {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def _is_package(file: str) -> bool:
    return not file.startswith(_OURS) and ("/site-packages/" in file or "/dist-packages/" in file)


def is_library(file: str) -> bool:
    return file.startswith(("<", _OURS, *_LIBRARIES)) or _is_package(file)


def place(file: str, line: int) -> str:
    shown = os.path.relpath(file)
    return f"{file if shown.startswith('..') else shown} line {line}"


def caller() -> str:
    """The line of the user's code that led here. If all code on the stack is a library's: the nearest one of a package."""
    of_package = ""
    for frame, line in traceback.walk_stack(sys._getframe(1)):
        file = frame.f_code.co_filename
        if not is_library(file):
            return place(file, line)
        if not of_package and _is_package(file):
            of_package = place(file, line)
    return of_package or "a library"


def _by_package() -> bool:
    """Whether a package asks, not the script."""
    files = (frame.f_code.co_filename for frame, _ in traceback.walk_stack(sys._getframe(1)))
    return next((_is_package(file) for file in files if _is_package(file) or not is_library(file)), True)


class Guard:
    """`end(place, what)` reports and does not return."""

    def __init__(self, folder: str, end: Callable[[str, str], NoReturn]):
        self.folder, self._end = folder, end
        self.asked: List[str] = []  # programs that answered
        self.unsent: List[str] = []
        self.hub = os.environ.get("HF_HOME", os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "huggingface"))
        self.free = [folder, "/dev", "/proc", self.hub, *filter(None, map(os.environ.get, ("HF_HUB_CACHE", "HF_DATASETS_CACHE")))]
        self.sealed = False  # by Landlock
        self.files = Files(os.path.join(folder, "files"), self.free, self.end)

    def end(self, what: str) -> NoReturn:
        self._end(caller(), what)

    def ends(self, what: str, when: Callable[..., bool] = lambda *_, **__: True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Makes a function end the capture if `when` returns true for its arguments."""
        def around(function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            def ended(*arguments: Any, **named: Any) -> Any:
                return self.end(what) if when(*arguments, **named) else function(*arguments, **named)
            return ended
        return around

    def replace(self, holder: Any, names: Sequence[str], what: str, when: Callable[..., bool] = lambda *_, **__: True) -> None:
        for name in names:
            if hasattr(holder, name):
                setattr(holder, name, self.ends(what.format(name), when)(getattr(holder, name)))

    # Files and processes, by Python's audit events.

    def _whole(self, path: Any, folder: Any = -1) -> str:
        text = os.fsdecode(path)
        if isinstance(folder, int) and folder >= 0 and not os.path.isabs(text):
            text = os.path.join(self.files.os["readlink"](f"/proc/self/fd/{folder}"), text)
        return os.path.abspath(text)

    def _changes(self, what: str, in_folder: bool) -> Callable[..., None]:
        """`in_folder`: the event's last argument is the descriptor of a folder, or -1."""
        def check(path: Any, *rest: Any) -> None:
            if isinstance(path, int):
                return
            whole = self._whole(path, rest[-1] if in_folder else -1)
            if not self.files.is_free(whole):
                self.end(f"would {what} {os.fsdecode(path)}")
        return check

    def _opens(self, path: Any, mode: Any, flags: Any) -> None:
        if isinstance(flags, int) and flags & WRITES and not isinstance(path, int) and not self.files.is_free(path):
            self.end(f"would write {os.fsdecode(path)}")

    def _renames(self, source: Any, target: Any, source_folder: int = -1, target_folder: int = -1) -> None:
        if not (self.files.is_free(self._whole(source, source_folder)) and self.files.is_free(self._whole(target, target_folder))):
            self.end(f"would rename {os.fsdecode(source)} to {os.fsdecode(target)}")

    def _removes_tree(self, path: Any, folder: Any = None) -> None:
        here = self.files.now_at(path)
        if not isinstance(path, int) and not self.files.is_free(here) and self.files._is_there(here):
            self.end(f"would remove {os.fsdecode(path)} with all that it holds")

    def _connects(self, database: Any) -> None:
        name = os.fsdecode(database) if not isinstance(database, int) else ""
        if name and name != ":memory:" and "mode=ro" not in name and not self.files.is_free(name):
            self.end(f"would open the database {name}")

    def _signals(self, process: int, signal: int) -> None:
        if process != os.getpid() and signal != 0:
            self.end(f"would send signal {signal} to process {process}")

    def _starts(self, executable: Any, words: Any, *_: Any) -> None:
        line = [os.fsdecode(word) for word in words] if isinstance(words, (list, tuple)) else [os.fsdecode(words)]
        name = os.path.basename(line[0])
        if name in ASKED or name in COMPILERS and _by_package() or name == "git" and next((word for word in line[1:] if word[:1] != "-"), "") in GIT:
            if name not in self.asked:
                self.asked.append(name)
            return
        text = " ".join(line)
        text = text if len(text) <= 80 else text[:77] + "..."
        if _by_package():  # many try one that may be missing
            raise PermissionError(f"mpt.capture starts no other program: {text}")
        self.end(f"would start a program: {text}")

    def _processes(self, *_: Any) -> None:
        self.end("would start a process")

    def watch(self) -> None:
        """From here on nothing outside the temporary folder can change. This process cannot undo it."""
        self._calm_processes()
        rules: Dict[str, Callable[..., None]] = {
            "open": self._opens, "os.rename": self._renames, "shutil.rmtree": self._removes_tree, "sqlite3.connect": self._connects,
            "os.kill": self._signals, "os.killpg": self._signals, "subprocess.Popen": self._starts}
        rules.update({f"os.{name}": self._changes(what, True) for name, what in (
            ("remove", "remove"), ("rmdir", "remove"), ("mkdir", "make"), ("chmod", "change"), ("chown", "change"), ("utime", "change"))})
        rules.update({f"os.{name}": self._changes(what, False) for name, what in (("truncate", "truncate"), ("setxattr", "change"), ("removexattr", "change"))})
        links = self._changes("make", True)
        rules.update({"os.symlink": lambda _, target, folder: links(target, folder), "os.link": lambda _, target, __, folder: links(target, folder)})
        rules.update(dict.fromkeys(("os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.exec", "pty.spawn"), self._processes))
        rules["os.system"] = lambda command: self.end(f"would start a program: {os.fsdecode(command)}")
        self.files.divert()
        self.sealed = landlock.restrict_writes(self.free)

        def hook(event: str, arguments: Any) -> None:
            rule = rules.get(event)
            if rule is not None:
                rule(*arguments)
        sys.addaudithook(hook)

    def _calm_processes(self) -> None:
        """Caches and trackers stay in the temporary folder, and multiprocessing starts no process to watch its locks."""
        from multiprocessing import resource_tracker
        for name, below in CACHES.items():
            os.environ[name] = os.path.join(self.folder, below) if below != "." else self.folder
        os.environ["MLFLOW_TRACKING_URI"] = "file://" + os.environ["MLFLOW_TRACKING_URI"]
        os.environ.update(OFFLINE)
        if not os.path.isdir(self.hub):
            os.environ["HF_HOME"] = os.path.join(self.folder, "huggingface")
        tempfile.tempdir = self.folder
        sys.dont_write_bytecode = True
        subprocess._USE_POSIX_SPAWN = False  # type: ignore[attr-defined]  # it would be a second event
        resource_tracker.register = resource_tracker.unregister = lambda *_: None  # type: ignore[assignment]
        resource_tracker.ensure_running = lambda: None  # type: ignore[assignment]
        import _posixsubprocess
        _posixsubprocess.fork_exec = self._processes  # for multiprocessing, which raises no event; subprocess has its own name for it

    # Training by functions of torch, and functions of other libraries that save or send.

    def hooks(self, ranks: Callable[[], int]) -> Dict[str, Callable[[Any], None]]:
        """The hooks by module; each changes its module after import."""
        return {
            "torch": self._watch_torch,
            "torch.optim.optimizer": self._watch_optimizers,
            "torch.distributed.distributed_c10d": lambda module: self._watch_collectives(module, ranks),
            "torch.distributed.checkpoint.state_dict_saver": lambda module: self.replace(
                module, ["save", "async_save", "save_state_dict"], "calls torch.distributed.checkpoint.{}()"),
            "safetensors": lambda module: self.replace(module, ["serialize_file"], "saves a file of safetensors"),
            "huggingface_hub.hf_api": lambda module: self.replace(module.HfApi, UPLOADS, "would change a repository of the hub by {}()"),
            "urllib3.connectionpool": lambda module: self._send_nothing(module.HTTPConnectionPool, "urlopen", lambda _, method, url, *__, **___: (method, url)),
            **dict.fromkeys(("httpx", "httpx2"), lambda module: self._send_nothing(
                module.Client, "send", lambda _, request, *__, **___: (request.method, str(request.url)))),
            "deepspeed.comm.torch": lambda module: setattr(module, "build_shm_op", lambda: None),  # it would compile code for other ranks
        }

    def _watch_torch(self, torch: Any) -> None:
        self.replace(torch.Tensor, ["backward"], "calls Tensor.{}(), which trains")
        self.replace(torch.autograd, ["backward", "grad", "_engine_run_backward"], "calls torch.autograd.{}(), which trains")
        self.replace(torch, ["save"], "calls torch.{}()", lambda _=None, f=None, *__, **___: _is_file(f))
        self.replace(torch.jit, ["save"], "calls torch.jit.{}()", lambda _=None, f=None, *__, **___: _is_file(f))

    def _watch_optimizers(self, module: Any) -> None:
        module.register_optimizer_step_pre_hook(lambda optimizer, *_: self.end(f"calls {type(optimizer).__name__}.step(), which trains"))

    def _watch_collectives(self, module: Any, ranks: Callable[[], int]) -> None:
        """Process groups are torch's fake ones. A collective's result is right for one rank, and made up for several."""
        begin = module.init_process_group

        @functools.wraps(begin)
        def fake(*_: Any, **__: Any) -> None:
            from torch.testing._internal.distributed.fake_pg import FakeStore
            begin("fake", store=FakeStore(), rank=0, world_size=ranks())
        for holder in filter(None, (module, sys.modules.get("torch.distributed"))):
            if hasattr(holder, "init_process_group"):
                holder.init_process_group = fake
            self.replace(holder, COLLECTIVES, "calls torch.distributed.{}() for data of several ranks, of which one is here",
                         lambda *_, **__: ranks() > 1 and not _hands_out_weights())

    def _send_nothing(self, holder: Any, name: str, asked: Callable[..., Any]) -> None:
        """Allows requests that read, and refuses those that send data. The hub reads some of its lists by POST."""
        function = getattr(holder, name)

        @functools.wraps(function)
        def send(*arguments: Any, **named: Any) -> Any:
            try:
                method, url = asked(*arguments, **named)
            except TypeError:
                method, url = "GET", ""
            if method.upper() in ("POST", "PUT", "PATCH", "DELETE") and "/paths-info/" not in url:
                self.unsent.append(url)
                raise ConnectionError(f"mpt.capture sends nothing: {method} {url}")
            return function(*arguments, **named)
        setattr(holder, name, send)


def _hands_out_weights() -> bool:
    """Whether DeepSpeed's zero.Init is the caller: it gives each new weight to all ranks while the model is made, before the configuration
    is parsed."""
    files = (frame.f_code.co_filename for frame, _ in traceback.walk_stack(sys._getframe(1)))
    return any(file.endswith("/deepspeed/runtime/zero/partition_parameters.py") for file in files)


def _is_file(target: Any) -> bool:
    """Whether the target is a file, not a buffer in memory, to which libraries save in order to copy or to count."""
    if isinstance(target, (str, bytes, os.PathLike)):
        return True
    try:
        return isinstance(target.fileno(), int)
    except Exception:
        return False
