#!/usr/bin/env bash
# accelerate 1.15.0, transformers 5.24.0, torch 2.15.0: a file for FSDP2 without fsdp_auto_wrap_policy shares out no layer by itself.
#
# Expected: FSDP2 over a model of transformers makes a unit of each decoder layer, as the Trainer's own `fsdp` argument does, so that a
#   GPU holds the whole weights of one or two layers at a time.
# Seen, two ranks, a Llama of four layers: without the key accelerate takes NO_WRAP. No layer is a unit, and while a layer runs, the weights
#   of all layers are whole on each rank (1.00 of them). With TRANSFORMER_BASED_WRAP four layers are units, and 0.25 are whole. Nothing warns.
# Why it matters: a file of five lines (distributed_type: FSDP, fsdp_version: 2, fsdp_reshard_after_forward: true) trains, shares out
#   moments and gradients between steps, and still needs a GPU that holds the model: 141 GB for 70 billion weights in 16 bits.
# Usage: ./accelerate_fsdp2_gathers_whole_models_without_a_policy.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0
cat >"$folder/ranks.py" <<'END'
import accelerate
import torch
import torch.distributed as dist
import transformers as hf
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin, fsdp_utils
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and accelerate.__version__ == "1.15.0"
accelerator = accelerate.Accelerator(cpu=True, mixed_precision="bf16")
accelerator.state.distributed_type = DistributedType.FSDP  # accelerate leaves FSDP out on CPU ranks
config = hf.LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, vocab_size=256)
seen = {}
for policy in (None, "transformer_based_wrap"):
    accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy=policy)
    model = fsdp_utils.fsdp2_prepare_model(accelerator, hf.LlamaForCausalLM(config))
    layers, whole = model.model.layers, []

    def look(*_):
        whole.append(sum(weight.numel() for weight in layers.parameters() if not isinstance(weight, DTensor)))

    for layer in layers:
        layer.self_attn.register_forward_pre_hook(look)
    tokens = torch.ones(1, 8, dtype=torch.long)
    model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
    seen[policy] = (sum(isinstance(layer, FSDPModule) for layer in layers), max(whole) / sum(weight.numel() for weight in layers.parameters()))
    if accelerator.process_index == 0:
        print(f"policy {policy}: {seen[policy][0]} of {len(layers)} layers are units; whole at once: {seen[policy][1]:.2f} of all layers' weights")
dist.destroy_process_group()
assert seen == {None: (0, 1.0), "transformer_based_wrap": (4, 0.25)}, seen
END
ACCELERATE_USE_FSDP=true FSDP_VERSION=2 "$folder/env/bin/python" -W ignore -m torch.distributed.run --nproc_per_node 2 "$folder/ranks.py" \
  2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
