#!/usr/bin/env bash
# deepspeed 0.19.8, transformers 5.24.0, torch 2.15.0: Ulysses' ranks of one sequence rotate by other LongRoPE and dynamic frequencies.
#
# Expected: a sample cut over two sequence ranks is computed as in one process. Position ids of the whole sample are passed, as required.
# Seen, 32 tokens on two ranks. Phi-3 with LongRoPE, original length 24: rank 0 rotates by the short factors, rank 1 by the long ones.
#   Queries and keys of both meet in one attention: logits are off by 106 % of their size, the gradient by 130 %. Llama with dynamic NTK
#   and 24 tokens: 26 % and 45 %. With 32 as the original length, or without scaling, both are those of one process. Nothing warns.
# Why: both kinds choose frequencies by the largest position that the module sees. Behind Ulysses' cut that is the largest of the rank.
# Why it matters: the longest sequences are what Ulysses and LongRoPE are for. Phi-3 with 128k context has an original length of 4,096:
#   cut in 8, samples of 4k to 32k tokens have a first rank that rotates otherwise than the last. Loss and gradients are wrong.
# Usage: ./ulysses_ranks_rotate_longrope_apart.sh (about four minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 deepspeed==0.19.8
cat >"$folder/ranks.py" <<'END'
import os

import deepspeed
import torch
import transformers as hf
from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and deepspeed.__version__ == "0.19.8"
LENGTH = 32
SIZES = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
         "vocab_size": 96, "initializer_range": 0.2, "pad_token_id": 0}
torch.manual_seed(5)
tokens, positions = torch.randint(1, 96, (1, LENGTH)), torch.arange(LENGTH)[None]
labels = torch.nn.functional.pad(tokens, (0, 1), value=-100)[:, 1:]


def make(kind, original):
    if kind == "LongRoPE":
        rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 8, "long_factor": [4.0] * 8,
                "original_max_position_embeddings": original}
        config = hf.Phi3Config(**SIZES, max_position_embeddings=64, original_max_position_embeddings=original, rope_parameters=rope)
    else:
        rope = {"rope_type": "dynamic" if kind == "dynamic" else "default", "rope_theta": 1e4, "factor": 4.0}
        config = hf.LlamaConfig(**SIZES, max_position_embeddings=original, rope_parameters=rope)
    torch.manual_seed(0)
    return hf.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").train()


def step(model, part):
    logits = model(input_ids=tokens[:, part], position_ids=positions[:, part], use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits[0], labels[0, part], reduction="sum") / (LENGTH - 1)
    loss.backward()
    return logits.detach(), torch.cat([p.grad.flatten() for p in model.parameters()]), model.model.rotary_emb.inv_freq[-1].clone()


def off(seen, right):
    return ((seen - right).norm() / right.norm()).item()


CASES = [("LongRoPE", 24), ("LongRoPE", 32), ("dynamic", 24), ("dynamic", 32), ("default", 24)]
alone = {case: step(make(*case), slice(LENGTH)) for case in CASES}
deepspeed.init_distributed("gloo")
UlyssesSPAttentionHF.register_with_transformers(model_name_or_path=make("default", 24), core_attn_implementation="sdpa",
                                                sequence_parallel_size=2, micro_batch_size=1, seq_length=LENGTH)
rank, half = torch.distributed.get_rank(), LENGTH // 2


def gather(tensor):
    parts = [torch.empty_like(tensor) for _ in range(2)]
    torch.distributed.all_gather(parts, tensor)
    return parts


for kind, original in CASES:
    logits, gradient, frequency = step(make(kind, original), slice(rank * half, rank * half + half))
    torch.distributed.all_reduce(gradient)
    frequencies = [round(part.item(), 6) for part in gather(frequency)]
    right_logits, right_gradient, right_frequency = alone[kind, original]
    far, wrong = off(torch.cat(gather(logits), 1), right_logits), off(gradient, right_gradient)
    if rank == 0:
        print(f"{kind}, original length {original}: last frequency {right_frequency:.6f} in one process, on two ranks {frequencies}; "
              f"logits off by {far:.1%}, gradient by {wrong:.1%}", flush=True)
    apart = kind != "default" and original < LENGTH
    assert (frequencies[0] != frequencies[1]) == apart, (kind, original, frequencies)
    assert (far > 0.2 and wrong > 0.4) if apart else (far < 1e-4 and wrong < 1e-4), (kind, original, far, wrong)
torch.distributed.barrier()
if rank == 0:
    print("both ranks are done", flush=True)
os._exit(0)
END
export DS_ACCELERATOR=cpu CUDA_VISIBLE_DEVICES="" OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
"$folder/env/bin/python" -W ignore -m torch.distributed.run --standalone --nproc_per_node 2 "$folder/ranks.py" \
  >"$folder/seen" 2>"$folder/errors" || { cat "$folder/seen"; tail "$folder/errors"; exit 1; }
grep -E 'length|^both ranks are done' "$folder/seen"
grep -q '^both ranks are done' "$folder/seen"
