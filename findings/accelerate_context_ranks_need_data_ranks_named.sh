#!/usr/bin/env bash
# accelerate 1.15.0, deepspeed 0.19.8, torch 2.15.0: DeepSpeed's context ranks do not start with several data ranks unless these are named.
#
# Expected: ParallelismConfig(sp_size=2, sp_backend="deepspeed") on four processes leaves two data ranks, as world size and context ranks say:
#   DeepSpeed itself finds the groups, and accelerate does not compare sizes with processes for this backend.
# Seen, four processes: without dp_shard_size accelerate multiplies DeepSpeed's batch by one data rank, and DeepSpeed ends with
#   "train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 1 != 1 * 1 * 2.0", on a file that has no such
#   key. With dp_shard_size=2, or PARALLELISM_CONFIG_DP_SHARD_SIZE=2, the same script starts. On two processes both do.
# Why it matters: a long-context job that ran on the ranks of one sequence fails when it gets more GPUs, and the message blames the batch.
# Usage: ./accelerate_context_ranks_need_data_ranks_named.sh (about two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0 deepspeed==0.19.8
cat >"$folder/ranks.py" <<'END'
import os
import sys

import accelerate
import deepspeed
import torch
import transformers as hf
from accelerate.utils import DeepSpeedPlugin, DeepSpeedSequenceParallelConfig, ParallelismConfig

torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and accelerate.__version__ == "1.15.0" and deepspeed.__version__ == "0.19.8"
named = {"dp_shard_size": int(sys.argv[1])} if len(sys.argv) > 1 else {}
sequences = DeepSpeedSequenceParallelConfig(sp_seq_length=32, sp_attn_implementation="sdpa")
accelerator = accelerate.Accelerator(
    deepspeed_plugin=DeepSpeedPlugin(hf_ds_config={"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 3}}),
    parallelism_config=ParallelismConfig(sp_size=2, sp_backend="deepspeed", sp_handler=sequences, **named))
config = hf.LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, vocab_size=256)
model = hf.LlamaForCausalLM._from_config(config, attn_implementation="sdpa")
tokens = torch.ones(32, dtype=torch.long)
rows = [{"input_ids": tokens, "labels": tokens, "position_ids": torch.arange(32)}] * 8
try:
    engine, *_ = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), torch.utils.data.DataLoader(rows, batch_size=1))
    said = f"starts with a batch of {engine.train_batch_size()}"
except AssertionError as error:
    said = str(error)
if os.environ["RANK"] == "0":
    print(f"{os.environ['WORLD_SIZE']} processes, dp_shard_size {named.get('dp_shard_size', 'not named')}: {said}", flush=True)
torch.distributed.barrier()
os._exit(0)
END
ranks() {
  ACCELERATE_USE_DEEPSPEED=true DS_ACCELERATOR=cpu CUDA_VISIBLE_DEVICES="" OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo "$folder/env/bin/python" -W ignore \
    -m torch.distributed.run --nproc_per_node "$1" "$folder/ranks.py" "${@:2}" 2>"$folder/errors" | grep '^[24] processes' | tee -a "$folder/seen" ||
    { tail "$folder/errors"; exit 1; }
}
ranks 2
ranks 4
ranks 4 2
grep -qx '2 processes, dp_shard_size not named: starts with a batch of 1' "$folder/seen"
grep -q '4 processes, dp_shard_size not named: .*train_batch_size is not equal to .* 1 != 1 \* 1 \* 2.0' "$folder/seen"
grep -qx '4 processes, dp_shard_size 2: starts with a batch of 2' "$folder/seen"
