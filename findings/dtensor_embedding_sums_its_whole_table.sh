#!/usr/bin/env bash
# torch 2.15.0: under FSDP2 each tensor rank accumulates the gradient of the whole embedding table, not of its rows, until gradients are reduced.
#
# Expected: with RowwiseParallel a rank of 2 holds half of the table, and the gradient of that half.
# Seen, a table of 1,024 x 64 on 2 tensor ranks and 2 data ranks, bf16 with sums in fp32: the rank's part of the weight has 512 rows. Its
#   accumulated gradient has all 1,024 rows in fp32, replicated: twice the bytes that it needs. A column-wise head has its 512 rows.
#   The gradient becomes the rank's part only when it is reduced. Pipelines and accumulation without a reduction keep it whole till then.
# Why it matters: 8 tensor ranks of Llama 3 405B hold 8.4 GB of such sums on the first stage of a pipeline, instead of 1.05 GB.
# Usage: ./dtensor_embedding_sums_its_whole_table.sh (half a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0
cat >"$folder/table.py" <<'END'
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

assert torch.__version__.startswith("2.15.0")
ROWS, COLUMNS = 1024, 64
dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
model = nn.Sequential(nn.Embedding(ROWS, COLUMNS), nn.Linear(COLUMNS, ROWS, bias=False))
parallelize_module(model, mesh["tensor"], {"0": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
                                           "1": ColwiseParallel(input_layouts=Shard(1), use_local_output=True)})
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for part in model:
    fully_shard(part, mesh=mesh["data"], mp_policy=policy, reshard_after_forward=False)
fully_shard(model, mesh=mesh["data"], mp_policy=policy, reshard_after_forward=False)
model.set_requires_gradient_sync(False)
model(torch.zeros(2, 8, dtype=torch.int64)).sum().backward()

rows = {}
for name, part in (("table", model[0]), ("head", model[1])):
    (held,) = part._get_fsdp_state()._fsdp_param_group.fsdp_params
    gradient = held.unsharded_accumulated_grad
    assert gradient.dtype == torch.float32
    rows[name] = held.unsharded_param.to_local().shape[0], gradient.to_local().shape[0], str(gradient.placements[0])
print(f"torch {torch.__version__}, rows of the rank's weight and of its accumulated gradient: {rows}")
assert rows == {"table": (ROWS // 2, ROWS, "R"), "head": (ROWS // 2, ROWS // 2, "S(0)")}, rows
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/table.py"
