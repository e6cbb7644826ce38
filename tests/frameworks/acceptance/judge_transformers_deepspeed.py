# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer with DeepSpeed: accelerate's launcher and plugin, and the Trainer's arguments, read the export."""

import json
import os

from judging import judge
from trainer_judging import compare_recompute, launch_environment, open_group, training_arguments

os.environ["DS_ACCELERATOR"] = "cpu"
from accelerate import ParallelismConfig  # noqa: E402
from accelerate.utils import DeepSpeedPlugin  # noqa: E402
from accelerate.utils.launch import prepare_deepspeed_cmd_env  # noqa: E402
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig  # noqa: E402
from training import compare_training  # noqa: E402
from transformers_fields import compare_model  # noqa: E402


def compare_plugin(c, plugin):
    layout = c.layout
    c.same("zero", layout["zero"], int(plugin.zero_stage))
    c.same("micro_batch", layout["micro_batch"], plugin.get_value("train_micro_batch_size_per_gpu"))
    c.same("micro_batches", c.micro_batches, plugin.get_value("gradient_accumulation_steps"))
    c.same("offload_optimizer", "cpu" if layout["offload_optimizer"] else None,
           plugin.get_value("zero_optimization.offload_optimizer.device"))
    c.same("offloaded weights", None, plugin.get_value("zero_optimization.offload_param.device"))
    for name in ("fp16", "bf16"):
        c.same(name, layout["precision"] == name, bool(plugin.get_value(f"{name}.enabled", False)))


def compare_degrees(c):
    """Ulysses: accelerate builds the groups from the environment that the script sets."""
    degree = 1
    if os.environ.get("ACCELERATE_USE_PARALLELISM_CONFIG") == "true":
        degrees = ParallelismConfig()
        degree = degrees.sp_size
        c.same("context parallelism of another kind", 1, degrees.cp_size)
        c.same("sequences may have the plan's length", True,
               degrees.sp_handler.sp_seq_length_is_variable or degrees.sp_handler.sp_seq_length == c.workload["sequence"])
    c.same("context", c.layout["context"], degree)
    c.same("shard", c.layout["shard"] if c.layout["zero"] > 0 else c.replicas, c.replicas)


def compare_trainer(c, folder, training):
    """The Trainer fills DeepSpeed's file in from its own arguments, and refuses values that contradict them."""
    config = HfTrainerDeepSpeedConfig(os.path.join(folder, "deepspeed.json"))
    config.trainer_config_process(training)
    if config.mismatches:
        c.same("DeepSpeed's file agrees with the Trainer's arguments", [], config.mismatches)
    with open(os.path.join(folder, "deepspeed.json"), encoding="utf-8") as file:
        batch = json.load(file).get("train_batch_size")
    c.same("global_batch", c.workload["global_batch"], batch if batch is not None else c.workload["global_batch"])


def check(folder, c):
    command, _ = launch_environment(c, folder, prepare_deepspeed_cmd_env)
    c.same("accelerate starts the processes of this node itself", None, command)
    open_group(c)
    compare_plugin(c, DeepSpeedPlugin())
    compare_degrees(c)
    script, training = training_arguments(c, folder)
    compare_recompute(c, training)
    compare_trainer(c, folder, training)
    compare_model(c, folder, script.config_name)
    if os.path.basename(folder).startswith("trained"):
        compare_training(c, "train_trainer.py", folder, {"ACCELERATE_USE_CPU": "true"})


judge(check)
