#!/usr/bin/env bash
# torch 2.15.0: torch.optim.Muon on a matrix that FSDP2 shares out exchanges data in each Newton-Schulz step, 12 times as much as a gather.
#
# Expected: Muon needs whole matrices, so it gathers each one once for a step, 2 bytes for each element in bf16.
# Seen, 8 ranks: for a square matrix a step runs 26 collectives. Their results have 24 bytes for each element, 12 times as many. A matrix of
#   4 times as many columns as rows takes 16 collectives with 6 bytes, one of 4 times as many rows 11 sums with 5. A sum moves its bytes twice.
#   The five Newton-Schulz steps are products of DTensors, and each product moves its operands or sums its result.
# Why it matters: an optimizer step exchanges 3 to 12 times the bytes of one gather of each matrix, in many calls that wait for each other.
# Usage: ./torch_muon_exchanges_in_each_newton_schulz_step.sh (half a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0
cat >"$folder/muon.py" <<'END'
import collections

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, placement_types
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

assert torch.__version__.startswith("2.15.0")
RANKS = 8
KINDS = {"all_gather_into_tensor": "gathers", "all_reduce": "sums", "reduce_scatter_tensor": "scattered sums"}
dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())


class Collectives(TorchDispatchMode):
    """Counts what a rank gets from collectives."""

    def __init__(self):
        super().__init__()
        self.calls, self.bytes = collections.Counter(), 0

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        result = function(*arguments, **(named or {}))
        kind = KINDS.get(function._schema.name.removeprefix("_c10d_functional::"))
        if kind:
            self.calls[kind] += 1
            self.bytes += result.numel() * result.element_size()
        return result


def exchange(piece, gathered, scattered, mesh, dimension):
    """An all-to-all as on GPUs; on CPUs a gather stands in for it."""
    seen.calls["all-to-alls"] += 1
    seen.bytes += piece.numel() * piece.element_size()
    shape = list(piece.shape)
    shape[gathered] *= RANKS
    shape[scattered] //= RANKS
    return piece.new_ones(shape)


placement_types.shard_dim_alltoall = exchange
print(f"torch {torch.__version__}, {RANKS} ranks")
for rows, columns, calls, expected in ((1024, 1024, 26, 23.75), (1024, 4096, 16, 6.25), (4096, 1024, 11, 5.0)):
    layer = fully_shard(torch.nn.Linear(columns, rows, bias=False), mesh=init_device_mesh("cpu", (RANKS,)))
    optimizer = torch.optim.Muon(layer.parameters(), lr=1e-3)
    layer.weight.grad = torch.ones_like(layer.weight)
    with Collectives() as seen:
        optimizer.step()
    each = seen.bytes / rows / columns
    print(f"{rows} x {columns}: {', '.join(f'{count} {kind}' for kind, count in seen.calls.items())}; {each:.2f} bytes for each element")
    assert sum(seen.calls.values()) == calls and abs(each - expected) < 0.1, (seen.calls, each)
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/muon.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
