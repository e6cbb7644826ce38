#!/usr/bin/env bash
# deepspeed 0.19.8, transformers 5.24.0, torch 2.15.0: with SDPA Ulysses' sequence ranks train sliding windows as full attention.
#
# Expected: the guides name "sdpa" as an attention for Ulysses that is right as long as a row holds one sample. So a sample on two
#   sequence ranks has the logits of one process, or a model with a window is refused, as accelerate's context parallelism refuses it.
# Seen, one sample of 32 tokens, window of 8, two ranks. From token 8 on the logits of Mistral, Qwen2 and Olmo 3 are off by 91 to 114 %
#   of their size. Gradients are off by 103 to 120 %. The loss of Mistral is to the digit that of the same weights without a window.
#   Without windows the same three types have the logits and the gradient of one process. Nothing warns.
# Why: transformers puts the window into the mask that SDPA gets. DeepSpeed replaces the mask by none before it calls SDPA.
#   FlashAttention gets the window as a number (read, not run).
# Why it matters: Ulysses is used for sequences far longer than a window. The model learns to look further back than it does in use,
#   each local layer takes the time of a full one, and the loss looks plausible.
# Usage: ./ulysses_with_sdpa_drops_sliding_windows.sh (about four minutes, and the download of PyTorch)
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
LENGTH, WINDOW = 32, 8
SIZES = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
         "vocab_size": 96, "initializer_range": 0.2, "pad_token_id": 0}
MIXED = {"layer_types": ["sliding_attention", "full_attention"]}
FULL = {"layer_types": ["full_attention"] * 2}
CASES = {"Mistral": (hf.MistralConfig, {}), "Olmo 3": (hf.Olmo3Config, MIXED),
         "Qwen2": (hf.Qwen2Config, {"use_sliding_window": True, **MIXED})}
PLAIN = {"Mistral": {"sliding_window": None}, "Qwen2": FULL, "Olmo 3": FULL}
torch.manual_seed(5)
tokens, positions = torch.randint(1, 96, (1, LENGTH)), torch.arange(LENGTH)[None]
labels = torch.nn.functional.pad(tokens, (0, 1), value=-100)[:, 1:]


def make(name, window):
    kind, options = CASES[name]
    torch.manual_seed(0)
    config = kind(**SIZES, **{"sliding_window": WINDOW, **options, **({} if window else PLAIN[name])})
    return hf.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").train()


def step(model, part):
    logits = model(input_ids=tokens[:, part], position_ids=positions[:, part], use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits[0], labels[0, part], reduction="sum") / (LENGTH - 1)
    loss.backward()
    return logits.detach(), loss.detach(), torch.cat([p.grad.flatten() for p in model.parameters()])


def off(seen, right):
    return ((seen - right).norm() / right.norm()).item()


alone = {(name, window): step(make(name, window), slice(LENGTH)) for name in CASES for window in (True, False)}
deepspeed.init_distributed("gloo")
UlyssesSPAttentionHF.register_with_transformers(model_name_or_path=make("Mistral", True), core_attn_implementation="sdpa",
                                                sequence_parallel_size=2, micro_batch_size=1, seq_length=LENGTH)
rank, half = torch.distributed.get_rank(), LENGTH // 2
for name, window in alone:
    logits, loss, gradient = step(make(name, window), slice(rank * half, rank * half + half))
    torch.distributed.all_reduce(loss)
    torch.distributed.all_reduce(gradient)
    parts = [torch.empty_like(logits) for _ in range(2)]
    torch.distributed.all_gather(parts, logits)
    logits, (right, right_loss, right_gradient) = torch.cat(parts, 1), alone[name, window]
    before = off(logits[:, :WINDOW], right[:, :WINDOW])
    after, wrong = off(logits[:, WINDOW:], right[:, WINDOW:]), off(gradient, right_gradient)
    if rank == 0:
        print(f"{name}, {'window of 8' if window else 'no window'}: logits off by {before:.0e} in the first 8 tokens, "
              f"by {after:.1%} after, gradient by {wrong:.1%}; loss {loss:.4f}, in one process {right_loss:.4f}", flush=True)
    assert before < 1e-4, (name, window, before)
    assert (after > 0.8 and wrong > 0.9) if window else (after < 1e-4 and wrong < 1e-4), (name, window, after, wrong)
    if name == "Mistral":
        assert abs(loss - alone[name, False][1]) < 1e-4
torch.distributed.barrier()
if rank == 0:
    print("both ranks are done", flush=True)
os._exit(0)
END
export DS_ACCELERATOR=cpu CUDA_VISIBLE_DEVICES="" OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
"$folder/env/bin/python" -W ignore -m torch.distributed.run --standalone --nproc_per_node 2 "$folder/ranks.py" \
  >"$folder/seen" 2>"$folder/errors" || { cat "$folder/seen"; tail "$folder/errors"; exit 1; }
grep -E 'window|^both ranks are done' "$folder/seen"
grep -q '^both ranks are done' "$folder/seen"
