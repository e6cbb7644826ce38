#!/usr/bin/env bash
# torchtitan 0.3.0 (torch 2.15.0): a model with tied embeddings gathers the shared table twice, and holds it twice while it is gathered.
#
# Expected: embedding and head are one weight, and FSDP2 gathers it once. distributed/fsdp.py puts both into one unit "to avoid duplicate all-gathers".
# Seen, Qwen3's debugmodel with a table of 2,048 x 256 on 8 ranks: the unit of embedding, norm and head gathers 1,048,832 elements, two tables
#   and the norm. The model is built with one weight. model.parallelize() makes a new weight for each module, so FSDP2 shares out two.
#   init_states() makes them one again afterwards. By then FSDP2 has two entries, which gather the same shard each.
# Why it matters: all Qwen3 and Llama 3.2 models of up to 4 billion weights are tied. Their tables are large: 0.7 GiB in 16 bits for Qwen3 4B.
#   Another one is held while the unit is gathered, which is where the loss has its peak, and sent in each gather and each sum.
# Usage: ./torchtitan_gathers_tied_weights_twice.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 torchtitan==0.3.0
cat >"$folder/tied.py" <<'END'
import logging
import types

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

torch._utils._get_available_device_type = lambda: "cpu"  # torchtitan asks for it when it is imported
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed import ParallelDims
from torchtitan.models.qwen3 import model_registry

logging.disable(logging.WARNING)
RANKS = 8
dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
parallelism = ParallelismConfig(data_parallel_shard_degree=RANKS)
dims = ParallelDims.from_config(parallelism, RANKS)
dims.build_mesh()
spec = model_registry("debugmodel", attn_backend="flex")
spec.model.update_from_config(config=types.SimpleNamespace(parallelism=parallelism))
with torch.device("meta"):
    model = spec.model.build()
table, norm = model.lm_head.weight.numel(), model.norm.weight.numel()
print("embedding and head are one weight when built:", model.tok_embeddings.weight is model.lm_head.weight)
assert model.tok_embeddings.weight is model.lm_head.weight
model = spec.parallelize_fn(model, parallel_dims=dims, training=TrainingConfig(), parallelism=parallelism,
                            compile_config=CompileConfig(enable=False), ac_config=None, dump_folder="")
print("after parallelize:", model.tok_embeddings.weight is model.lm_head.weight)
model.to_empty(device="cpu")
with torch.no_grad():
    model.init_states()
print("after init_states:", model.tok_embeddings.weight is model.lm_head.weight)
assert model.tok_embeddings.weight is model.lm_head.weight


class Gathered(TorchDispatchMode):
    """Counts the elements that all-gathers give."""

    elements = 0

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        if function._schema.name == "c10d::_allgather_base_":
            self.elements += arguments[0].numel()
        return function(*arguments, **(named or {}))


with Gathered() as gathered:
    model.lm_head.unshard()
print(f"the unit of embedding, norm and head gathers {gathered.elements} elements; the table has {table}, the norm {norm}")
assert gathered.elements == 2 * table + norm, "the behaviour changed"
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/tied.py"
