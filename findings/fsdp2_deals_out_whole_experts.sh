#!/usr/bin/env bash
# torch 2.15.0, transformers 5.24.0, accelerate 1.15.0: FSDP2 deals out whole experts. Ranks beyond their number hold none, and gathers move padding.
#
# Expected: on 32 ranks each holds a 32nd of every weight, as of a dense model, and a gather moves the layer's own bytes.
# Seen, Mixtral with 8 experts: transformers stacks them in one tensor, FSDP2 cuts its first dimension, and accelerate names no other one. On 6
#   ranks the first four hold two experts, the others none, and a gather moves 12. On 32 ranks the first 8 hold one, and a gather moves 32.
# Why it matters: experts of Mixtral 8x7B with fp32 weights, gradients and moments take 84 GiB on 8 ranks of 32, where even shares took 21 on each.
#   More GPUs change nothing, and each gather sends 4 times the bytes. torchtitan and AutoModel cut another dimension by shard_placement_fn.
# Usage: ./fsdp2_deals_out_whole_experts.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0
cat >"$folder/experts.py" <<'END'
import types

import accelerate
import torch
import torch.distributed as dist
import transformers as hf
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

EXPERTS, HIDDEN, WIDTH = 8, 64, 96
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and accelerate.__version__ == "1.15.0"
config = hf.MixtralConfig(hidden_size=HIDDEN, intermediate_size=WIDTH, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=4, vocab_size=64,
                          num_local_experts=EXPERTS, num_experts_per_tok=2)


class Gathered(TorchDispatchMode):
    """Counts the elements that all-gathers give."""

    elements = 0

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        if function._schema.name == "c10d::_allgather_base_":
            self.elements += arguments[0].numel()
        return function(*arguments, **(named or {}))


def held_and_gathered(rank, ranks):
    """Experts whose weights a rank holds, and those that a gather of the layer moves."""
    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    sizes = ParallelismConfig(dp_shard_size=ranks)
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap", cpu_ram_efficient_loading=False)
    accelerator = types.SimpleNamespace(state=types.SimpleNamespace(fsdp_plugin=plugin), torch_device_mesh=sizes.build_device_mesh("cpu"), parallelism_config=sizes,
                                        mixed_precision="no", is_main_process=False, device=torch.device("cpu"))
    model = hf.MixtralForCausalLM(config)
    plugin.set_auto_wrap_policy(model)
    layer = fsdp2_prepare_model(accelerator, model).model.layers[0]
    held = sum(weight.to_local().numel() for name, weight in layer.named_parameters() if ".experts." in name)
    rest = sum(-(-weight.shape[0] // ranks) * ranks * weight[0].numel() for name, weight in layer.named_parameters() if ".experts." not in name)
    with Gathered() as gathered:
        layer.unshard()
    dist.destroy_process_group()
    one = 3 * HIDDEN * WIDTH
    return held // one, (gathered.elements - rest) // one


seen = {ranks: [held_and_gathered(rank, ranks) for rank in (0, ranks - 1)] for ranks in (4, 6, 32)}
for ranks, (first, last) in seen.items():
    print(f"{ranks} ranks: the first holds {first[0]} of {EXPERTS} experts, the last {last[0]}; a gather moves {first[1]}")
assert seen == {4: [(2, 8), (2, 8)], 6: [(2, 12), (0, 12)], 32: [(1, 32), (0, 32)]}, seen
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/experts.py"
