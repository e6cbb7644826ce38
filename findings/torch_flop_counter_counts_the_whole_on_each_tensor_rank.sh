#!/usr/bin/env bash
# torch 2.15.0: under tensor parallelism FlopCounterMode counts the whole product on each rank, and under FSDP2 what the rank runs.
#
# Expected: on a rank the counter gives what this rank runs. Summed over ranks that is the work of the batch.
# Seen, four gated feed-forward layers, forward and backward of 256 tokens, 603,979,776 operations in one process.
#   FSDP2: each of 2 ranks with half the tokens counts 0.50 of it, each of 4 ranks 0.25. The sum is right.
#   Tensor parallelism: each of 2 ranks counts 1.00 and runs half, each of 4 counts 1.00 and runs a quarter.
#   Both on a mesh of 2 x 2: each counts 0.50 and runs a quarter. That is neither the rank's work nor the model's.
# Controls: the rank's parts of the weights as plain tensors, with the same outputs: 0.50 and 0.25.
# Why: the counter sees an operator on DTensors first, with the shapes of the whole. Operators on the parts run below it, where it is off.
#   The weights of FSDP2 are plain tensors while layers run.
# Why it matters: utilisation by this count is too high by the number of tensor ranks. The counter serves on one GPU and under FSDP2,
#   and nothing says that tensor parallelism changes what it means.
# Usage: ./torch_flop_counter_counts_the_whole_on_each_tensor_rank.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6
cat >"$folder/count.py" <<'END'
import os

import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.flop_counter import FlopCounterMode

TOKENS, WIDTH, INNER, LAYERS = 256, 64, 512, 4
WHOLE = 3 * 2 * TOKENS * LAYERS * 3 * WIDTH * INNER  # a forward and two products backward for each


class Layer(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.gate, self.up = (torch.nn.Linear(WIDTH, inner, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(inner, WIDTH, bias=False)

    def forward(self, x):
        return self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))


class Plain(torch.nn.Module):
    """A rank's parts of the weights as plain tensors. The sum over ranks has a copy of the gradient as its own."""

    def __init__(self, layer):
        super().__init__()
        self.part = Layer(layer.gate.weight.to_local().shape[0])
        for name in ("gate", "up", "down"):
            getattr(self.part, name).weight.data = getattr(layer, name).weight.to_local().detach().clone()

    def forward(self, x):
        result = self.part(x)
        total = result.detach().clone()
        torch.distributed.all_reduce(total)
        return result + (total - result.detach())


def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(*(Layer(INNER) for _ in range(LAYERS)))


def shard(model, mesh):
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def split(model, mesh):
    for layer in model:
        parallelize_module(layer, mesh, {"gate": ColwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def count(model, batch):
    """Operations of a forward and a backward pass as a part of the whole, and the outputs."""
    batch = batch.clone().requires_grad_()  # so that the first layer has both products, too
    with FlopCounterMode(display=False) as counter:
        output = model(batch)
        output.sum().backward()
    return counter.get_total_flops() / WHOLE, output.detach()


def run(rank, ranks, port):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (ranks,))
    batch = torch.randn(TOKENS, WIDTH, generator=torch.Generator().manual_seed(1))
    parts = torch.distributed.device_mesh.init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("data", "tensor"))
    alone = count(build(), batch)
    data = count(shard(build(), mesh), batch.chunk(ranks)[rank])
    model = split(build(), mesh)
    tensor, plain = count(model, batch), count(torch.nn.Sequential(*(Plain(layer) for layer in model)), batch)
    results = {"one process": alone, "FSDP2": data, "tensor ranks": tensor, "plain parts": plain}
    if ranks == 4:
        results["FSDP2 and tensor ranks"] = both = count(
            shard(split(build(), parts["tensor"]), parts["data"]), batch.chunk(2)[parts["data"].get_local_rank()])
        assert both[0] == 1 / 2, "the behaviour changed"
    for name, (counted, output) in results.items():
        if rank == ranks - 1:
            print(f"rank {rank} of {ranks}, {name}: counts {counted:.2f} of {WHOLE:,}", flush=True)
        if len(output) == TOKENS:
            assert torch.allclose(output, alone[1], atol=1e-5)
    assert alone[0] == 1 and data[0] == plain[0] == 1 / ranks
    assert tensor[0] == 1, "the behaviour changed"
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    print("torch", torch.__version__, flush=True)
    assert torch.__version__.startswith("2.15.0")
    for ranks, port in ((2, 29643), (4, 29644)):
        torch.multiprocessing.spawn(run, (ranks, port), nprocs=ranks)
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/count.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
