# SPDX-License-Identifier: Apache-2.0
"""What a training command configures, in the framework's own words: python -m mpt.capture -- torchrun ... pretrain_gpt.py ...

Runs the command's script in this process as rank 0, with the environment that its launcher sets, until the framework has
parsed its configuration. Writes that as JSON for `mpt-plan import --captured FILE`. No other process is started, process
groups are torch's fake ones, and nothing is trained. Scripts of the shell (bash run.sh) run as they are, with
stand-ins for torchrun, accelerate and deepspeed that do this. docs/python.md lists the frameworks.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import importlib.abc
import importlib.metadata
import importlib.util
import json
import math
import os
import runpy
import shlex
import stat
import subprocess
import sys
import tempfile
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence


COMMAND = [sys.executable, "-m", "mpt.capture"]  # as stand-ins of launchers call it


class Captured(BaseException):
    """Ends the script. No handler of an Exception stops it."""

    def __init__(self, framework: str, package: str, at: str, files: Dict[str, Any]):
        super().__init__(framework)
        self.framework, self.package, self.at, self.files = framework, package, at, files


class Job(NamedTuple):
    """What a launcher would start on each rank."""

    script: str  # a path, or a module
    is_module: bool
    arguments: List[str]
    ranks: int
    ranks_per_node: int
    environment: Dict[str, str]


# Megatron-LM: the flags that differ from its defaults, after its own validation.

def _words(parser: argparse.ArgumentParser, given: Dict[str, Any], values: argparse.Namespace) -> List[str]:
    """`given`: before the validation, which also fills in what follows from other flags."""
    words: List[str] = []
    plain = (str, int, float, list, tuple, enum.Enum)
    for action in parser._actions:
        option = next((one for one in action.option_strings if one.startswith("--")), None)
        value = getattr(values, action.dest, None)
        value = value if isinstance(value, plain) else given.get(action.dest)  # types of torch as the flag says them
        if option is None or value is None or value == action.default or given.get(action.dest) in (None, action.default):
            continue
        if action.nargs == 0:
            words += [option] if value == action.const else []
        elif isinstance(value, bool):  # of BooleanOptionalAction
            words += [option if value else action.option_strings[-1]]
        else:
            items = value if isinstance(value, (list, tuple)) else [value]
            words += [option, *(item.name if isinstance(item, enum.Enum) else str(item) for item in items)]
    return words


def _hook_megatron(module: Any) -> None:
    parsers: List[argparse.ArgumentParser] = []
    add, validate = module.add_megatron_arguments, module.validate_args

    def add_arguments(parser: argparse.ArgumentParser) -> Any:
        parsers.append(add(parser))
        return parsers[-1]

    def validate_args(args: Any, *more: Any, **named: Any) -> None:
        given = {**(more[0] if more else named.get("defaults", {})), **{name: value for name, value in vars(args).items() if value is not None}}
        validate(args, *more, **named)
        if not parsers:
            sys.exit("mpt.capture: Megatron-LM's arguments did not come from its parser")
        line = shlex.join(["torchrun", "pretrain_gpt.py", *_words(parsers[-1], given, args)])
        raise Captured("megatron-core", "megatron-core", "megatron.training.arguments.validate_args()", {"pretrain.sh": line + "\n"})

    module.add_megatron_arguments, module.validate_args = add_arguments, validate_args


# torchtitan: its Trainer.Config, as a function of Python.

def _python(value: Any) -> Optional[str]:
    """An expression that says the value; None for what is code."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [(field.name, _python(getattr(value, field.name))) for field in dataclasses.fields(value)]
        return f"{type(value).__qualname__}({', '.join(f'{name}={text}' for name, text in fields if text is not None)})"
    if isinstance(value, enum.Enum):
        return repr(value.value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        items = [_python(item) for item in value]
        return None if None in items else f"[{', '.join(items)}]"  # type: ignore[arg-type]
    return None


def _titan_converters(spec: Any) -> str:
    """Which products its converters have made narrow, by the classes in the model's configuration."""
    from torchtitan.config import Configurable
    narrow = [(name, type(one).__qualname__) for name, one, _, _ in spec.model.traverse(Configurable.Config, recurse=True)]
    kind = next((kind for kind in ("MXFP8", "NVFP4", "Float8") if any(kind in found for _, found in narrow)), None)
    if kind is None:
        return ""
    head = any(name.endswith("lm_head") and kind in found for name, found in narrow)
    named = "filter_fqns" if kind == "Float8" else "fqns"  # Float8's names are left out, the others' are converted
    names = ["lm_head"] if head != (kind == "Float8") else []
    return f", converters=[{kind}LinearConverter.Config({named}={names!r})]"


def _hook_titan(module: Any) -> None:
    parse = module.ConfigManager.parse_args

    def parse_args(self: Any, *arguments: Any, **named: Any) -> Any:
        config = parse(self, *arguments, **named)
        spec = config.model_spec
        family = spec.name.rpartition("/")[2]
        fields = [f"model_spec=model_registry({spec.flavor!r}{_titan_converters(spec)})"]
        fields += [f"{field.name}={_python(getattr(config, field.name))}" for field in dataclasses.fields(config)
                   if field.name in ("training", "parallelism", "activation_checkpoint", "compile", "debug")]
        text = (f"from torchtitan.models.{family} import model_registry\n\n\ndef captured() -> Trainer.Config:\n    return Trainer.Config(\n        "
                + ",\n        ".join(fields) + ",\n    )\n")
        raise Captured("torchtitan", "torchtitan", "ConfigManager.parse_args()", {"captured.py": text})

    module.ConfigManager.parse_args = parse_args


# Megatron-Bridge, and NeMo on it: its ConfigContainer.

def _plain(value: Any) -> Any:
    """As YAML holds it: what is code by its name."""
    if isinstance(value, dict):
        if value.get("_call_") is False and "_target_" in value:
            return value["_target_"]
        if set(value) == {"_target_", "_args_"}:  # an item of an enumeration, or a type
            return str(value["_args_"][0]) if value["_args_"] else value["_target_"]
        return {str(key): _plain(item) for key, item in value.items() if key == "_target_" or not str(key).startswith("_")}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.name
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no word for it
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _first_default(kind: type, name: str) -> Any:
    """Of the class that brings the field: classes below it may be one model's. What it has no default for differs from all."""
    field = next((cls.__dataclass_fields__[name] for cls in reversed(kind.__mro__) if name in getattr(cls, "__dataclass_fields__", {})), None)
    if field is not None and field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return dataclasses.MISSING if field is None else field.default


def _changed(held: Any, fields: Dict[str, Any]) -> Dict[str, Any]:
    """Of a configuration's fields those that are not Megatron's defaults."""
    kept: Dict[str, Any] = {}
    for name, value in fields.items():
        part = getattr(held, name, None)
        if isinstance(value, dict) and dataclasses.is_dataclass(part):
            kept[name] = _changed(part, value)
        elif name.startswith("_") or part != _first_default(type(held), name):
            kept[name] = value
    return kept


def _hook_bridge(name: str) -> Callable[[Any], None]:
    def hook(module: Any) -> None:
        def run(config: Any, *_: Any, **__: Any) -> None:
            raise Captured("megatron-bridge", "megatron-bridge", f"megatron.bridge.training.{name}.{name}()", {"config.yaml": _changed(config, config.to_dict())})
        setattr(module, name, run)
    return hook


# NeMo 2 is known, and not captured yet.

def _refuse_nemo(_: Any) -> None:
    sys.exit("mpt.capture: found NeMo 2 (nemo.collections.llm), which MPT cannot capture yet; expected Megatron-Bridge, which took its place, or another "
             "framework that docs/python.md lists. What the script itself sets is read without running it: "
             "mpt-plan import SCRIPT.py --framework nemo --cluster NAME")


# NeMo AutoModel: its recipe, with the overrides of the command line.

def _hook_automodel(module: Any) -> None:
    load = module.parse_args_and_load_config

    def parse_args_and_load_config(*arguments: Any, **named: Any) -> Any:
        config = load(*arguments, **named)
        raise Captured("automodel", "nemo-automodel", "parse_args_and_load_config()", {"recipe.yaml": config.to_yaml_dict(redact_sensitive=True)})

    module.parse_args_and_load_config = parse_args_and_load_config


# Hugging Face's Trainer with accelerate's FSDP, or with DeepSpeed.

def _accelerate_config(state: Any, deepspeed: bool, ranks: int) -> Dict[str, Any]:
    precision = os.environ.get("ACCELERATE_MIXED_PRECISION") or str(state.mixed_precision)
    config: Dict[str, Any] = {"distributed_type": "MULTI_GPU", "mixed_precision": precision, "num_processes": ranks}
    fsdp, split = getattr(state, "fsdp_plugin", None), getattr(state, "parallelism_config", None)
    if fsdp is None and os.environ.get("ACCELERATE_USE_FSDP") == "true":  # without a GPU accelerate leaves it out
        from accelerate.utils import FullyShardedDataParallelPlugin
        fsdp = FullyShardedDataParallelPlugin()
    if deepspeed:
        config.update(distributed_type="DEEPSPEED", deepspeed_config={"deepspeed_config_file": "ds_config.json"})
    elif fsdp is not None:
        reshards = fsdp.reshard_after_forward
        config.update(distributed_type="FSDP", fsdp_config={
            "fsdp_version": fsdp.fsdp_version, "fsdp_activation_checkpointing": bool(fsdp.activation_checkpointing),
            "fsdp_reshard_after_forward": reshards if isinstance(reshards, bool) else getattr(reshards, "name", str(reshards)),
            "fsdp_offload_params": type(fsdp.cpu_offload).__name__ == "CPUOffloadPolicy" or getattr(fsdp.cpu_offload, "offload_params", fsdp.cpu_offload) is True})
    if split is not None:
        config["parallelism_config"] = {f"parallelism_config_{name}": getattr(split, name) for name in
                                        ("tp_size", "cp_size", "dp_replicate_size", "dp_shard_size")}
    return config


def _trainer_files(args: Any, state: Any, model: Any) -> Captured:
    filled = getattr(args, "hf_deepspeed_config", None)
    plugin = getattr(state, "deepspeed_plugin", None)
    deepspeed = filled.config if filled is not None else plugin.deepspeed_config if plugin is not None else None
    config = _accelerate_config(state, deepspeed is not None, int(os.environ["WORLD_SIZE"]))
    length = next((value for value in (getattr(args, name, None) for name in ("max_length", "max_seq_length")) if value), _INSIDE.sequence)
    if length is None:  # trl's SFTConfig knows one, the Trainer itself does not
        sys.exit("mpt.capture: the Trainer does not know the length of its sequences: add --seq N before the --")
    name = f"{model.config.model_type}.json"
    train = {"config_name": name, "per_device_train_batch_size": args.per_device_train_batch_size,
             "gradient_accumulation_steps": args.gradient_accumulation_steps, "gradient_checkpointing": bool(args.gradient_checkpointing),
             "optim": getattr(args.optim, "value", str(args.optim)), "block_size": length}
    files = {"accelerate.yaml": config, "train.json": train, name: json.loads(model.config.to_json_string(use_diff=False))}
    if deepspeed is not None:
        files["ds_config.json"] = deepspeed
    return Captured("transformers-fsdp" if deepspeed is None else "transformers-deepspeed", "transformers",
                    "Trainer.create_accelerator_and_postprocess()", files)


def _hook_trainer(module: Any) -> None:
    make, finish = module.Trainer.__init__, module.Trainer.create_accelerator_and_postprocess
    models: List[Any] = []

    def init(self: Any, model: Any = None, *arguments: Any, **named: Any) -> None:
        models.append(model)
        make(self, model, *arguments, **named)

    def create_accelerator_and_postprocess(self: Any) -> None:
        finish(self)
        raise _trainer_files(self.args, self.accelerator.state, models[-1] if models[-1] is not None else self.model_init())

    module.Trainer.__init__, module.Trainer.create_accelerator_and_postprocess = init, create_accelerator_and_postprocess


def _without_gpu(module: Any) -> None:
    import torch
    if not torch.cuda.is_available():
        module.is_torch_bf16_gpu_available = lambda: True  # it refuses bf16 where there is no GPU to ask,
        module.TrainingArguments.world_size = property(lambda _: int(os.environ["WORLD_SIZE"]))  # and counts one rank


HOOKS: Dict[str, Callable[[Any], None]] = {
    "megatron.training.arguments": _hook_megatron,
    "torchtitan.config.manager": _hook_titan,
    "megatron.bridge.training.pretrain": _hook_bridge("pretrain"),
    "megatron.bridge.training.finetune": _hook_bridge("finetune"),
    "nemo.collections.llm": _refuse_nemo,
    "nemo_automodel.components.config._arg_parser": _hook_automodel,
    "transformers.trainer": _hook_trainer,
    "transformers.training_args": _without_gpu,
}


class _Finder(importlib.abc.MetaPathFinder):
    """Changes a framework's module once it has been imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        hook = HOOKS.get(name)
        if hook is None:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            hook(module)
        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


# Launchers, read by their own parsers.

def _number(text: str, what: str) -> int:
    if text.isdigit() and int(text) > 0:
        return int(text)
    if text in ("gpu", "auto"):
        import torch
        if torch.cuda.is_available():
            return torch.cuda.device_count()
    sys.exit(f"mpt.capture: {what} {text}: found no number, and no GPU to count; expected how many processes each node starts")


def _of_torchrun(words: Sequence[str]) -> Job:
    from torch.distributed.run import get_args_parser
    args = get_args_parser().parse_args(list(words))
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
    nodes = args.num_nodes if args.num_nodes > 0 else max(1, len(hosts))
    return Job(args.user_script, args.module, args.user_args, each * nodes, each, {})


def _job(command: Sequence[str]) -> Optional[Job]:
    """None for a script of the shell."""
    program, rest = os.path.basename(command[0]), list(command[1:])
    if program.startswith("python"):
        while rest and rest[0] in ("-u", "-O", "-OO", "-B"):
            rest.pop(0)
        if rest[:1] != ["-m"]:
            return Job(rest[0], False, rest[1:], 1, 1, {}) if rest and not rest[0].startswith("-") else None
        program, rest = {"torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun", "deepspeed.launcher.runner": "deepspeed",
                         "accelerate.commands.launch": "accelerate launch"}.get(rest[1], "-m"), rest[1:]
        if program == "-m":
            return Job(rest[0], True, rest[1:], 1, 1, {})
        rest = rest[1:]
    if program == "torchrun":
        return _of_torchrun(rest)
    if program == "accelerate" and rest[:1] == ["launch"]:
        return _of_accelerate(rest[1:])
    if program == "accelerate launch":
        return _of_accelerate(rest)
    if program == "deepspeed":
        return _of_deepspeed(rest)
    return Job(command[0], False, rest, 1, 1, {}) if command[0].endswith(".py") else None


class _Inside:
    sequence: Optional[int] = None


_INSIDE = _Inside()


def _run(job: Job) -> Captured:
    import torch.distributed as dist
    local = {"RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0", "NODE_RANK": "0", "WORLD_SIZE": str(job.ranks),
             "LOCAL_WORLD_SIZE": str(job.ranks_per_node), "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    os.environ.update({**job.environment, **local})
    begin = dist.init_process_group

    def fake(*_: Any, **__: Any) -> None:
        from torch.testing._internal.distributed.fake_pg import FakeStore
        begin("fake", store=FakeStore(), rank=0, world_size=job.ranks)
    dist.init_process_group = fake
    sys.meta_path.insert(0, _Finder())
    for name in [name for name in HOOKS if name in sys.modules]:
        HOOKS[name](sys.modules[name])
    sys.argv = [job.script, *job.arguments]
    try:
        if job.is_module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(job.script, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, os.path.dirname(os.path.abspath(job.script)))
            runpy.run_path(job.script, run_name="__main__")
    except Captured as captured:
        return captured
    sys.exit(f"mpt.capture: {job.script} ended before a framework had parsed its configuration; expected one that calls "
             "Megatron-LM, Megatron-Bridge, torchtitan, NeMo AutoModel or the Trainer of transformers")


def _shell(command: Sequence[str], output: str, sequence: Optional[int]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        own = [*COMMAND, "-o", os.path.abspath(output), *(["--seq", str(sequence)] if sequence else []), "--"]
        for name in ("torchrun", "accelerate", "deepspeed"):
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(f'#!/bin/sh\nexec {shlex.join([*own, name])} "$@"\n')
            os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        environment = {**os.environ, "PATH": folder + os.pathsep + os.environ.get("PATH", "")}
        before = os.path.getmtime(output) if os.path.exists(output) else None
        code = subprocess.run(list(command), env=environment).returncode
        if (os.path.getmtime(output) if os.path.exists(output) else None) != before:
            return 0
        print(f"mpt.capture: {command[0]} ended with code {code}, and started neither torchrun nor accelerate nor deepspeed that captured; "
              "expected a command such as torchrun ... script.py", file=sys.stderr)
        return code or 2


def main(words: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m mpt.capture", description=(__doc__ or "").split("\n\n")[1],
                                     usage="python -m mpt.capture [-o FILE] [--seq N] -- COMMAND ...")
    parser.add_argument("-o", "--output", default="captured.json", metavar="FILE", help="what to write (default: captured.json)")
    parser.add_argument("--seq", type=int, metavar="N", help="tokens of a sequence, which the Trainer of transformers does not know")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what starts the training")
    args = parser.parse_args(words)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        parser.error("no command; expected one after --, such as torchrun --nproc-per-node 8 pretrain_gpt.py ...")
    job = _job(command)
    if job is None:
        return _shell(command, args.output, args.seq)
    _INSIDE.sequence = args.seq
    captured = _run(job)
    executed = (f"{'-m ' if job.is_module else ''}{job.script} ran in one process as rank 0 of {job.ranks} until {captured.at}; "
                "no other process was started, and nothing was trained")
    software = f"{captured.package} {importlib.metadata.version(captured.package)}"
    result = {"framework": captured.framework, "ranks": job.ranks,
              "run": {"command": list(command), "executed": executed, "software": software},
              "reads": next(iter(captured.files)), "files": {name: _plain(content) for name, content in captured.files.items()}}
    with open(args.output, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    print(f"mpt.capture: {executed}\nWrote {args.output}. Next: mpt-plan import --captured {shlex.quote(args.output)} --cluster NAME")
    return 0


if __name__ == "__main__":
    from mpt import capture  # the hooks and the script share one module
    sys.stdout.flush()
    status = capture.main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads of the framework may still run
