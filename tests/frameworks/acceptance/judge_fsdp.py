# SPDX-License-Identifier: Apache-2.0
"""PyTorch: mpt_mesh.py builds its mesh and shards a small model with fully_shard, on a fake process group of the plan's size."""

import importlib.util
import os

from judging import judge

import stubs  # noqa: E402

stubs.use()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper  # noqa: E402
from torch.distributed import device_mesh  # noqa: E402
from torch.distributed.fsdp import FSDPModule  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402


def on_cpu(original):
    """The mesh of the script, of CPU ranks: here is no GPU."""
    return lambda device, *arguments, **options: original("cpu", *arguments, **options)


def load(folder):
    spec = importlib.util.spec_from_file_location("mpt_mesh", os.path.join(folder, "mpt_mesh.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.init_device_mesh = on_cpu(device_mesh.init_device_mesh)
    return module


class Decoder(torch.nn.Module):
    """As many layers as the plan's model, small ones."""

    def __init__(self, layers):
        super().__init__()
        self.embedding = torch.nn.Embedding(64, 64)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64, bias=False) for _ in range(layers))


def check(folder, c):
    dist.init_process_group("fake", rank=0, world_size=c.ranks, store=FakeStore())
    module = load(folder)
    mesh = module.make_mesh()
    c.same("tensor", c.layout["tensor"], mesh["tp"].size())
    c.same("pipeline", c.layout["pipeline"], mesh["pp"].size())
    c.same("context", c.layout["context"], mesh["cp"].size())
    c.same("micro_batch", c.layout["micro_batch"], module.MICRO_BATCH)
    c.same("micro_batches", c.micro_batches, module.MICRO_BATCHES)
    model = Decoder(c.model["layers"])
    module.shard(model, model.layers, mesh)
    layers = model.layers
    state = layers[0]._get_fsdp_state()
    c.same("layers recomputed", sum(c.recomputed_of_stages), sum(isinstance(layer, CheckpointWrapper) for layer in layers))
    c.same("layers are sharded", True, all(isinstance(layer, FSDPModule) for layer in layers))
    c.same("shard", c.layout["shard"], state._fsdp_param_group.mesh_info.shard_mesh_size)
    c.same("zero", c.layout["zero"], 3 if state._fsdp_param_group._reshard_after_forward else 2)
    c.same("type of weights in compute", {"fp16": torch.float16}.get(c.layout["precision"], torch.bfloat16), state._mp_policy.param_dtype)
    c.same("gradients reduced in", torch.float32, state._mp_policy.reduce_dtype)
    offload = type(state._fsdp_param_group.offload_policy).__name__
    c.same("offload_optimizer", c.layout["offload_optimizer"], offload == "CPUOffloadPolicy")


judge(check)
