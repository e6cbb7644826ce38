#!/usr/bin/env bash
# torch 2.15.0, deepspeed 0.19.8, transformers 5.24.0: FLOP counters count nothing for routed experts.
#
# Expected: FlopCounterMode knows all matrix products of PyTorch. The count does not depend on how transformers runs the experts.
# Seen, Mixtral, Qwen3-MoE, OLMoE and GPT-OSS as transformers builds them, forward and backward of 128 tokens: the experts add 0.
#   Of all operations 28 % are counted, in each of the four. DeepSpeed's profiler finds as many in a forward pass as torch. Experts that
#   are eight times as wide change no count. Nothing warns.
# Controls: experts_implementation="batched_mm" counts the whole, as the layers' formula gives it, "eager" too. Outputs are equal.
# Why: transformers runs experts by one grouped product, by default. The table of formulas of torch has none for it, nor for its
#   backward, and torch counts operators without a formula as 0. DeepSpeed replaces functions of torch by ones that count,
#   and this one is not among them.
# Why it matters: utilisation, Lightning's measure_flops() and scaling laws take these counts, and experts are most of such a model.
#   torch.compile's memory budget uses the same table to decide what is cheap to compute again.
# Usage: ./flop_counters_leave_out_routed_experts.sh (two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" \
    torch==2.15.0 transformers==5.24.0 deepspeed==0.19.8 numpy==2.4.6
cat >"$folder/count.py" <<'END'
import importlib.metadata

import torch
import transformers as hf
from deepspeed.profiling.flops_profiler import FlopsProfiler
from torch.utils.flop_counter import FlopCounterMode

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
print(*(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "transformers", "deepspeed")))
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0"
TOKENS, WORDS, WIDTH, LAYERS, TOP = 128, 256, 64, 2, 2
SIZES = {"vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "head_dim": 16,
         "num_key_value_heads": 2, "num_experts_per_tok": TOP, "use_cache": False}
KINDS = {"Mixtral": (hf.MixtralConfig, "intermediate_size", "num_local_experts"),
         "Qwen3-MoE": (hf.Qwen3MoeConfig, "moe_intermediate_size", "num_experts"),
         "OLMoE": (hf.OlmoeConfig, "intermediate_size", "num_experts"),
         "GPT-OSS": (hf.GptOssConfig, "intermediate_size", "num_local_experts")}
tokens = torch.randint(0, WORDS, (1, TOKENS), generator=torch.Generator().manual_seed(1))


def count(kind, inner, way):
    config, width, number = KINDS[kind]
    torch.manual_seed(0)
    options = {} if way == "as built" else {"experts_implementation": way}
    model = hf.AutoModelForCausalLM.from_config(config(**SIZES, **{width: inner, number: 8}), attn_implementation="eager", **options)
    with FlopCounterMode(display=False) as counter:
        output = model(input_ids=tokens, use_cache=False).logits
    forward = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        output.square().mean().backward()
    backward = counter.get_total_flops()
    profiler = FlopsProfiler(model)
    profiler.start_profile()
    model(input_ids=tokens, use_cache=False)
    profiler.stop_profile()
    deepspeed = 2 * profiler.get_total_macs()
    profiler.end_profile()
    return (forward, backward, deepspeed), output.detach(), model


for kind in KINDS:
    inner = 256
    experts = 2 * TOKENS * LAYERS * TOP * 3 * WIDTH * inner
    seen, output, model = count(kind, inner, "as built")
    wide = count(kind, 8 * inner, "as built")[0]
    print(f"{kind}, {model.config._experts_implementation}: torch counts {seen[0]:,} forward and {seen[1]:,} backward,"
          f" DeepSpeed {seen[2]:,}")
    for way in ("batched_mm", "eager"):
        right, same, _ = count(kind, inner, way)
        print(f"  {way}: torch {right[0]:,} and {right[1]:,}, DeepSpeed {right[2]:,};"
              f" part counted as built {seen[0] / right[0]:.2f}; experts' formula {experts:,}")
        assert torch.allclose(same, output, atol=1e-4)
        if way == "batched_mm":
            assert right[0] - seen[0] == experts and right[1] - seen[1] == 2 * experts, "the behaviour changed"
            assert seen[2] == seen[0] == wide[0] and right[2] == right[0] and seen[0] < 0.5 * right[0], "the behaviour changed"
        else:
            assert right[0] == seen[0] + experts
END
OMP_NUM_THREADS=1 DS_ACCELERATOR=cpu "$folder/env/bin/python" -W ignore "$folder/count.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
