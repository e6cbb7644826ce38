# SPDX-License-Identifier: Apache-2.0
"""Share of experts on each rank of a fake group, cut as mpt.torch and the exported trainer cut them. Usage: expert_shards_test.py, with PyTorch.

Both have dimension_to_cut(); the test takes it out of their files, as neither file loads without a plan."""
import ast
import pathlib

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ("python/mpt/torch/_parts.py", "frameworks/pytorch/trainer/split.py")


def cut_of(file):
    tree = ast.parse((ROOT / file).read_text())
    [function] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "dimension_to_cut"]
    names = {"DTensor": DTensor, "Shard": Shard, "nn": nn}
    exec(compile(ast.Module([function], []), file, "exec"), names)
    return names["dimension_to_cut"]


class Layer(nn.Module):
    def __init__(self, experts):
        super().__init__()
        self.up = nn.Parameter(torch.empty(experts, 576, 384))
        self.router = nn.Linear(384, experts, bias=False)
        self.norm = nn.LayerNorm(384)


def shares(ranks, rank, experts, cut):
    """Elements that a rank holds over an even share, by weight."""
    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    mesh = init_device_mesh("cpu", (ranks,))
    with torch.device("meta"):
        layer = Layer(experts)
    fully_shard(layer, mesh=mesh, shard_placement_fn=cut and (lambda weight: cut(weight, ranks)))
    held = {name: weight.to_local().numel() * ranks / weight.numel() for name, weight in layer.named_parameters()}
    dist.destroy_process_group()
    return held


def main():
    for file in FILES:
        cut = cut_of(file)
        for ranks, experts in ((64, 8), (48, 128), (12, 8), (96, 8)):
            for rank in (0, ranks - 1):
                held = shares(ranks, rank, experts, cut)
                assert all(share == 1.0 for share in held.values()), (file, ranks, experts, rank, held)
    whole_rows = shares(64, 0, 8, None)
    assert whole_rows["up"] == 8.0, whole_rows  # what FSDP2 does by itself
    print("each rank holds its share of experts, routers and norms")


if __name__ == "__main__":
    main()
