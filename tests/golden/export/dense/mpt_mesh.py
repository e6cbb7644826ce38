# Note: step time and memory are those of megatron-core, not of pytorch: mpt-plan --framework pytorch plans for it.
"""llama3-70b on dgx-h100:8: tp4+sp pp4 dp4 zero1 mbs1 interleaved x5, 64 ranks."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

MICRO_BATCH = 1  # sequences
MICRO_BATCHES = 32  # per data-parallel rank and step


def make_mesh():
    """The plan's ranks, the outermost axis first."""
    return init_device_mesh("cuda", (4, 1, 4, 1, 4), mesh_dim_names=("pp", "dp_replicate", "dp_shard", "cp", "tp"))


def shard(model, layers, mesh):
    """FSDP over the mesh's data-parallel axes: `layers`, the model's ModuleList, one by one, then the rest of it."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in layers:
        fully_shard(layer, mesh=mesh["dp_replicate", "dp_shard"], mp_policy=policy, reshard_after_forward=False)
    return fully_shard(model, mesh=mesh["dp_replicate", "dp_shard"], mp_policy=policy, reshard_after_forward=False)
