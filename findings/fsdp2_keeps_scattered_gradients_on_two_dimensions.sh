#!/usr/bin/env bash
# torch 2.15.0: on a mesh of two dimensions FSDP2 keeps every layer's scattered gradient to the end of a backward, also where the first has one rank.
#
# Expected: a mesh of (1, 8) trains as one of 8. With accumulation a layer's scattered gradient is added to its sum and freed.
# Seen, 16 layers on 8 ranks, in the second of two backwards, where it reaches the first layer: with a mesh of 8 no layer's scattered gradient
#   lives. With a mesh of (1, 8) those of all 15 others do, with their sums. They wait for a sum over replicas, and there are none.
# Why it matters: scripts that name both dimensions for every layout hold another copy of a rank's gradients in fp32. It is there when activations
#   are freed, so it decides the peak of runs with full recomputation and short sequences.
# Usage: ./fsdp2_keeps_scattered_gradients_on_two_dimensions.sh (half a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0
cat >"$folder/mesh.py" <<'END'
import weakref

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

assert torch.__version__.startswith("2.15.0")
LAYERS, RANKS = 16, 8
dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())


class Scattered(TorchDispatchMode):
    """Notes the results of reduce-scatters, by their storages."""

    def __init__(self):
        super().__init__()
        self.storages = []

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        if function._schema.name == "c10d::_reduce_scatter_base_":
            self.storages.append(weakref.ref(arguments[0].untyped_storage()))
        return function(*arguments, **(named or {}))


def alive_at_the_first_layer(shape, names):
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64, bias=False) for _ in range(LAYERS)))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model(torch.ones(4, 64)).sum().backward()
    seen, scattered = [], Scattered()
    with scattered:
        hidden = torch.ones(4, 64)
        for number, layer in enumerate(model):
            hidden = layer(hidden)
            if number == 0:
                hidden.register_hook(lambda _: seen.append(sum(storage() is not None for storage in scattered.storages)))
        hidden.sum().backward()
    return seen[0]


one, two = alive_at_the_first_layer((RANKS,), ("shard",)), alive_at_the_first_layer((1, RANKS), ("replicate", "shard"))
print(f"torch {torch.__version__}, {LAYERS} layers: scattered gradients of {one} live with a mesh of ({RANKS},), of {two} with (1, {RANKS})")
assert (one, two) == (0, LAYERS - 1), (one, two)
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/mesh.py"
