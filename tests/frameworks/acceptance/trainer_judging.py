# SPDX-License-Identifier: Apache-2.0
"""What the judges of Hugging Face's Trainer share: accelerate's own launcher and the Trainer's own arguments read the export."""

import dataclasses
import json
import os
import runpy
import subprocess
import tempfile

import stubs

stubs.use()
import torch.distributed as dist  # noqa: E402
from accelerate.commands.launch import _validate_launch_command, launch_command_parser  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402
from transformers import HfArgumentParser, TrainingArguments  # noqa: E402

STAND_IN = """#!/usr/bin/env python3
import json, os, sys
names = ("ACCELERATE_", "PARALLELISM_CONFIG_", "FSDP_")
print(json.dumps({"arguments": sys.argv[1:], "settings": {k: v for k, v in os.environ.items() if k.startswith(names)}}))
"""


@dataclasses.dataclass
class ScriptArguments:
    """The fields of transformers' examples/pytorch/language-modeling/run_clm.py that an export fills; no wheel holds the script."""

    config_name: str = None
    block_size: int = None
    config_overrides: str = None
    dtype: str = None


def launched(folder, *words):
    """What run_accelerate.sh passes to accelerate, run from another folder, and the environment that it sets."""
    with tempfile.TemporaryDirectory() as tools:
        stand_in = os.path.join(tools, "accelerate")
        with open(stand_in, "w", encoding="utf-8") as file:
            file.write(STAND_IN)
        os.chmod(stand_in, 0o755)
        variables = {"PATH": f"{tools}:{os.environ['PATH']}", "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
        result = subprocess.run([os.path.join(folder, "run_accelerate.sh"), *words], capture_output=True, text=True, cwd="/",
                                env=variables)
    if result.returncode != 0:
        raise RuntimeError(f"run_accelerate.sh ended with {result.returncode}: {result.stderr.strip()[-300:]}")
    said = json.loads(result.stdout)
    if said["arguments"][0] != "launch":
        raise RuntimeError(f"run_accelerate.sh calls accelerate {said['arguments'][0]}")
    return said["arguments"][1:], said["settings"]


def launch_environment(c, folder, prepare):
    """The environment that accelerate gives to each process of a node; os.environ has it afterwards."""
    arguments, settings = launched(folder, "train.py", "train.json")
    for name in [name for name in os.environ if name.startswith(("ACCELERATE_", "PARALLELISM_CONFIG_", "FSDP_"))]:
        del os.environ[name]
    os.environ.update(settings)
    args, _, _ = _validate_launch_command(launch_command_parser().parse_args(arguments))
    args.deepspeed_fields_from_accelerate_config = ""
    prepared = prepare(args)
    command, environment = prepared if isinstance(prepared, tuple) else (None, prepared)
    os.environ.update(environment)
    c.same("script of the user", "train.py", args.training_script)
    c.same("number of nodes", c.nodes, int(getattr(args, "nnodes", None) or args.num_machines))
    c.same("processes of a node", c.ranks // c.nodes, int(getattr(args, "nproc_per_node", 0)))  # none where DeepSpeed starts them over ssh
    return command, args


def compare_trial(c, folder):
    """The trial that mpt-plan prints: accelerate's parser reads the line, and the Trainer's parser what the script passes."""
    framework = os.path.join(os.path.dirname(__file__), "../../../frameworks", c.layout["execution"]["framework"], "framework.json")
    with open(framework, encoding="utf-8") as file:
        words = [word.replace("@folder@", folder).replace("@steps@", "50") for word in json.load(file)["trial"]["arguments"]]
    args = launch_command_parser().parse_args(launched(folder, *words)[0])
    c.same("words of a trial", words, [args.training_script, *args.training_script_args])
    script, training = runpy.run_path(args.training_script)["arguments"](*map(int, args.training_script_args), use_cpu=True)
    c.same("steps of a trial", 50, training.max_steps)
    c.same("tokens of a trial", c.workload["sequence"], script.block_size)


def training_arguments(c, folder):
    """train.json as run_clm.py reads it, with what it leaves to the user; on CPU ranks."""
    with open(os.path.join(folder, "train.json"), encoding="utf-8") as file:
        values = json.load(file)
    values |= {"output_dir": tempfile.mkdtemp(), "use_cpu": True, "report_to": "none"}
    script, training = HfArgumentParser((ScriptArguments, TrainingArguments)).parse_dict(values, allow_extra_keys=False)
    c.same("sequence", c.workload["sequence"], script.block_size)
    if c.layout["precision"] == "fp32" and not c.layout.get("training", {}).get("adapter_rank"):
        c.same("type of weights, which is the checkpoint's untold", "float32", script.dtype)
    c.same("micro_batch", c.layout["micro_batch"], training.per_device_train_batch_size)
    c.same("micro_batches", c.micro_batches, training.gradient_accumulation_steps)
    c.same("global_batch", c.workload["global_batch"],
           training.per_device_train_batch_size * training.gradient_accumulation_steps * c.layout["data"])
    compare_trial(c, folder)
    c.same("precision that the Trainer hands on", {"fp32": "no"}.get(c.layout["precision"], c.layout["precision"]), training.mixed_precision)
    return script, training


def compare_recompute(c, training, by_accelerate=False):
    """The number of layers that recompute. Of FSDP's, all of them do by accelerate's plugin, and a part by the Trainer."""
    layers, layout = sum(c.layout["layers_per_stage"]), c.layout
    every = (training.activation_checkpointing_kwargs or {}).get("every_n_layers", 1)
    seen = layers if by_accelerate else -(-layers // every) if training.activation_checkpointing else 0
    planned = sum(layout.get("recomputed_layers") or [layers]) if layout["recompute"] == "full" else 0
    c.same("layers that recompute", planned, seen)
    c.same("recompute by both", False, by_accelerate and bool(training.activation_checkpointing))


def open_group(c):
    dist.init_process_group("fake", rank=0, world_size=c.ranks, store=FakeStore())
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(c.ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
