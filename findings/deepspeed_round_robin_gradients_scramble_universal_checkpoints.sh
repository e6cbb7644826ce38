#!/usr/bin/env bash
# deepspeed 0.19.8, transformers 5.24.0, torch 2.15.0: with round_robin_gradients a universal checkpoint holds other tensors' values under each name.
#
# Expected: the key changes the order in which gradients are reduced. A universal checkpoint of the run is the model of the run.
# Seen, a Llama of 2 layers, ZeRO 2 on two ranks, 60 steps: the loss of the trained model is 0.06. Its checkpoint made universal and loaded
#   on one process, or on two without the key, has a loss of 4.17, that of a guess, and 20 of 21 tensors are wrong.
#   Loaded on two ranks with the key the model is right, for the same wrong order is undone.
#   safe_get_full_fp32_param returns other tensors' values for the same 20 names during training, too. The run itself trains rightly.
# Controls: the same run without the key gives the right universal checkpoint and the right values. With the key zero_to_fp32 is right.
# Why: the key reorders weights in the flat buffer. The map from a weight to its place in the buffer is made from the order of the model.
#   Conversion, loading and the safe_get and safe_set functions use the map. The training step and zero_to_fp32 use the new order.
# Why it matters: the ZeRO-2 example of transformers' documentation sets the key. Universal checkpoints are the way to another number of
#   GPUs. All names, shapes and counts fit, and neither conversion nor loading says anything.
# Usage: ./deepspeed_round_robin_gradients_scramble_universal_checkpoints.sh (about two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 deepspeed==0.19.8
cat >"$folder/round.py" <<'END'
import os
import subprocess
import sys

import deepspeed
import torch
import torch.distributed as dist
import transformers
from deepspeed.utils import safe_get_full_fp32_param
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

torch.set_num_threads(1)
assert (torch.__version__[:6], deepspeed.__version__, transformers.__version__) == ("2.15.0", "0.19.8", "5.24.0")
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # so that nothing is compiled
deepspeed.init_distributed("gloo")
rank, ranks, what, place = dist.get_rank(), dist.get_world_size(), sys.argv[1], sys.argv[2]
tokens = torch.randint(0, 64, (4, 16), generator=torch.Generator().manual_seed(1))


def start(robin, universal):
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2))
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_batch_size": 4, "optimizer": {"type": "AdamW", "params": {"lr": 5e-3, "torch_adam": True}},
        "zero_optimization": {"stage": 2, "overlap_comm": True, "contiguous_gradients": True, "reduce_scatter": True,
                              "round_robin_gradients": robin},
        "checkpoint": {"load_universal": universal}})[0]


def loss_of(engine):
    with torch.no_grad():
        return engine.module(input_ids=tokens, labels=tokens, use_cache=False).loss.item()


def wrong(weights, truth):
    return sum(not torch.equal(weights[name].float(), weight) for name, weight in truth.items())


for robin in True, False:
    folder = f"{place}/{robin}"
    if what == "train":
        engine, mine = start(robin, False), tokens.chunk(ranks)[rank]
        for _ in range(60):
            engine.backward(engine(input_ids=mine, labels=mine, use_cache=False).loss)
            engine.step()
        engine.save_checkpoint(folder, tag="usual")
        truth = {name: weight.detach().clone() for name, weight in engine.module.named_parameters()}
        read = {name: safe_get_full_fp32_param(weight) for name, weight in engine.module.named_parameters()}
        if rank == 0:
            torch.save((truth, loss_of(engine)), folder + "/truth")
            command = ["-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder", folder + "/usual", "--output_folder",
                       folder + "/universal", "--inject_missing_state", "--num_extract_workers", "1", "--num_merge_workers", "1"]
            subprocess.run([sys.executable, "-W", "ignore", *command], check=True, stdout=subprocess.DEVNULL)
            off, converted = wrong(read, truth), wrong(get_fp32_state_dict_from_zero_checkpoint(folder, tag="usual"), truth)
            print(f"seen: round_robin_gradients {robin}, trained on {ranks} ranks: loss {loss_of(engine):.4f}; of {len(truth)} tensors "
                  f"safe_get_full_fp32_param returns {off} wrong, zero_to_fp32 writes {converted} wrong", flush=True)
            assert len(truth) == 21 and loss_of(engine) < 0.2 and converted == 0
            assert off == (20 if robin else 0), "the behaviour changed"
        dist.barrier()
    for key in (True, False) if robin and what == "train" else (False,):
        truth, right = torch.load(folder + "/truth")
        engine = start(key, True)
        engine.load_checkpoint(folder, tag="universal")
        off, loss = wrong(dict(engine.module.named_parameters()), truth), loss_of(engine)
        if rank == 0:
            print(f"seen: trained with round_robin_gradients {robin}, universal, loaded on {ranks} with {key}: loss {loss:.4f}, "
                  f"{off} of {len(truth)} tensors wrong", flush=True)
        if robin and not key:
            assert off == 20 and loss > 3.5, "the behaviour changed"
        else:
            assert off == 0 and abs(loss - right) < 1e-5
if rank == 0:
    print(f"seen: torch {torch.__version__}, deepspeed {deepspeed.__version__}, transformers {transformers.__version__}", flush=True)
dist.barrier()
os._exit(0)
END
for run in "2 train" "1 load"; do
  DS_ACCELERATOR=cpu CUDA_VISIBLE_DEVICES="" OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo timeout 450 "$folder/env/bin/python" -W ignore \
    -m torch.distributed.run --standalone --nproc-per-node "${run% *}" "$folder/round.py" "${run#* }" "$folder/checkpoints" \
    >"$folder/said" 2>"$folder/errors" || { cat "$folder/said"; tail -40 "$folder/errors"; exit 1; }
  grep -o 'seen: .*' "$folder/said" | cut -c7-
done
