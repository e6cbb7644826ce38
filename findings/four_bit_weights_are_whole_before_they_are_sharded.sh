#!/usr/bin/env bash
# transformers 5.24.0, accelerate 1.15.0, peft 0.21.2, bitsandbytes 0.50.2, torch 2.15.0: QLoRA's weights are whole on each GPU before FSDP2
# shards them, and stay there until the last one is cut.
#
# Expected: with fsdp_cpu_ram_efficient_loading weights wait on the CPU of one rank, and a GPU sees no more than its share and a layer.
# Seen, two ranks, a Llama in nf4 with bnb_4bit_quant_storage bfloat16, as FSDP2 needs it:
#   device_map of transformers where none is given: the current device, on each rank, although FSDP's loading is on;
#   bytes of the adapted model that each rank holds when sharding begins: 1.0 of it;
#   the most while accelerate cuts shares: 1.5 of it, whole weights and half of them; after it 0.5.
#   DeepSpeed's ZeRO 3, which frees each weight when it is cut, begins with all of them, too (not shown).
# Why it matters: 70 billion parameters in 4 bits are 37 GB. Two GPUs of 24 GB could train their shares, 19 GB each, and never start: they
#   need 37 GB, then 56 GB, each. More GPUs do not help. transformers 4.57.6 moved each weight to the CPU when it was quantised
#   (modeling_utils.py:777, read, not run); version 5 loads by other code.
# Usage: ./four_bit_weights_are_whole_before_they_are_sharded.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0 \
  peft==0.21.2 bitsandbytes==0.50.2
cat >"$folder/ranks.py" <<'END'
import gc
import sys
from unittest import mock

import accelerate
import bitsandbytes
import peft
import torch
import torch.distributed as dist
import transformers as hf
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin, fsdp_utils
from transformers.quantizers.quantizer_bnb_4bit import Bnb4BitHfQuantizer

torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and accelerate.__version__ == "1.15.0"
assert peft.__version__ == "0.21.2" and bitsandbytes.__version__ == "0.50.2"
folder = sys.argv[1]
accelerator = accelerate.Accelerator(cpu=True, mixed_precision="bf16")
rank = accelerator.process_index
# accelerate leaves FSDP out on CPU ranks.
accelerator.state.distributed_type = DistributedType.FSDP
accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap",
                                                               cpu_ram_efficient_loading=True)
config = hf.LlamaConfig(hidden_size=512, intermediate_size=1024, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4,
                        vocab_size=256, dtype="bfloat16")
if rank == 0:
    hf.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
dist.barrier()
bits = hf.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                             bnb_4bit_compute_dtype=torch.bfloat16, bnb_4bit_quant_storage=torch.bfloat16)
with mock.patch("torch.cuda.is_available", return_value=True), mock.patch("torch.cuda.current_device", return_value=rank):
    device_map = Bnb4BitHfQuantizer(bits).update_device_map(None)
assert device_map == {"": rank}, device_map


def live():
    """Bytes of all tensors of this process, each storage once."""
    gc.collect()
    tensors = [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor)]
    local = [t._local_tensor if hasattr(t, "_local_tensor") else t for t in tensors]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in local if t.device.type == "cpu"}.values())


before = live()
model = hf.LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, quantization_config=bits)
model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules="all-linear"), autocast_adapter_dtype=False)
bytes_of_model = sum(p.numel() * p.element_size() for p in model.parameters())
assert sum(p.device.type == "meta" for p in model.parameters()) == 0
held = [(live() - before) / bytes_of_model]
shard = torch.distributed.fsdp.fully_shard


def count(*modules, **options):
    result = shard(*modules, **options)
    held.append((live() - before) / bytes_of_model)
    return result


torch.distributed.fsdp.fully_shard = count
model = fsdp_utils.fsdp2_prepare_model(accelerator, model)
after = (live() - before) / bytes_of_model
everyone = [None, None]
dist.all_gather_object(everyone, [device_map[""], *(round(x, 1) for x in (held[0], max(held), after))])
if rank == 0:
    for r, (device, first, most, last) in enumerate(everyone):
        print(f"rank {r}: device_map {device}; of the model's bytes {first} when sharding begins, at most {most}, {last} after it")
assert everyone == [[0, 1.0, 1.5, 0.5], [1, 1.0, 1.5, 0.5]], everyone
dist.destroy_process_group()
END
ACCELERATE_USE_FSDP=true FSDP_VERSION=2 FSDP_CPU_RAM_EFFICIENT_LOADING=true "$folder/env/bin/python" -W ignore -m torch.distributed.run \
  --nproc_per_node 2 "$folder/ranks.py" "$folder/model" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
