# SPDX-License-Identifier: Apache-2.0
"""The frameworks' own code refuses each planted fault of planted/*.json, and takes each sound file. rules_test.cpp asks MPT the same.

Usage: planted_test.py SOURCE_FOLDER, in the environment "accelerate" of ./scripts/install-frameworks; exit code 77 without it.
"""

import contextlib
import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest.mock

ROOT = pathlib.Path(sys.argv[1])
PYTHON = pathlib.Path(os.environ.get("MPT_FRAMEWORKS", ROOT / "build/frameworks")) / "accelerate/bin/python"
RANKS = 8


def ask_deepspeed(settings):
    from deepspeed.runtime import config

    config.dist.get_rank = lambda *_: 0
    config.dist.get_world_size = lambda *_: RANKS
    config.DeepSpeedConfig(copy.deepcopy(settings))


def ask_accelerate(settings):
    """What `accelerate launch` does with its YAML, and what the started processes make of their environment."""
    import torch
    from accelerate.commands import launch
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils import dataclasses
    from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

    dataclasses.is_cuda_available, torch.cuda.current_device = lambda: True, lambda: 0  # FSDP1 asks which GPU it has
    before = dict(os.environ)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file, tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        pathlib.Path("ds.json").write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}')
        file.write(json.dumps(settings))
        file.flush()
        try:
            arguments, defaults, from_file = launch._validate_launch_command(launch.launch_command_parser().parse_args(["--config_file", file.name, "train.py"]))
            if settings["distributed_type"] == "DEEPSPEED":  # as launch_command() does it
                told = [*defaults.deepspeed_config, *(["mixed_precision"] if from_file else [])]
                arguments.deepspeed_fields_from_accelerate_config = ",".join(told)
                os.environ.update(prepare_deepspeed_cmd_env(arguments)[1])
                dataclasses.DeepSpeedPlugin()
                return
            os.environ.update(prepare_multi_gpu_env(arguments))
            if settings["distributed_type"] == "MULTI_GPU":
                return
            version = dataclasses.FullyShardedDataParallelPlugin().fsdp_version
            if "parallelism_config" in settings:
                ParallelismConfig()._validate_accelerator(types.SimpleNamespace(
                    multi_device=True, is_fsdp2=version == 2, distributed_type="FSDP", is_main_process=False, num_processes=settings["num_processes"]))
        finally:
            os.environ.clear()
            os.environ.update(before)


def ask_trainer(settings):
    """What the Trainer makes of its arguments, and of DeepSpeed's file, which the plugin of accelerate has."""
    import transformers
    from transformers import training_args
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    training_args.is_torch_bf16_gpu_available = lambda: True
    others = ("model_name_or_path", "block_size")  # of the script's own classes
    given = {name: value for name, value in settings["train"].items() if name not in others}
    arguments = transformers.TrainingArguments(output_dir="out", use_cpu=True, report_to="none", **given)
    if "deepspeed" in settings:
        config = HfTrainerDeepSpeedConfig(copy.deepcopy(settings["deepspeed"]))
        with unittest.mock.patch.object(transformers.TrainingArguments, "world_size", RANKS):
            config.trainer_config_process(arguments)
        if config.mismatches:
            raise ValueError(config.mismatches)


def main():
    problems, counts = [], []
    for name, ask in (("deepspeed", ask_deepspeed), ("accelerate", ask_accelerate), ("trainer", ask_trainer)):
        planted = json.loads((ROOT / f"tests/frameworks/planted/{name}.json").read_text())
        counts.append(f"{name} refuses {len(planted['refused'])} files and takes {len(planted['sound'])}")
        for row in planted["refused"] + planted["sound"]:
            try:
                ask(row["config"])
                refused = None
            except Exception as error:  # noqa: BLE001: any refusal counts
                refused = error
            if (refused is None) == ("fault" in row):
                problems.append(f"{row.get('fault') or row['what']}: {name} {'takes it' if refused is None else f'refuses it: {refused}'}")
    print("\n".join(problems or counts))
    sys.exit(1 if problems else 0)


if "--inside" in sys.argv:
    main()
if not PYTHON.exists():
    print(f"skipped: {PYTHON} is not installed: ./scripts/install-frameworks")
    sys.exit(77)
sys.exit(subprocess.run([PYTHON, __file__, str(ROOT), "--inside"], check=False).returncode)
