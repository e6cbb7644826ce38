# SPDX-License-Identifier: Apache-2.0
"""torchtitan: its configuration classes, parallel dimensions, pipeline split, schedule and parallelized model read the export.

torchtitan 0.3 takes configurations as Python functions. A TOML file of 0.2 counts as a difference; its keys are tried all the same.
"""

import dataclasses
import glob
import importlib
import logging
import os
import sys
import tomllib

from judging import apart, judge, verdict_of

import stubs  # noqa: E402

stubs.use()
stubs.cpu_ranks()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402
from torchtitan.components.loss import CrossEntropyLoss  # noqa: E402
from torchtitan.config import ConfigManager, CompileConfig, ParallelismConfig, TrainingConfig  # noqa: E402
from torchtitan.distributed import ParallelDims, utils as dist_utils  # noqa: E402
from torchtitan.distributed import activation_checkpoint  # noqa: E402
from torchtitan.models.common.config_utils import decoder_vocab_size  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

logging.disable(logging.CRITICAL)


def section(c, name, kind, table):
    """One section of a TOML file; keys that torchtitan does not have any more are differences."""
    known = {field.name for field in dataclasses.fields(kind)}
    for key in sorted(set(table) - known):
        c.same(f"{name}.{key}", table[key], "torchtitan has no such key")
    return kind(**{key: value for key, value in table.items() if key in known})


def configuration_from_toml(path, c):
    with open(path, "rb") as file:
        toml = tomllib.load(file)
    model = toml.pop("model")
    spec = importlib.import_module(f"torchtitan.models.{model['name']}").model_registry(model["flavor"])
    checkpoint = toml.pop("activation_checkpoint")
    recompute = {"full": "FullAC", "selective": "SelectiveAC"}.get(checkpoint.pop("mode"))
    for key, value in checkpoint.items():
        c.same(f"activation_checkpoint.{key}", value, "torchtitan has no such key")
    recompute = getattr(activation_checkpoint, recompute).Config() if recompute else None
    sections = {"training": TrainingConfig, "parallelism": ParallelismConfig, "compile": CompileConfig}
    for name in sorted(set(toml) - set(sections)):
        c.same(name, toml.pop(name), "torchtitan has no such section")
    values = {name: section(c, name, sections[name], table) for name, table in toml.items()}
    if toml["parallelism"]["pipeline_parallel_degree"] > 1:
        c.same("training.disable_cuda_graphs", True, values["training"].disable_cuda_graphs)
        values["training"].disable_cuda_graphs = True
    loss = CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(spec))
    return Trainer.Config(model_spec=spec, activation_checkpoint=recompute, loss=loss, **values)


def configuration(folder, c):
    scripts = [path for path in glob.glob(os.path.join(folder, "*.py")) if "torchtitan" in os.path.basename(path)]
    if not scripts:
        c.same("form of the configuration", "a Python function", "torchtitan.toml")
        return configuration_from_toml(os.path.join(folder, "torchtitan.toml"), c)
    sys.path.insert(0, folder)
    try:
        name = os.path.splitext(os.path.basename(scripts[0]))[0]
        sys.modules.pop(name, None)
        module = importlib.import_module(name)
        functions = [key for key, value in vars(module).items() if callable(value) and getattr(value, "__module__", "") == name]
        return ConfigManager().parse_args(["--module", name, "--config", functions[-1]])
    finally:
        sys.path.remove(folder)


def compare_configuration(c, config):
    parallelism, training, layout = config.parallelism, config.training, c.layout
    c.same("tensor", layout["tensor"], parallelism.tensor_parallel_degree)
    c.same("pipeline", layout["pipeline"], parallelism.pipeline_parallel_degree)
    c.same("context", layout["context"], parallelism.context_parallel_degree)
    c.same("expert", layout["expert"], parallelism.expert_parallel_degree)
    c.same("sequence", c.workload["sequence"], training.seq_len)
    c.same("global_batch", c.workload["global_batch"], training.global_batch_size)
    if layout["pipeline"] > 1:
        c.same("micro_batch", layout["micro_batch"], parallelism.pipeline_parallel_microbatch_size)
        c.same("micro_batches", c.micro_batches, training.local_batch_size // parallelism.pipeline_parallel_microbatch_size)
    else:
        c.same("micro_batch", layout["micro_batch"], training.local_batch_size)
    c.same("offload_optimizer", layout["offload_optimizer"], training.enable_cpu_offload)
    recompute = {"FullAC": "full", "SelectiveAC": "selective", "NoneType": "none"}.get(
        type(config.activation_checkpoint).__qualname__.split(".")[0], "other")
    c.same("recompute", layout["recompute"], recompute)
    c.same("layers recomputed in each stage", c.recomputed_of_stages, c.layers_of_stages if recompute == "full" else [0] * c.stages)
    c.same("asynchronous tensor parallelism", layout["overlap_tensor"], config.compile.enable_async_tensor_parallel)
    quantized = sorted({type(one).__qualname__.split(".")[0] for _, one, _, _ in config.model_spec.model.traverse(object)
                        if "Float8" in type(one).__qualname__ or "MXFP8" in type(one).__qualname__})
    c.same("products in 8 bits", layout["precision"] in ("fp8", "mxfp8"), bool(quantized))


def compare_model(c, model):
    c.same("layers", c.model["layers"], len(model.layers))
    c.same("hidden", c.model["hidden"], model.dim)
    c.same("vocab", c.model["vocab"], model.vocab_size)
    c.same("next_token_layers", c.model["next_token_layers"], int(getattr(model, "num_mtp_layers", 0) or 0))


def compare_meshes(c, config, dims):
    """Shards and replicas as torchtitan's meshes have them."""
    zero, shard = c.layout["zero"], dims.dp_shard * dims.cp
    c.same("shard", c.layout["shard"] if zero > 0 else 1, shard)
    c.same("replicas", c.replicas, dims.dp_replicate * shard)
    if zero > 0:
        resharded = {"always": True, "never": False}.get(config.parallelism.fsdp_reshard_after_forward, not dims.pp_enabled)
        c.same("zero", zero, 3 if resharded else 2)


def build_pipeline(c, config, dims, model, loss, rank):
    spec = config.model_spec
    if not spec.pipelining_fn:
        raise RuntimeError(f"Pipeline Parallel is enabled but {spec.name} does not support pipelining")
    schedule, parts, _, _ = spec.pipelining_fn(
        model, parallel_dims=dims, training=config.training, parallelism=config.parallelism, compile_config=config.compile,
        ac_config=config.activation_checkpoint, dump_folder="", device=torch.device("cpu"), model_config=spec.model,
        parallelize_fn=spec.parallelize_fn, loss_fn=loss)
    stages = getattr(schedule, "_stages", None) or [schedule._stage]
    held = sorted(stage.stage_index for stage in stages)
    planned = [stage for stage, of in enumerate(c.plan["schedule"]["rank_of_stage"]) if of == rank]
    c.same(f"stages of pipeline rank {rank}", planned, held)
    layers = {stage.stage_index: len(getattr(part, "layers", {})) for stage, part in zip(stages, parts)}
    c.same(f"layers of the stages of pipeline rank {rank}", {stage: c.layers_of_stages[stage] for stage in planned}, layers)
    order = getattr(schedule, "pipeline_order", None)
    if order:
        actions = [part for action in order[rank] if action for part in action.sub_actions or [action]]
        c.same(f"stages in the schedule of pipeline rank {rank}", planned, sorted({action.stage_index for action in actions}))


def build(c, config, pipeline_rank):
    """Everything that Trainer does before it allocates weights, on one rank of a fake process group."""
    rank = pipeline_rank * (c.ranks // c.layout["pipeline"])
    dist.init_process_group("fake", rank=rank, world_size=c.ranks, store=FakeStore())
    dims = ParallelDims.from_config(config.parallelism, c.ranks)
    dims.build_mesh()
    dist_utils.set_spmd_backend(config.parallelism.spmd_backend)
    config.model_spec.model.update_from_config(config=config)
    if pipeline_rank == 0:
        compare_meshes(c, config, dims)
    with torch.device("meta"):
        model = config.model_spec.model.build()
    loss = config.loss.build(compile_config=config.compile)
    if dims.pp_enabled:
        build_pipeline(c, config, dims, model, loss, pipeline_rank)
    else:
        config.model_spec.parallelize_fn(
            model, parallel_dims=dims, training=config.training, parallelism=config.parallelism, compile_config=config.compile,
            ac_config=config.activation_checkpoint, dump_folder="")


def check(folder, c):
    os.chdir("/")
    config = configuration(folder, c)
    compare_configuration(c, config)
    compare_model(c, config.model_spec.model)
    for rank in sorted({0, c.layout["pipeline"] - 1}):
        verdict = apart(lambda: verdict_of(lambda comparison: build(comparison, config, rank), c.plan))
        if verdict["outcome"] == "refused":
            raise RuntimeError(f"pipeline rank {rank}: {verdict['message']}")
        c.differences += verdict["differences"]


judge(check)
