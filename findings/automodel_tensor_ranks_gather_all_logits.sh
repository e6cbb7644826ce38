#!/usr/bin/env bash
# nemo-automodel 0.7.0 (torch 2.15.0): with tensor parallelism each rank gathers the logits of the whole vocabulary in fp32 for the default loss.
#
# Expected: the head's tensor-parallel plan gives logits that are split over the vocabulary (ColwiseParallel, Shard(-1), no local output),
#   so that the loss needs two numbers of each token from other ranks, as in torch's loss_parallel.
# Seen, 64 tokens, a vocabulary of 4,096 on 8 ranks: MaskedCrossEntropy casts the rank's logits to fp32 and gathers them: 4,096 columns, 1,048,576
#   bytes, and the backward keeps as many. loss_parallel gathers none and keeps an eighth.
# Why it matters: three such copies live at once in the backward, 12 bytes for each token and word. With Llama 3.2's vocabulary and four sequences
#   of 4,096 tokens that is 23.5 GiB on each rank, for any number of tensor ranks. A rank that fits by its share does not fit.
# Usage: ./automodel_tensor_ranks_gather_all_logits.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 nemo-automodel==0.7.0
cat >"$folder/logits.py" <<'END'
import importlib.metadata

import torch
import torch.distributed as dist
import torch.nn.functional as F
from nemo_automodel.components.distributed import optimized_tp_plans as plans
from nemo_automodel.components.loss.masked_ce import MaskedCrossEntropy
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import loss_parallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

TOKENS, WORDS, RANKS = 64, 4096, 8
assert torch.__version__.startswith("2.15.0") and importlib.metadata.version("nemo-automodel") == "0.7.0"
dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
mesh = init_device_mesh("cpu", (RANKS,))
head = plans._parallelize_llama(None, sequence_parallel=False)["lm_head"]
print("plan of the head:", type(head).__name__, head.output_layouts, "local output:", head.use_local_output)
assert head.output_layouts[0] == Shard(-1) and not head.use_local_output


class Gathered(TorchDispatchMode):
    """Counts the bytes that all-gathers give."""

    bytes = 0

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        if DTensor in types:
            return NotImplemented
        result = function(*arguments, **(named or {}))
        if function._schema.name == "_c10d_functional::all_gather_into_tensor":
            self.bytes += result.nbytes
        return result


def gathered_and_kept(loss):
    part = torch.randn(TOKENS, WORDS // RANKS, dtype=torch.bfloat16, requires_grad=True)
    logits, labels, kept = DTensor.from_local(part, mesh, [Shard(-1)]), torch.randint(WORDS, (TOKENS,)), {}

    def keep(tensor):
        own = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        kept[own.untyped_storage()._cdata] = own.untyped_storage().nbytes()
        return tensor

    with Gathered() as gathered, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss(logits, labels)
    return gathered.bytes, max(kept.values())


def split(logits, labels):
    with loss_parallel():
        return F.cross_entropy(logits.float(), labels, reduction="sum")


default, parallel = gathered_and_kept(MaskedCrossEntropy()), gathered_and_kept(split)
print(f"MaskedCrossEntropy gathers {default[0]:,} bytes and keeps {default[1]:,}; loss_parallel gathers {parallel[0]:,} and keeps {parallel[1]:,}")
whole = 4 * TOKENS * WORDS
assert default == (whole, whole) and parallel == (0, whole // RANKS), (default, parallel)
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/logits.py"
