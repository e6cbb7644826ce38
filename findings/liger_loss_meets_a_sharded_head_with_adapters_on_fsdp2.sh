#!/usr/bin/env bash
# accelerate 1.15.0, peft 0.21.2, liger-kernel 0.8.5 (transformers 5.24.0, torch 2.15.0): Liger's loss fails on FSDP2 as soon as a model has adapters.
#
# Expected: use_liger_kernel trains a model with LoRA on FSDP2 as it trains it in full: its loss reads lm_head.weight, which FSDP2 has gathered.
# Seen, a Llama whose head and embedding are two weights, on two ranks: in full training the loss gets the whole weight. With adapters it gets DTensor's shard, and the
#   first product raises "got mixed torch.Tensor and DTensor".
# Why: the loss never calls lm_head. FSDP2 gathers that weight only with another module of its group. accelerate puts head and final norm in a group.
#   It looks for the norm among the base model's children, and finds none beneath PEFT's wrapper. So the head forms a group alone.
# Why it matters: Liger's loss is the usual switch against logits, and LoRA on FSDP2 the usual way to tune a model that one GPU does not hold.
#   TRL 1.16.0 gathers the weight itself.
# Usage: ./liger_loss_meets_a_sharded_head_with_adapters_on_fsdp2.sh (about two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0 peft==0.21.2 liger-kernel==0.8.5
cat >"$folder/run.py" <<'END'
import importlib.metadata
import types

import peft
import torch
import torch.distributed as dist
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from liger_kernel.transformers import _apply_liger_kernel_to_instance
from liger_kernel.transformers.model import llama as ligers
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import LlamaConfig, LlamaForCausalLM

VERSIONS = {"torch": "2.15.0", "transformers": "5.24.0", "accelerate": "1.15.0", "peft": "0.21.2", "liger-kernel": "0.8.5"}
assert all(importlib.metadata.version(name).startswith(version) for name, version in VERSIONS.items())
dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
config = LlamaConfig(vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, tie_word_embeddings=False)
tokens = torch.zeros(1, 8, dtype=torch.int64)
its_own = ligers.LigerForCausalLMLoss


def heads(adapts):
    """The weight that Liger's loss gets in a forward, and what the loss then raises."""
    seen = []

    def loss(**given):
        seen.append(given["lm_head_weight"])
        return its_own(**given)

    ligers.LigerForCausalLMLoss = loss
    model = LlamaForCausalLM(config)
    _apply_liger_kernel_to_instance(model=model, rope=False, rms_norm=False, swiglu=False, cross_entropy=False, fused_linear_cross_entropy=True)
    if adapts:
        model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["q_proj", "v_proj"]))
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, reshard_after_forward=True, auto_wrap_policy="transformer_based_wrap", cpu_ram_efficient_loading=False)
    sizes = ParallelismConfig(dp_shard_size=2)
    accelerator = types.SimpleNamespace(state=types.SimpleNamespace(fsdp_plugin=plugin), torch_device_mesh=sizes.build_device_mesh("cpu"),
                                        parallelism_config=sizes, mixed_precision="no", is_main_process=False, device=torch.device("cpu"))
    plugin.set_auto_wrap_policy(model)
    try:
        fsdp2_prepare_model(accelerator, model)(input_ids=tokens, labels=tokens)
        raised = ""
    except Exception as error:  # without a GPU Triton has no driver, which ends a loss that came so far
        raised = str(error)
    return seen[0], raised


whole, raised = heads(adapts=False)
print("in full training:", type(whole).__name__, tuple(whole.shape))
assert not isinstance(whole, DTensor) and "DTensor" not in raised, raised
shard, raised = heads(adapts=True)
print("with adapters:", type(shard).__name__, tuple(shard.to_local().shape), "of", tuple(shard.shape), "and", raised[:80])
assert isinstance(shard, DTensor) and shard.to_local().shape[0] == 48 and "mixed torch.Tensor and DTensor" in raised
dist.destroy_process_group()
END
"$folder/env/bin/python" "$folder/run.py"
