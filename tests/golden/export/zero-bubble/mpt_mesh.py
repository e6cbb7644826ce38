# Note: step time and memory are those of megatron-core, not of pytorch: mpt-plan --framework pytorch plans for it.
"""llama3-8b on dgx-h100:1: tp1 pp4 dp2 zero1 mbs1 zb-v x2, 8 ranks. For PyTorch 2.15."""

import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import ScheduleZBVZeroBubble

MESH = [4, 1, 2, 1, 1]
AXES = ["pp", "dp_replicate", "dp_shard", "cp", "tp"]
MODEL = "meta-llama/Llama-3.1-8B"  # on the hub, or a file beside this one
SEQUENCE = 4096  # tokens
GLOBAL_BATCH = 32  # sequences per step
MICRO_BATCH = 1  # sequences
MICRO_BATCHES = 16  # per data-parallel rank and step
PRECISION = "bf16"
RESHARD_AFTER_FORWARD = False
LAYERS = [1, 4, 5, 5, 5, 5, 5, 2]  # of each stage, in model order
RECOMPUTED = [0, 0, 0, 0, 0, 0, 0, 0]  # of them, the first ones
SCHEDULE = "zb-v"
RANK_OF_STAGE = [0, 1, 2, 3, 3, 2, 1, 0]


def make_mesh():
    """The plan's ranks, the outermost axis first."""
    return init_device_mesh("cuda", tuple(MESH), mesh_dim_names=tuple(AXES))


def shard(model, layers, mesh, stage=0):
    """FSDP over the mesh's data-parallel axes: the ModuleList `layers` of a stage one by one, then the rest."""
    for i in range(RECOMPUTED[stage]):
        layers[i] = checkpoint_wrapper(layers[i])
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    options = dict(mesh=mesh["dp_replicate", "dp_shard"], mp_policy=policy, reshard_after_forward=RESHARD_AFTER_FORWARD)
    for layer in layers:
        fully_shard(layer, **options)
    return fully_shard(model, **options)


def stages_of(pipeline_rank):
    """Which stages a pipeline rank holds."""
    return [stage for stage, rank in enumerate(RANK_OF_STAGE) if rank == pipeline_rank]


def make_schedule(stages, loss):
    """The plan's schedule of the PipelineStages of this rank."""
    return ScheduleZBVZeroBubble(stages, MICRO_BATCHES, loss_fn=loss)
