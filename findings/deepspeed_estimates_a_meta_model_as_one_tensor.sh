#!/usr/bin/env bash
# deepspeed 0.19.8, torch 2.15.0, transformers 5.24.0: DeepSpeed's memory estimates take a model on the meta device for its last tensor.
#
# Expected: estimate_zero3_model_states_mem_needs_all_live(model) needs shapes alone, so that a model on meta gives the figures of a real one.
# Seen, Llama 3.1 8B on the meta device, 8 GPUs. "Model with 525M total params" for 8,030M: 3.06 GB a GPU under ZeRO 3 without
#   offload, for 18.78 GB, and 2.08 GB under ZeRO 2, for 31.78 GB. The largest layer is right.
#   Qwen2.5 0.5B, whose last tensor is a norm: 0.00 GB under ZeRO 2, for 1.96 GB.
# Controls: ..._all_cold with the counted parameters gives the right figures. For a small model in memory both functions agree,
#   for the same model on meta they do not.
# Why: the functions count each address once, so that tied weights count once. On meta all tensors have address 0.
#   The last one is left.
# Why it matters: nobody builds a large model in memory to learn whether it fits. torch.device("meta") and accelerate's
#   init_empty_weights() are the usual way. The table looks as ever and says that the model fits, with 6 to 15 times too little.
# Usage: ./deepspeed_estimates_a_meta_model_as_one_tensor.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" \
    torch==2.15.0 transformers==5.24.0 accelerate==1.15.0 deepspeed==0.19.8 numpy==2.4.6
OMP_NUM_THREADS=1 DS_ACCELERATOR=cpu "$folder/env/bin/python" -W ignore - 2>"$folder/errors" <<'END' || { tail "$folder/errors"; exit 1; }
import contextlib
import importlib.metadata
import io
import re

import torch
import transformers as hf
from accelerate import init_empty_weights
from deepspeed.runtime.zero import stage3, stage_1_and_2

print(*(f"{name} {importlib.metadata.version(name)}" for name in ("deepspeed", "torch", "transformers")))
assert importlib.metadata.version("deepspeed") == "0.19.8" and torch.__version__.startswith("2.15.0")


def table(function, *arguments):
    """Total parameters in millions, and the gigabytes of a GPU without offload."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        function(*arguments, 8)
    line = [line for line in text.getvalue().splitlines() if "offload_optimizer=none" in line][0]
    return int(re.search(r"(\d+)M total params", text.getvalue())[1]), float(re.findall(r"([\d.]+)GB", line)[1])


def estimates(name, model):
    weights = sum(weight.numel() for weight in model.parameters())
    largest = max(sum(weight.numel() for weight in module.parameters(recurse=False)) for module in model.modules())
    live = (table(stage3.estimate_zero3_model_states_mem_needs_all_live, model),
            table(stage_1_and_2.estimate_zero2_model_states_mem_needs_all_live, model))
    cold = (table(stage3.estimate_zero3_model_states_mem_needs_all_cold, weights, largest),
            table(stage_1_and_2.estimate_zero2_model_states_mem_needs_all_cold, weights))
    print(f"{name}, {weights:,} parameters, the last tensor {list(model.parameters())[-1].numel():,}:")
    for stage, (seen, right) in zip((3, 2), zip(live, cold)):
        print(f"  ZeRO {stage}: {seen[0]}M total params and {seen[1]:.2f} GB a GPU; by the count {right[0]}M and {right[1]:.2f} GB", flush=True)
    return live, cold


def build(config):
    return hf.AutoModelForCausalLM.from_config(config)


small = hf.LlamaConfig(vocab_size=32000, hidden_size=512, intermediate_size=1408, num_hidden_layers=24, num_attention_heads=8)
live, cold = estimates("a small Llama in memory", build(small))
assert live == cold
with torch.device("meta"):
    assert estimates("the same on meta", build(small))[0] != cold, "the behaviour changed"
llama = hf.LlamaConfig(vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
                       num_key_value_heads=8)
for name, place in (("torch.device('meta')", torch.device("meta")), ("init_empty_weights()", init_empty_weights())):
    with place:
        live, cold = estimates(f"Llama 3.1 8B, {name}", build(llama))
    assert live[0][0] == 525 and cold[0][0] == 8030, "the behaviour changed"
    assert cold[0][1] > 6 * live[0][1] and cold[1][1] > 14 * live[1][1], "the behaviour changed"
qwen = hf.Qwen2Config(vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
                      num_key_value_heads=2, tie_word_embeddings=True)
with torch.device("meta"):
    live, cold = estimates("Qwen2.5 0.5B on meta", build(qwen))
assert live[0][0] == 0 and cold[0][0] == 494, "the behaviour changed"
END
