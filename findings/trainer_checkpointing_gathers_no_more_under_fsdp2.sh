#!/usr/bin/env bash
# transformers 5.24.0, torch 2.15.0: the Trainer's activation_checkpointing under FSDP2 gathers weights as often as none and as accelerate's.
#
# Expected: TrainingArguments says that accelerate's fsdp_config switch is to be preferred, since the argument activation_checkpointing
#   "introduces a redundant all-gather in the backward pass": a third gather of each layer, half as much traffic again under ZeRO 3.
# Seen, four Llama layers and the root by fully_shard on a fake group of 2: 9 gathers and 5 reduce-scatters without recomputation, with
#   accelerate's wrapper, with the model's activation_checkpointing_enable(), and with every_n_layers=2. FSDP2's hook before backward gathers
#   a layer, and its hooks inside the recomputed forward see that and do nothing.
# Why it matters: every_n_layers and offload exist as the Trainer's arguments alone. Who follows the sentence gives them up for nothing.
# Usage: ./trainer_checkpointing_gathers_no_more_under_fsdp2.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0
cat >"$folder/gathers.py" <<'END'
import torch
import torch.distributed as dist
import transformers as hf
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing, checkpoint_wrapper
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.distributed.fake_pg import FakeStore

assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0"
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
config = hf.LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4,
                        vocab_size=64, use_cache=False)
tokens = torch.zeros(1, 8, dtype=torch.long)


def of_accelerate(model):  # accelerate 1.15.0, utils/fsdp_utils.py: each layer is wrapped before it is sharded
    apply_activation_checkpointing(model, checkpoint_wrapper_fn=checkpoint_wrapper,
                                   check_fn=lambda module: type(module).__name__ == "LlamaDecoderLayer")


ways = {"none": lambda model: None, "accelerate's": of_accelerate, "the Trainer's": lambda model: model.activation_checkpointing_enable(),
        "the Trainer's, every_n_layers 2": lambda model: model.activation_checkpointing_enable(every_n_layers=2)}
for name, switch_on in ways.items():
    model = hf.LlamaForCausalLM(config).train()
    switch_on(model)
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    with CommDebugMode() as seen:
        model(input_ids=tokens, labels=tokens).loss.backward()
    counts = {str(operation).rpartition(".")[2]: count for operation, count in seen.get_comm_counts().items()}
    print(f"{name}: {counts}")
    assert counts == {"_allgather_base_": 9, "_reduce_scatter_base_": 5}, (name, counts)
END
"$folder/env/bin/python" -W ignore "$folder/gathers.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
