#!/usr/bin/env bash
# transformers 5.24.0, accelerate 1.15.0, torch 2.15.0: fsdp_cpu_ram_efficient_loading saves nothing where a checkpoint is loaded.
#
# Expected: with the switch one rank of a host reads the weights, and the others wait on the meta device for theirs.
# Seen, two ranks, a bf16 Llama, bytes of a parameter that each rank holds on the CPU when accelerate begins to shard it by FSDP2:
#   from_pretrained(folder)                   4.0 and 4.0: each rank reads the checkpoint, and accelerate widens it to fp32
#   from_config(config)                       4.0 and 4.0
#   from_pretrained(None, config, {})         4.0 and 0.0: weights that are in no file wait on the meta device
#   from_pretrained(None, config, weights on local rank 0, {} elsewhere)   4.0 and 0.0, and the loss of the first, digit for digit
# Why it matters: who fine-tunes all weights of 70 billion parameters on a host of eight GPUs needs 2.26 TB of its memory, with the switch
#   that is there to need 282 GB. The last line is the way out.
# Usage: ./efficient_loading_reads_a_checkpoint_in_each_process.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0
cat >"$folder/ranks.py" <<'END'
import pathlib
import sys

import accelerate
import torch
import torch.distributed as dist
import transformers as hf
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin, fsdp_utils
from safetensors.torch import load_file

torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and accelerate.__version__ == "1.15.0"
folder = pathlib.Path(sys.argv[1])
accelerator = accelerate.Accelerator(cpu=True, mixed_precision="bf16")
rank = accelerator.process_index
# accelerate leaves FSDP out on CPU ranks.
accelerator.state.distributed_type = DistributedType.FSDP
accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap",
                                                               cpu_ram_efficient_loading=True)
config = hf.LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
                        vocab_size=256, dtype="bfloat16")
if rank == 0:
    hf.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
dist.barrier()
held = []
send = fsdp_utils.fsdp2_load_full_state_dict


def look(accelerator, model, weights, **options):
    on_cpu = {id(t): t.numel() * t.element_size() for t in weights.values() if t.device.type == "cpu"}
    held.append(sum(on_cpu.values()) / sum(t.numel() for t in weights.values()))
    return send(accelerator, model, weights, **options)


def read():
    return load_file(folder / "model.safetensors") if rank == 0 else {}


fsdp_utils.fsdp2_load_full_state_dict = look
made = {"from_pretrained(folder)": (lambda: hf.LlamaForCausalLM.from_pretrained(folder), [4.0, 4.0]),
        "from_config(config)": (lambda: hf.AutoModelForCausalLM.from_config(config), [4.0, 4.0]),
        "from_pretrained(None, config, {})": (lambda: hf.LlamaForCausalLM.from_pretrained(None, config=config, state_dict={}), [4.0, 0.0]),
        "from_pretrained(None, config, weights on rank 0)":
            (lambda: hf.LlamaForCausalLM.from_pretrained(None, config=config, state_dict=read()), [4.0, 0.0])}
words = torch.arange(32).reshape(1, 32)
losses = {}
for how, (make, expected) in made.items():
    held.clear()
    model = fsdp_utils.fsdp2_prepare_model(accelerator, make())
    with torch.no_grad():
        losses[how] = model(input_ids=words, labels=words).loss.item()
    everyone = [None, None]
    dist.all_gather_object(everyone, held[0])
    if rank == 0:
        print(f"{how}: bytes of a parameter on the CPU of ranks 0 and 1: {everyone[0]:.1f} {everyone[1]:.1f}, loss {losses[how]:.6f}")
    assert everyone == expected, (how, everyone)
assert losses["from_pretrained(folder)"] == losses["from_pretrained(None, config, weights on rank 0)"], losses
dist.destroy_process_group()
END
ACCELERATE_USE_FSDP=true FSDP_VERSION=2 FSDP_CPU_RAM_EFFICIENT_LOADING=true "$folder/env/bin/python" -W ignore -m torch.distributed.run \
  --nproc_per_node 2 "$folder/ranks.py" "$folder/model" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
