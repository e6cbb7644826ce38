#!/usr/bin/env bash
# torch 2.15.0: FSDP2 with reshard_after_forward=False gathers the weights in each micro-batch, not once in a step.
#
# Expected: without resharding FSDP2 is ZeRO 2. Ranks hold whole weights, and gather them once for a step, after the optimizer has changed them.
# Seen, 4 layers, 4 micro-batches, 8 ranks: 16 gathers in a step. The argument keeps weights from forward to backward. Each backward frees them.
#   set_reshard_after_backward(False) up to the last micro-batch makes it 4.
# Why it matters: with 4 micro-batches and gradients summed in 32 bits a step moves a third more bytes than ZeRO 2 is said to, and each
#   micro-batch begins by waiting for its first layer. Trainers that accumulate do not call the second function.
# Usage: ./fsdp2_without_resharding_gathers_in_each_micro_batch.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.3.5
cat >"$folder/run.py" <<'END'
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

RANKS, LAYERS, WIDTH, MICRO_BATCHES = 8, 4, 64, 4
assert torch.__version__.startswith("2.15.0")
dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
mesh = dist.device_mesh.init_device_mesh("cpu", (RANKS,))


class Gathers(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        self.count += function._schema.name == "c10d::_allgather_base_"
        return function(*arguments, **(named or {}))


def gathers_of_a_step(keeps_after_backward):
    """All-gathers of the second step, whose weights changed in the first one's optimizer step."""
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    for layer in model:
        fully_shard(layer, mesh=mesh, reshard_after_forward=False)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    if keeps_after_backward:
        model.set_reshard_after_backward(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        with Gathers() as gathers:
            for number in range(MICRO_BATCHES):
                if keeps_after_backward and number == MICRO_BATCHES - 1:
                    model.set_reshard_after_backward(True)
                model(torch.ones(2, WIDTH)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if keeps_after_backward:
            model.set_reshard_after_backward(False)
    return gathers.count


seen, once = gathers_of_a_step(False), gathers_of_a_step(True)
print(f"{LAYERS} layers, {MICRO_BATCHES} micro-batches: {seen} gathers with reshard_after_forward=False, {once} with set_reshard_after_backward(False), too")
assert (seen, once) == (LAYERS * MICRO_BATCHES, LAYERS)
dist.destroy_process_group()
END
"$folder/env/bin/python" "$folder/run.py"
