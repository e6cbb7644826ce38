# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer with FSDP2: accelerate's launcher, plugin and degrees, and the Trainer's arguments, read the export."""


from judging import judge
from trainer_judging import compare_recompute, launch_environment, open_group, training_arguments

import torch  # noqa: E402
from accelerate import ParallelismConfig  # noqa: E402
from accelerate.utils import FullyShardedDataParallelPlugin  # noqa: E402
from accelerate.utils.launch import prepare_multi_gpu_env  # noqa: E402
from transformers_fields import compare_model  # noqa: E402


def compare_plugin(c, plugin):
    layout = c.layout
    c.same("version of FSDP", 2, plugin.fsdp_version)
    c.same("zero", layout["zero"], 3 if plugin.reshard_after_forward else 2)
    c.same("offload_optimizer", layout["offload_optimizer"], type(plugin.cpu_offload).__name__ == "CPUOffloadPolicy")
    c.same("layers are wrapped", "transformer_auto_wrap_policy", getattr(plugin.auto_wrap_policy, "__name__", "none"))
    if layout["precision"] in ("bf16", "fp16"):
        kind = {"bf16": torch.bfloat16, "fp16": torch.float16}[layout["precision"]]
        plugin.set_mixed_precision(layout["precision"])
        c.same("type of weights in compute", kind, plugin.mixed_precision_policy.param_dtype)
        c.same("bytes of a reduced gradient", c.execution["reduced_bytes"], plugin.mixed_precision_policy.reduce_dtype.itemsize)


def compare_degrees(c, degrees):
    shard = degrees.dp_shard_size * degrees.cp_size
    c.same("context", c.layout["context"], degrees.cp_size)
    c.same("tensor", c.layout["tensor"], degrees.tp_size)
    c.same("data", c.layout["data"], degrees.data_parallel_size)
    c.same("shard", c.layout["shard"], shard)
    c.same("ranks", c.ranks, degrees.total_size)
    if degrees.cp_size > 1:
        c.same("context_method", {"ring": "alltoall"}.get(c.layout["context_method"]), degrees.cp_handler.cp_comm_strategy)
    mesh = degrees.build_device_mesh("cpu")
    c.same("ranks that share states", shard, mesh["dp_shard_cp"].size())


def check(folder, c):
    _, args = launch_environment(c, folder, prepare_multi_gpu_env)
    c.same("mixed precision", {"fp32": "no"}.get(c.layout["precision"], c.layout["precision"]), args.mixed_precision)
    open_group(c)
    plugin = FullyShardedDataParallelPlugin()
    compare_plugin(c, plugin)
    compare_degrees(c, ParallelismConfig())
    script, training = training_arguments(c, folder)
    compare_recompute(c, training, bool(plugin.activation_checkpointing))
    c.same("gradients are shared out with each micro-batch", True,
           training.accelerator_config.gradient_accumulation_kwargs["sync_each_batch"])
    compare_model(c, folder, script.config_name)


judge(check)
