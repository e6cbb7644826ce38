# SPDX-License-Identifier: Apache-2.0
"""torchtitan: its configuration classes, parallel dimensions, pipeline split, schedule and parallelized model read the export."""

import json
import logging
import os
import sys

from judging import apart, judge, verdict_of

import stubs  # noqa: E402

stubs.use("flash_attn", "flash_attn_interface")
stubs.flash_attention()
stubs.cpu_ranks()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torchtitan.tools.utils as titan_utils  # noqa: E402

# Its converters ask whether the plan's GPU has the products. No GPU need be there.
titan_utils.has_cuda_capability = lambda *least: torch.cuda.get_device_capability() >= least
from torch.distributed.fsdp import FSDPModule  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper  # noqa: E402
from torchtitan.config import ConfigManager, Configurable  # noqa: E402
from torchtitan.distributed import ParallelDims, utils as dist_utils  # noqa: E402
from torchtitan_fields import compare_model  # noqa: E402

logging.disable(logging.CRITICAL)


def configuration(folder):
    """The exported function, as `-m torchtitan.train --module mpt_torchtitan --config mpt_plan` calls it."""
    sys.path.insert(0, folder)
    return ConfigManager().parse_args(["--module", "mpt_torchtitan", "--config", "mpt_plan"])


def compare_trial(c):
    """The configuration of the trial that mpt-plan prints, and its first batch."""
    with open(os.path.join(os.path.dirname(__file__), "../../../frameworks/torchtitan/framework.json"), encoding="utf-8") as file:
        words = [word.replace("@steps@", "50") for word in json.load(file)["trial"]["arguments"]]
    config = ConfigManager().parse_args(["--module", "mpt_torchtitan", "--config", "mpt_plan", *words])
    c.same("steps of a trial", 50, config.training.steps)
    c.same("weights that a trial's optimizer trains", [".*"], [group.pattern for group in config.optimizer.param_groups])
    tokenizer = config.tokenizer.build(tokenizer_path=config.hf_assets_path)
    loader = config.dataloader.build(dp_world_size=1, dp_rank=0, tokenizer=tokenizer, seq_len=config.training.seq_len, local_batch_size=1,
                                     snapshot_every_n_steps=None)
    inputs, labels = next(iter(loader))
    c.same("tokens of a trial", [[1, c.workload["sequence"]]] * 3, [list(part.shape) for part in (inputs["input"], inputs["positions"], labels)])


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
    c.same("CUDA graphs", c.execution["graphs"], not training.disable_cuda_graphs)
    c.same("layers compiled", c.execution["elementwise"] == "compiled" or layout["overlap_tensor"], config.compile.enable)
    c.same("bytes of a weight", c.execution["weight_bytes"], {"float32": 4, "bfloat16": 2}[training.dtype])
    c.same("bytes of a reduced gradient", c.execution["reduced_bytes"], {"float32": 4}[training.mixed_precision_reduce])
    c.same("type of products", {"fp32": "float32"}.get(layout["precision"], "bfloat16"), training.mixed_precision_param)
    if layout["tensor"] > 1:
        c.same("sequence_parallel", layout["sequence_parallel"], parallelism.enable_sequence_parallel)
    compare_products(c, config)


# Classes of its converters by the plan's precision.
NARROW = {"fp8": "Float8", "mxfp8": "MXFP8", "nvfp4": "NVFP4"}


def compare_products(c, config):
    """Which products run in 8 or 4 bits: of the layers, of the experts, and of the head."""
    quantized = sorted({type(one).__qualname__.split(".")[0] for _, one, _, _ in config.model_spec.model.traverse(Configurable.Config, recurse=True)
                        if any(kind in type(one).__qualname__ for kind in NARROW.values())})
    planned = [NARROW[c.layout["precision"]]] if c.layout["precision"] in NARROW else []
    c.same("products in 8 or 4 bits", planned, sorted({kind for kind in NARROW.values() if any(kind in name for name in quantized)}))
    model = config.model_spec.model
    narrow = bool(planned)
    c.same("head in 8 or 4 bits", narrow and c.execution["fp8_head"], type(model.lm_head).__qualname__ != "Linear.Config")
    if c.model["moe"] is not None:
        experts = next(layer.moe.routed_experts.inner_experts for layer in model.layers if layer.moe)
        c.same("experts in 8 bits", narrow, any(kind in type(experts).__qualname__ for kind in NARROW.values()))


def compare_meshes(c, config, dims):
    """Shards and replicas as torchtitan's meshes have them."""
    zero, shard = c.layout["zero"], dims.dp_shard * dims.cp
    c.same("shard", c.layout["shard"] if zero > 0 else 1, shard)
    c.same("replicas", c.replicas, dims.dp_replicate * shard)
    if zero > 0:
        resharded = {"always": True, "never": False}.get(config.parallelism.fsdp_reshard_after_forward, not dims.pp_enabled)
        c.same("zero", zero, 3 if resharded else 2)


def whole_backwards(order):
    """An input gradient right before its weight gradient is a whole backward pass."""
    joined = []
    for action in order:
        if "W" in action and joined and joined[-1] == action.replace("W", "I"):
            joined[-1] = action.replace("W", "B")
        else:
            joined.append(action)
    return joined


def compare_order(c, row, rank):
    """The computations of a pipeline rank, one by one: the plan's schedule is the one that PyTorch runs."""
    letters = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W"}
    held = [part for action in row if action for part in action.sub_actions or [action]]
    run = [f"{part.stage_index}{letters[part.computation_type.name]}{part.microbatch_index}" for part in held
           if part.computation_type.name in letters]
    with open(os.path.join(c.folder, "schedule.csv"), encoding="utf-8") as file:
        planned = whole_backwards(file.read().split("\n")[rank].split(","))
    run = whole_backwards(run)
    first = next((i for i, pair in enumerate(zip(planned, run)) if pair[0] != pair[1]), min(len(planned), len(run)))
    c.same(f"order of pipeline rank {rank} from action {first}", planned[first:first + 4], run[first:first + 4])


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
    if order and hasattr(schedule, "_stages"):  # GPipe and 1F1B run without a list
        compare_order(c, order[rank], rank)
        actions = [part for action in order[rank] if action for part in action.sub_actions or [action]]
        c.same(f"stages in the schedule of pipeline rank {rank}", planned, sorted({action.stage_index for action in actions}))
    return parts


def compare_layers(c, layers):
    """What torchtitan made of the decoder layers of this rank."""
    c.same("layers are sharded", [True], sorted({isinstance(layer, FSDPModule) for layer in layers}))
    state = layers[0]._get_fsdp_state()
    c.same("type of weights in compute", {"fp32": torch.float32}.get(c.layout["precision"], torch.bfloat16), state._mp_policy.param_dtype)
    c.same("gradients reduced in", torch.float32, state._mp_policy.reduce_dtype)
    wrapped = sum(any(isinstance(module, CheckpointWrapper) for module in layer.modules()) for layer in layers)
    c.same("layers wrapped for recompute", len(layers) if c.layout["recompute"] != "none" else 0, wrapped)


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
    model.verify_module_protocol()
    loss = config.loss.build(compile_config=config.compile)
    if dims.pp_enabled:
        parts = build_pipeline(c, config, dims, model, loss, pipeline_rank)
    else:
        parts = [config.model_spec.parallelize_fn(
            model, parallel_dims=dims, training=config.training, parallelism=config.parallelism, compile_config=config.compile,
            ac_config=config.activation_checkpoint, dump_folder="")]
    compare_layers(c, [layer for part in parts for layer in part.layers.values()])
    degree = dims.get_mesh("batch").size() if dims.dp_enabled else 1
    c.same("steps of accumulation", c.micro_batches if c.layout["pipeline"] == 1 else 1,
           config.training.global_batch_size // (config.training.local_batch_size * degree))


def in_folder(c, folder, config, rank):
    c.folder = folder
    build(c, config, rank)


def check(folder, c):
    os.chdir("/")
    stubs.gpu(c.plan["cluster"]["device"]["name"])
    c.folder = folder
    config = configuration(folder)
    compare_configuration(c, config)
    compare_model(c, config.model_spec.model)
    compare_trial(c)
    for rank in sorted({0, c.layout["pipeline"] - 1}):
        verdict = apart(lambda: verdict_of(lambda comparison: in_folder(comparison, folder, config, rank), c.plan))
        if verdict["outcome"] == "refused":
            raise RuntimeError(f"pipeline rank {rank}: {verdict['message']}")
        c.differences += verdict["differences"]


judge(check)
