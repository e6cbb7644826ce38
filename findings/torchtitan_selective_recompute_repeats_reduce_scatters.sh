#!/usr/bin/env bash
# torchtitan 0.3.0 (torch 2.15.0): selective recompute scatters a second time what its list says is saved.
#
# Expected: the list of selective recompute has reduce_scatter_tensor, so that a backward repeats no reduce-scatter of tensor parallelism.
# Seen, a product and a scatter of its result over two ranks: by the operator of the list the backward runs none. torchtitan's tensor ranks
#   scatter by spmd_types, its default, which calls another operator, c10d::_reduce_scatter_base_. The list lacks it: the backward repeats it.
# Why it matters: with sequence parallelism a layer scatters twice and gathers twice in its forward. All four run again: 12 collectives of a
#   layer in place of 8, where the list promises 10 at most. Over tensor ranks that wait for their links it costs as full recompute does.
# Usage: ./torchtitan_selective_recompute_repeats_reduce_scatters.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 torchtitan==0.3.0
cat >"$folder/run.py" <<'END'
import importlib.metadata

import spmd_types
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import reduce_scatter_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

torch._utils._get_available_device_type = lambda: "cpu"  # torchtitan asks for it when it is imported
from torchtitan.distributed.activation_checkpoint import SelectiveAC

RANKS, WIDTH = 2, 8
assert torch.__version__.startswith("2.15.0") and importlib.metadata.version("torchtitan") == "0.3.0"
dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
policy = SelectiveAC.Config().build()
print("in the list of what is saved:", [str(op) for op in policy.get_save_ops() if "reduce_scatter" in str(op)])


class Scatters(TorchDispatchMode):
    """Names of the reduce-scatters that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        if "reduce_scatter" in function._schema.name:
            self.names.append(function._schema.name)
        return function(*arguments, **(named or {}))


class Row(nn.Module):
    """A product whose result is scattered, as torchtitan's tensor ranks do it, or by the operator of the list."""

    def __init__(self, of_list):
        super().__init__()
        self.product, self.of_list = nn.Linear(WIDTH, WIDTH, bias=False), of_list

    def forward(self, x):
        y = self.product(x)
        if self.of_list:
            return torch.nn.functional.silu(reduce_scatter_tensor(y, "sum", 0, dist.group.WORLD) * 2)
        return torch.nn.functional.silu(spmd_types.redistribute(y, dist.group.WORLD, src=spmd_types.P, dst=spmd_types.S(0)) * 2)


def in_backward(of_list):
    block = policy._wrap_block(Row(of_list))
    with Scatters() as forward:
        result = block(torch.ones(4, WIDTH, requires_grad=True))
    with Scatters() as backward:
        result.sum().backward()
    print("forward:", forward.names, "backward:", backward.names)
    return len(backward.names)


assert in_backward(of_list=True) == 0
assert in_backward(of_list=False) == 1
dist.destroy_process_group()
END
"$folder/env/bin/python" "$folder/run.py"
