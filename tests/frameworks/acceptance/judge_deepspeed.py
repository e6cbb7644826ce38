# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed: its configuration class reads deepspeed.json as deepspeed.initialize() does, before it builds an engine."""

import json
import os
import types

from judging import judge

import stubs  # noqa: E402

stubs.use()
import deepspeed  # noqa: E402
from deepspeed.runtime.config import DeepSpeedConfig  # noqa: E402


def pipeline_unit(c):
    """What PipelineModule's grid tells the configuration: its data-parallel size."""
    return types.SimpleNamespace(get_data_parallel_world_size=lambda: c.layout["data"], get_data_parallel_rank=lambda: 0,
                                 get_model_parallel_world_size=lambda: c.layout["tensor"], get_model_parallel_rank=lambda: 0)


def mesh(c, settings):
    """The mesh that deepspeed.initialize() builds where the file names the degree of sequence parallelism."""
    if "sequence_parallel_size" not in settings or "data_parallel_size" not in settings:
        return None
    return {"data_parallel": settings["data_parallel_size"], "sequence_parallel": settings["sequence_parallel_size"]}


class Mesh:
    def __init__(self, degrees):
        self.degrees = degrees

    def __getitem__(self, name):
        return self

    def get_group(self, mesh_dim=None):
        return self.degrees[mesh_dim]


def compare(c, config):
    layout, zero = c.layout, config.zero_config
    c.same("micro_batch", layout["micro_batch"], config.train_micro_batch_size_per_gpu)
    c.same("micro_batches", c.micro_batches, config.gradient_accumulation_steps)
    c.same("zero", layout["zero"], int(zero.stage))
    c.same("tensor", layout["tensor"], max(1, config.tensor_parallel_config.autotp_size) if layout["pipeline"] == 1 else layout["tensor"])
    c.same("offload_optimizer", layout["offload_optimizer"], zero.offload_optimizer is not None)
    if layout["zero"] > 0 and c.replicas > 1:
        c.same("overlap_gradient_reduce", layout["overlap_gradient_reduce"], bool(zero.overlap_comm))
    precision = "fp16" if config.float16_config.enabled else "bf16" if config.bfloat16_config.enabled else "fp32"
    c.same("precision", layout["precision"], precision)
    if precision == "bf16":
        c.same("gradients summed in", "fp32" if c.execution["bf16_gradient_bytes"] != 2 else "bf16", config.grad_accum_dtype or "bf16")
    c.same("gradient_clipping", 0.0, config.gradient_clipping)  # a plan does not hold it


def check(folder, c):
    path = os.path.join(folder, "deepspeed.json")
    with open(path, encoding="utf-8") as file:
        settings = json.load(file)
    deepspeed.comm.get_world_size = lambda group=None: c.ranks if group is None else group
    deepspeed.comm.get_rank = lambda group=None: 0
    degrees = mesh(c, settings)
    config = DeepSpeedConfig(path, pipeline_unit(c) if c.layout["pipeline"] > 1 else None, mesh_device=Mesh(degrees) if degrees else None)
    compare(c, config)
    degree = degrees["sequence_parallel"] if degrees else 1
    c.same("context", c.layout["context"], degree)


judge(check)
