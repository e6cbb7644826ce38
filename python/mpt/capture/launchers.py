# SPDX-License-Identifier: Apache-2.0
"""The process that a launcher would start on each rank. The launcher's own parser reads its options."""

from __future__ import annotations

import os
from typing import Dict, List, NamedTuple, Sequence


class Refused(Exception):
    """Its text has finding, expectation and remedy."""


class Job(NamedTuple):
    """The process that a launcher would start on each rank."""

    script: str  # a path, or a module
    is_module: bool
    arguments: List[str]
    ranks: int
    ranks_per_node: int
    environment: Dict[str, str]


def _number(text: str, what: str) -> int:
    if text.isdigit() and int(text) > 0:
        return int(text)
    if text in ("gpu", "auto"):
        import torch
        if torch.cuda.is_available():
            return torch.cuda.device_count()
    raise Refused(f"{what} {text}: found no number, and no GPU to count; expected how many processes each node starts; write that number")


def _of_torchrun(words: Sequence[str]) -> Job:
    from torch.distributed.run import get_args_parser
    args = get_args_parser().parse_args(list(words))
    if args.no_python:
        raise Refused(f"torchrun --no-python: found a program, {args.training_script}; expected a script of Python or -m MODULE; give one")
    each = _number(str(args.nproc_per_node), "--nproc-per-node")
    return Job(args.training_script, args.module, args.training_script_args, each * _number(str(args.nnodes).split(":")[-1], "--nnodes"), each, {})


def _of_accelerate(words: Sequence[str]) -> Job:
    from accelerate.commands import launch
    from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env, prepare_simple_launcher_cmd_env
    args, defaults, _ = launch._validate_launch_command(launch.launch_command_parser().parse_args(list(words)))
    if args.use_deepspeed:
        args.deepspeed_fields_from_accelerate_config = ",".join(defaults.deepspeed_config) if defaults else ""
        args.deepspeed_multinode_launcher = args.deepspeed_multinode_launcher or "standard"
        _, environment = prepare_deepspeed_cmd_env(args)
    elif args.use_fsdp or args.multi_gpu:
        environment = prepare_multi_gpu_env(args)
    else:
        _, environment = prepare_simple_launcher_cmd_env(args)
    ranks = args.num_processes or 1
    changed = {name: value for name, value in environment.items() if os.environ.get(name) != value and name != "PATH"}
    return Job(args.training_script, bool(args.module), args.training_script_args, ranks, max(1, ranks // (args.num_machines or 1)), changed)


def _of_deepspeed(words: Sequence[str]) -> Job:
    from deepspeed.launcher.runner import fetch_hostfile, parse_args
    args = parse_args(list(words))
    hosts = fetch_hostfile(args.hostfile) or {}
    each = args.num_gpus if args.num_gpus > 0 else next(iter(hosts.values()), 0) or _number("gpu", "--num_gpus")
    return Job(args.user_script, args.module, args.user_args, each * (args.num_nodes if args.num_nodes > 0 else max(1, len(hosts))), each, {})


def _of_python(words: Sequence[str]) -> Job:
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        if rest[0] in ("-c", "-"):
            raise Refused("python -c: found a text and no script; expected python SCRIPT.py or python -m MODULE; write the text to a file")
        rest = rest[2:] if rest[0] in ("-W", "-X") else rest[1:]
    if rest[:1] != ["-m"]:
        if not rest:
            raise Refused("python: found no script; expected python SCRIPT.py or python -m MODULE; name one")
        return Job(rest[0], False, rest[1:], 1, 1, {})
    if len(rest) < 2:
        raise Refused("python -m: found no module; expected python -m MODULE; name one")
    launcher = _MODULES.get(rest[1])
    return launcher(rest[2:]) if launcher else Job(rest[1], True, rest[2:], 1, 1, {})


_MODULES = {"torch.distributed.run": _of_torchrun, "torch.distributed.launch": _of_torchrun, "deepspeed.launcher.runner": _of_deepspeed,
            "accelerate.commands.launch": _of_accelerate}


def job_of(command: Sequence[str]) -> Job:
    """Of torchrun, accelerate launch, deepspeed, python or a script of Python."""
    program, rest = os.path.basename(command[0]), list(command[1:])
    if program.startswith("python"):
        return _of_python(rest)
    if program == "torchrun":
        return _of_torchrun(rest)
    if program == "accelerate":
        return _of_accelerate(rest[1:])
    return _of_deepspeed(rest) if program == "deepspeed" else Job(command[0], False, rest, 1, 1, {})
