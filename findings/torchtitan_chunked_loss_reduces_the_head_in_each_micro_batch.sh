#!/usr/bin/env bash
# torchtitan 0.3.0 (torch 2.15.0): in a pipeline a loss by chunks gathers and reduces the head in each micro-batch, whatever the stage asks.
#
# Expected: a stage of torch.distributed.pipelining keeps its weights gathered and sums whole gradients, so that a step gathers and reduces once.
# Seen, a layer and a head on 4 ranks, 4 micro-batches: the layer is gathered once, and not reduced before the end. The head is gathered 4 times
#   and reduced 4 times: ChunkedLossWrapper switches resharding and reduction on again after its last chunk, in each micro-batch.
# Why it matters: the loss by chunks is the default. Llama 3 8B's head has 2 GiB of gradients in 32 bits, and a step of 64 micro-batches sends
#   them 64 times, from the stage that the others wait for. A layer's weights are sent once.
# Usage: ./torchtitan_chunked_loss_reduces_the_head_in_each_micro_batch.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 torchtitan==0.3.0
cat >"$folder/run.py" <<'END'
import collections
import importlib.metadata
import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

torch._utils._get_available_device_type = lambda: "cpu"  # torchtitan asks for it when it is imported
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.config import CompileConfig

RANKS, WIDTH, WORDS, TOKENS, MICRO_BATCHES = 4, 16, 80, 32, 4
assert torch.__version__.startswith("2.15.0") and importlib.metadata.version("torchtitan") == "0.3.0"
logging.disable(logging.WARNING)
dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
mesh = dist.device_mesh.init_device_mesh("cpu", (RANKS,))
NAMES = {WIDTH * WIDTH: "layer", WIDTH * WORDS: "head"}


class Traffic(TorchDispatchMode):
    """Gathers and reductions by the weight that has as many elements."""

    def __init__(self):
        super().__init__()
        self.seen = collections.Counter()

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        name = function._schema.name
        if name in ("c10d::_allgather_base_", "c10d::_reduce_scatter_base_"):
            size = max(one.numel() for one in arguments if isinstance(one, torch.Tensor))
            self.seen["gathers" if "gather" in name else "reductions", NAMES[size]] += 1
        return function(*arguments, **(named or {}))


class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x):
        return self.layer(x)  # the loss has the head


stage = Stage()
for module in (stage.layer, stage.head, stage):
    fully_shard(module, mesh=mesh, reshard_after_forward=False)  # torchtitan's default for pipelines
loss = ChunkedLossWrapper.Config(num_chunks=8, loss_fn=CrossEntropyLoss.Config()).build(compile_config=CompileConfig(enable=False))
loss.set_lm_head(stage.head)
labels = torch.zeros(1, TOKENS, dtype=torch.int64)
with Traffic() as traffic:
    # As torch.distributed.pipelining's stages do it: weights stay gathered, and gradients are reduced after the last backward.
    stage.set_reshard_after_backward(False)
    stage.set_requires_gradient_sync(False)
    for _ in range(MICRO_BATCHES):
        value, _ = loss(stage(torch.ones(1, TOKENS, WIDTH)), labels, torch.tensor(float(TOKENS)))
        value.backward()
for key, count in sorted(traffic.seen.items()):
    print(*key, count)
seen = traffic.seen
assert (seen["gathers", "layer"], seen["reductions", "layer"]) == (1, 0)
assert (seen["gathers", "head"], seen["reductions", "head"]) == (MICRO_BATCHES, MICRO_BATCHES)
dist.destroy_process_group()
END
"$folder/env/bin/python" "$folder/run.py"
