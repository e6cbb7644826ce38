#!/usr/bin/env bash
# transformers 5.24.0, torch 2.15.0: LongCat-Flash has gate and up weights for its zero experts, which are identities: 741 B instead of 561 B.
#
# Expected: a zero expert hands its token on. It has no weights. LongCat-Flash has 512 experts with weights and 256 zero experts beside
#   them, and 560 B parameters, as its model card says.
# Seen: LongcatFlashConfig() of transformers has the sizes of the published model, and its class has 741.1 B parameters. Every layer holds
#   768 pairs of gate and up matrices, and 512 down matrices. 180.4 B weights have gradients of exactly 0 in each step.
#   At 16 bytes a weight they fill 2.6 TiB. FLOP counters and MFU formulas that count parameters are a third too high.
#   save_pretrained writes the idle matrices, too: 12 gates beside 8 down matrices in the small model below.
#   from_pretrained refuses a checkpoint in the published form, without the idle matrices, by a mismatch of shapes.
# Control: with zero_expert_num=0 gates and down matrices are as many, and all have gradients.
# Why: gate_up_proj is made for the routed and the zero experts together, down_proj for the routed ones alone.
# Why it matters: a plan by the published 560 B is a quarter too small for weights, gradients and states.
# Usage: ./longcat_flash_holds_experts_that_compute_nothing.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0
cat >"$folder/longcat.py" <<'END'
import os
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import LongcatFlashConfig, LongcatFlashForCausalLM

transformers.logging.set_verbosity_error()
print(f"transformers {transformers.__version__}, torch {torch.__version__}")

with torch.device("meta"):
    published = LongcatFlashForCausalLM(LongcatFlashConfig())
c = published.config
layers, routed, idle = c.num_layers, c.n_routed_experts, c.zero_expert_num
total = sum(p.numel() for p in published.parameters())
unused = layers * idle * 2 * c.expert_ffn_hidden_size * c.hidden_size
print(f"{layers} layers, {routed} experts and {idle} zero experts: {total / 1e9:.1f} B parameters, {unused / 1e9:.1f} B of them for zero experts")
assert (layers, routed, idle) == (28, 512, 256), (layers, routed, idle)
assert round(total / 1e9, 1) == 741.1, total
assert round((total - unused) / 1e9, 1) == 560.7, total - unused


def small(zero):
    torch.manual_seed(0)
    return LongcatFlashForCausalLM(LongcatFlashConfig(
        num_layers=1, hidden_size=64, ffn_hidden_size=64, expert_ffn_hidden_size=32, n_routed_experts=8, zero_expert_num=zero, moe_topk=2,
        num_attention_heads=4, vocab_size=128, q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8, head_dim=8))


def trained(model):
    """Experts whose gate has a gradient, and all gates."""
    tokens = torch.arange(512).remainder(128).view(8, 64)
    for _ in range(4):
        model(input_ids=tokens[:, torch.randperm(64)], labels=tokens).loss.backward()
    gates = model.model.layers[0].mlp.experts.gate_up_proj
    return int((gates.grad.flatten(1).abs().sum(1) > 0).sum()), len(gates), len(model.model.layers[0].mlp.experts.down_proj)


for zero in (4, 0):
    print(f"{zero} zero experts: trained gates, gates, down matrices: {trained(small(zero))}")
assert trained(small(4)) == (8, 12, 8)
assert trained(small(0)) == (8, 8, 8)

saved = os.path.join(sys.argv[1], "saved")
small(4).save_pretrained(saved)
file = os.path.join(saved, "model.safetensors")
weights = load_file(file)
gates, downs = (sum("experts." in name and part in name for name in weights) for part in ("gate_proj", "down_proj"))
print(f"saved: {gates} gates, {downs} down matrices of experts")
assert (gates, downs) == (12, 8), (gates, downs)
save_file({name: w for name, w in weights.items() if not any(f"experts.{i}." in name for i in range(8, 12))}, file, metadata={"format": "pt"})
try:
    LongcatFlashForCausalLM.from_pretrained(saved)
    sys.exit("the published form is loaded now")
except RuntimeError as error:
    print(f"the published form: {type(error).__name__}, {str(error)[:60]}")
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" "$folder/longcat.py" "$folder" 2>&1 | grep -v "pytree\|Loading weights\|Writing model\|MISMATCH"
