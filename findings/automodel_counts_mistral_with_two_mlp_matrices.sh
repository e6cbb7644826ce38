#!/usr/bin/env bash
# nemo-automodel 0.7.0, torch 2.15.0: AutoMFU counts two of the three matrices of gated layers in Mistral, Gemma, Phi-3, OLMo and Granite.
#
# Expected: the MFU that AutoModel logs comes from the model's own sizes. Mistral and Llama of equal sizes have equal operations.
# Seen, models with an eighth of the layers and a sixteenth of the width of Mistral 7B, Phi-4, Gemma 2 9B, OLMo 2 7B and Granite 8B:
#   AutoMFU's operations are 0.77, 0.80, 0.85, 0.86 and 0.77 of the ones that FlopCounterMode counts, OLMoE's 0.73.
#   Full sizes at 4,096 tokens: a Llama of Mistral 7B's sizes has 1.33 times as many operations as Mistral 7B. Nothing warns.
# Controls: Llama, Qwen2, Qwen3 and Mixtral agree with the count within 0.2 %. The configuration of a Mistral, read as Llama's, agrees.
# Why: a table names a formula for each class of configuration. A class that it lacks gets a general formula.
#   There a feed-forward layer has two matrices, as GPT's. Half of the layers are experts if there are any.
# Why it matters: MFU is logged, and compared between models and with other frameworks. The same run on the same GPU
#   seems a quarter slower as Mistral than as Llama.
# Usage: ./automodel_counts_mistral_with_two_mlp_matrices.sh (about two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 nemo-automodel==0.7.0
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore - 2>"$folder/errors" <<'END' || { tail "$folder/errors"; exit 1; }
import importlib.metadata

import torch
import transformers as hf
from nemo_automodel._transformers.mfu import AutoMFU
from torch.utils.flop_counter import FlopCounterMode

torch.set_num_threads(1)
print(*(f"{name} {importlib.metadata.version(name)}" for name in ("nemo-automodel", "torch", "transformers")))
assert importlib.metadata.version("nemo-automodel") == "0.7.0" and torch.__version__.startswith("2.15.0")
TOKENS = 128
MISTRAL = {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
           "num_key_value_heads": 8, "head_dim": 128, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
KINDS = {"Llama": (hf.LlamaConfig, {}), "Qwen2": (hf.Qwen2Config, {}), "Qwen3": (hf.Qwen3Config, {}),
         "Mixtral": (hf.MixtralConfig, {"num_local_experts": 8, "num_experts_per_tok": 2}),
         "Mistral 7B": (hf.MistralConfig, {"sliding_window": None}), "Granite 8B": (hf.GraniteConfig, {}),
         "Phi-4": (hf.Phi3Config, {"vocab_size": 100352, "hidden_size": 5120, "intermediate_size": 17920, "num_hidden_layers": 40,
                                   "num_attention_heads": 40, "num_key_value_heads": 10}),
         "Gemma 2 9B": (hf.Gemma2Config, {"vocab_size": 256000, "hidden_size": 3584, "num_hidden_layers": 42,
                                          "num_attention_heads": 16, "head_dim": 256}),
         "OLMo 2 7B": (hf.Olmo2Config, {"vocab_size": 100352, "intermediate_size": 11008, "num_key_value_heads": 32}),
         "OLMoE 1B-7B": (hf.OlmoeConfig, {"vocab_size": 50304, "hidden_size": 2048, "intermediate_size": 1024, "num_hidden_layers": 16,
                                          "num_attention_heads": 16, "num_key_value_heads": 16, "num_experts": 64,
                                          "num_experts_per_tok": 8})}


def small(sizes):
    parts = {"vocab_size": 16, "hidden_size": 16, "intermediate_size": 16, "head_dim": 16, "num_hidden_layers": 8}
    return {name: value // parts[name] if name in parts else value for name, value in sizes.items()}


def count(config):
    """Operations of a forward and a backward pass, attention counted by half, as AutoMFU does for causal models."""
    torch.manual_seed(0)
    experts = {"experts_implementation": "eager"} if hasattr(config, "num_experts_per_tok") else {}
    model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager", **experts)
    words = torch.randint(1, 100, (1, TOKENS))
    with FlopCounterMode(display=False) as counter:
        model(words, use_cache=False)
    attention = counter.get_flop_counts()["Global"][torch.ops.aten.bmm]
    return 3 * (counter.get_total_flops() - attention / 2)


for kind, (make, options) in KINDS.items():
    config = make(**small({**MISTRAL, **options}))
    calculator = AutoMFU.from_config(config)
    said, counted = calculator.get_flops((1, TOKENS)), count(config)
    print(f"{kind}: AutoMFU {said:,.0f} by {calculator.flops_formula.__name__}, counted {counted:,.0f}, ratio {said / counted:.3f}", flush=True)
    if kind in ("Llama", "Qwen2", "Qwen3", "Mixtral"):
        assert abs(said / counted - 1) < 0.002
    else:
        assert said / counted < 0.87, "the behaviour changed"
    if kind == "Mistral 7B":
        assert abs(AutoMFU.from_config(hf.LlamaConfig(**small(MISTRAL))).get_flops((1, TOKENS)) / counted - 1) < 0.002
llama, mistral = (AutoMFU.from_config(make(**MISTRAL)).get_flops((1, 4096)) for make in (hf.LlamaConfig, hf.MistralConfig))
print(f"full sizes, 4,096 tokens: Llama {llama / 1e12:.1f}e12, Mistral 7B {mistral / 1e12:.1f}e12, {llama / mistral:.2f} times")
assert 1.25 < llama / mistral < 1.4, "the behaviour changed"
END
