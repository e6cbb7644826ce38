#!/usr/bin/env bash
# peft 0.21.2, transformers 5.24.0, torch 2.15.0: adapters for an MLP go to the experts, and shared experts and dense layers get none.
#
# Expected: LoRA with target_modules gate_proj, up_proj and down_proj on DeepSeek-V2 adapts the linear layers of these names: those of
#   its shared experts and of its dense first layer, as on a Llama. PEFT 0.18.1 does not change names.
# Seen: PEFT takes the three names out of target_modules and puts gate_up_proj and down_proj into target_parameters, the stacked weights of the
#   routed experts, with twice the rank for the first. Shared experts and dense layers, which have linear layers of these very names, get
#   none. Qwen2-MoE is not in the list of changed models: its shared experts alone get adapters.
# Why it matters: PEFT says nothing. On DeepSeek-V2-Lite at rank 16 the moved adapters train 13.5 million weights in each layer with
#   experts, not 0.2 million, and the layers that every token passes are not trained. For the shared experts of another type the same
#   recipe trains the opposite.
# Usage: ./peft_moves_mlp_targets_to_experts.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 peft==0.21.2
cat >"$folder/adapt.py" <<'END'
import peft
import torch
import transformers as hf

assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and peft.__version__ == "0.21.2"
SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "moe_intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
DEEPSEEK = hf.DeepseekV2Config(**SIZES, num_key_value_heads=2, first_k_dense_replace=1, n_routed_experts=4, n_shared_experts=2, num_experts_per_tok=2,
                               kv_lora_rank=8, q_lora_rank=None, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=16, n_group=1, topk_group=1)
QWEN = hf.Qwen2MoeConfig(**SIZES, num_key_value_heads=2, num_experts=4, num_experts_per_tok=2, shared_expert_intermediate_size=32)


def adapted(config):
    """Numbers of weights that train in each MLP, by its place."""
    with torch.device("meta"):
        model = hf.AutoModelForCausalLM.from_config(config)
        model = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["gate_proj", "up_proj", "down_proj"]))
    counts = {}
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            layer, rest = name.split(".layers.")[1].split(".mlp.")
            part = next((word for word in ("shared_expert", "experts") if rest.startswith(word)), "dense")
            counts[f"layer {layer}, {part}"] = counts.get(f"layer {layer}, {part}", 0) + weight.numel()
    return counts


seen = {"deepseek_v2": adapted(DEEPSEEK), "qwen2_moe": adapted(QWEN)}
for kind, counts in seen.items():
    print(kind, counts)
# Four experts: 8 ranks of 32 and 2 * 16 columns, 4 of 16 and 32. A shared expert of 32: three products of 32 by 32.
experts, shared = 4 * (8 * (32 + 32) + 4 * (16 + 32)), 3 * 4 * (32 + 32)
if seen != {"deepseek_v2": {"layer 1, experts": experts}, "qwen2_moe": {"layer 0, shared_expert": shared, "layer 1, shared_expert": shared}}:
    raise SystemExit("it is otherwise now")
END
"$folder/env/bin/python" -W ignore "$folder/adapt.py"
