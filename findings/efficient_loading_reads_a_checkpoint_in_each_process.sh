#!/usr/bin/env bash
# transformers 5.24.0, accelerate 1.15.0, torch 2.15.0: fsdp_cpu_ram_efficient_loading does nothing for a model made by from_config().
#
# Expected: with the switch one rank of a host has the weights on the CPU, and the others wait on the meta device for theirs.
# Seen, two ranks, a bf16 Llama, when accelerate begins to shard it by FSDP2: made by from_config() each rank holds 4.0 bytes of every
#   parameter on the CPU (fp32, by accelerate's upcast). Made by from_pretrained(None, config=config, state_dict={}), which draws the same
#   kind of weights, local rank 0 holds 4.0 and the other 0.0. transformers asks for the switch where it loads a checkpoint, and there alone.
# Why it matters: who trains from scratch with the switch that is there to save host memory needs it eight times on a host of eight GPUs:
#   2.26 TB for 70 billion parameters.
# Usage: ./efficient_loading_needs_from_pretrained.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0
cat >"$folder/ranks.py" <<'END'
import os

import accelerate
import torch
import torch.distributed as dist
import transformers as hf
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin, fsdp_utils

torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and accelerate.__version__ == "1.15.0"
accelerator = accelerate.Accelerator(cpu=True, mixed_precision="bf16")
rank = accelerator.process_index
# accelerate leaves FSDP out on CPU ranks.
accelerator.state.distributed_type = DistributedType.FSDP
accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap",
                                                               cpu_ram_efficient_loading=True)
config = hf.LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
                        vocab_size=256, dtype="bfloat16")
held = []
send = fsdp_utils.fsdp2_load_full_state_dict


def look(accelerator, model, weights, **options):
    on_cpu = {id(t): t.numel() * t.element_size() for t in weights.values() if t.device.type == "cpu"}
    held.append(sum(on_cpu.values()) / sum(t.numel() for t in weights.values()))
    return send(accelerator, model, weights, **options)


fsdp_utils.fsdp2_load_full_state_dict = look
made = {"from_config": lambda: hf.AutoModelForCausalLM.from_config(config),
        "from_pretrained": lambda: hf.LlamaForCausalLM.from_pretrained(None, config=config, state_dict={})}
for how, make in made.items():
    held.clear()
    fsdp_utils.fsdp2_prepare_model(accelerator, make())
    everyone = [None, None]
    dist.all_gather_object(everyone, held[0])
    if rank == 0:
        print(f"{how}: bytes of a parameter on the CPU of ranks 0 and 1: {everyone[0]:.1f} {everyone[1]:.1f}")
    assert everyone == {"from_config": [4.0, 4.0], "from_pretrained": [4.0, 0.0]}[how], (how, everyone)
dist.destroy_process_group()
END
ACCELERATE_USE_FSDP=true FSDP_VERSION=2 FSDP_CPU_RAM_EFFICIENT_LOADING=true "$folder/env/bin/python" -W ignore -m torch.distributed.run \
  --nproc_per_node 2 "$folder/ranks.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
