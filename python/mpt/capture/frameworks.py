# SPDX-License-Identifier: Apache-2.0
"""The point at which each framework has parsed its configuration, and the configuration in a form that mpt-plan import reads."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import json
import math
import os
import shlex
from typing import Any, Callable, Dict, List, NamedTuple, NoReturn, Optional

from mpt.capture.launchers import Refused


class Captured(NamedTuple):
    framework: str
    package: str  # by its name on the index
    at: str
    files: Dict[str, Any]  # mpt-plan reads the first


class Inside:
    """The run that is captured."""

    sequence: Optional[int] = None  # tokens, if the framework does not state them

    @staticmethod
    def done(captured: Captured) -> NoReturn:
        """Ends the script at this line; the process that runs it replaces this."""
        raise NotImplementedError


INSIDE = Inside()


# Megatron-LM: the flags that differ from its defaults, after its own validation.

def _words(parser: argparse.ArgumentParser, given: Dict[str, Any], values: argparse.Namespace) -> List[str]:
    """`given`: the values before validation, which also sets values that follow from other flags."""
    words: List[str] = []
    plain = (str, int, float, list, tuple, enum.Enum)
    for action in parser._actions:
        option = next((one for one in action.option_strings if one.startswith("--")), None)
        value = getattr(values, action.dest, None)
        value = value if isinstance(value, plain) else given.get(action.dest)  # types of torch in the flag's form
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
            raise Refused("Megatron-LM's arguments did not come from its parser; expected megatron.training.arguments.add_megatron_arguments()")
        line = shlex.join(["torchrun", "pretrain_gpt.py", *_words(parsers[-1], given, args)])
        INSIDE.done(Captured("megatron-core", "megatron-core", "megatron.training.arguments.validate_args()", {"pretrain.sh": line + "\n"}))

    module.add_megatron_arguments, module.validate_args = add_arguments, validate_args


# torchtitan: its Trainer.Config, as a function of Python.

def _python(value: Any) -> Optional[str]:
    """An expression for the value; None for code."""
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
    """The products narrowed by its converters, from the classes in the model's configuration."""
    from torchtitan.config import Configurable
    narrow = [(name, type(one).__qualname__) for name, one, _, _ in spec.model.traverse(Configurable.Config, recurse=True)]
    kind = next((kind for kind in ("MXFP8", "NVFP4", "Float8") if any(kind in found for _, found in narrow)), None)
    if kind is None:
        return ""
    head = any(name.endswith("lm_head") and kind in found for name, found in narrow)
    named = "filter_fqns" if kind == "Float8" else "fqns"  # Float8 lists the excluded names, the others list the converted ones
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
        INSIDE.done(Captured("torchtitan", "torchtitan", "ConfigManager.parse_args()", {"captured.py": text}))

    module.ConfigManager.parse_args = parse_args


# Megatron-Bridge, and NeMo on it: its ConfigContainer.

def plain(value: Any) -> Any:
    """The value in YAML's form; code becomes its name."""
    if isinstance(value, dict):
        if value.get("_call_") is False and "_target_" in value:
            return value["_target_"]
        if set(value) == {"_target_", "_args_"}:  # an item of an enumeration, or a type
            return str(value["_args_"][0]) if value["_args_"] else value["_target_"]
        return {str(key): plain(item) for key, item in value.items() if key == "_target_" or not str(key).startswith("_")}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.name
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON cannot represent it
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _first_default(kind: type, name: str) -> Any:
    """The default in the class that introduces the field; classes below it may be for one model. Without a default, MISSING differs from
    all."""
    field = next((cls.__dataclass_fields__[name] for cls in reversed(kind.__mro__) if name in getattr(cls, "__dataclass_fields__", {})), None)
    if field is not None and field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return dataclasses.MISSING if field is None else field.default


def _changed(held: Any, fields: Dict[str, Any]) -> Dict[str, Any]:
    """The fields of a configuration that differ from Megatron's defaults."""
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
            INSIDE.done(Captured("megatron-bridge", "megatron-bridge", f"megatron.bridge.training.{name}.{name}()", {"config.yaml": _changed(config, config.to_dict())}))
        setattr(module, name, run)
    return hook


# NeMo 2 is recognized, but not captured yet.

def _refuse_nemo(_: Any) -> None:
    raise Refused("found NeMo 2 (nemo.collections.llm), which MPT cannot capture yet; expected Megatron-Bridge, which took its place, or another "
             "framework that docs/python.md lists. What the script itself sets is read without running it: "
             "mpt-plan import SCRIPT.py --framework nemo --cluster NAME")


# NeMo AutoModel: its recipe, with the overrides of the command line.

def _hook_automodel(module: Any) -> None:
    load = module.parse_args_and_load_config

    def parse_args_and_load_config(*arguments: Any, **named: Any) -> Any:
        config = load(*arguments, **named)
        INSIDE.done(Captured("automodel", "nemo-automodel", "parse_args_and_load_config()", {"recipe.yaml": config.to_yaml_dict(redact_sensitive=True)}))

    module.parse_args_and_load_config = parse_args_and_load_config


# Hugging Face's Trainer with accelerate's FSDP, or with DeepSpeed.

def _accelerate_config(state: Any, deepspeed: bool, ranks: int) -> Dict[str, Any]:
    precision = os.environ.get("ACCELERATE_MIXED_PRECISION") or str(state.mixed_precision)
    config: Dict[str, Any] = {"distributed_type": "MULTI_GPU", "mixed_precision": precision, "num_processes": ranks}
    fsdp, split = getattr(state, "fsdp_plugin", None), getattr(state, "parallelism_config", None)
    if fsdp is None and os.environ.get("ACCELERATE_USE_FSDP") == "true":  # accelerate ignores it without a GPU
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
    length = next((value for value in (getattr(args, name, None) for name in ("max_length", "max_seq_length")) if value), INSIDE.sequence)
    if length is None:  # trl's SFTConfig has one, the Trainer itself does not
        raise Refused("the Trainer does not know the length of its sequences: add --seq N before the --")
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
        INSIDE.done(_trainer_files(self.args, self.accelerator.state, models[-1] if models[-1] is not None else self.model_init()))

    module.Trainer.__init__, module.Trainer.create_accelerator_and_postprocess = init, create_accelerator_and_postprocess


def _without_gpu(module: Any) -> None:
    import torch
    if not torch.cuda.is_available():
        module.is_torch_bf16_gpu_available = lambda: True  # it refuses bf16 if it finds no GPU to ask,
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
