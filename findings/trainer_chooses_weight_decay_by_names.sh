#!/usr/bin/env bash
# transformers 5.24.0 Trainer (torch 2.15.0, accelerate 1.15.0): names decide about weight decay, so that one model has none and norms of others have it.
#
# Expected: matrices decay; norms, biases and other vectors do not.
# Seen: no layer of RobertaPreLayerNorm decays, not even its matrices: each name begins with "roberta_prelayernorm", where Trainer finds "layernorm".
#   The final RMS norm of Nemotron-H, Mamba and Mamba-2, "norm_f", does decay, beside their A_log and D. So do the A_log of Qwen3-Next and
#   Qwen3.5 and the sinks of GPT-OSS. After a step without gradients, at rates of 0.1 and 0.1, these are 0.99 of what they were.
#   Trainer leaves out modules of nn.LayerNorm, and names with "bias", "layernorm", "rmsnorm", "norm" or "..._norm" as a whole part.
# Why it matters: weight_decay does nothing for the one model. In the others it pulls the gain of the last norm, the sinks and
#   A_log towards 0.
# Usage: ./trainer_chooses_weight_decay_by_names.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0
cat >"$folder/decay.py" <<'END'
import re
import sys

import accelerate
import torch
import transformers as hf

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
assert hf.__version__ == "5.24.0" and accelerate.__version__ == "1.15.0"
SMALL = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, pad_token_id=0)
KEYS = dict(num_key_value_heads=2, head_dim=8)
DELTA = dict(KEYS, layer_types=["linear_attention", "full_attention"], linear_num_value_heads=4, linear_num_key_heads=2,
             linear_key_head_dim=8, linear_value_head_dim=8)
# Type of model: its values, the vectors that decay, and whether its matrices do. The head lies outside the layers;
# GPT-OSS has biases of two dimensions.
MODELS = {
    "llama": (dict(KEYS), set(), True),
    "roberta": (dict(is_decoder=True), set(), True),
    "roberta-prelayernorm": (dict(is_decoder=True), set(), False),
    "mamba": (dict(state_size=8), {"mixer.D", "norm_f.weight"}, True),
    "mamba2": (dict(num_heads=8, head_dim=8, n_groups=1, state_size=8), {"mixer.A_log", "mixer.D", "norm_f.weight"}, True),
    "nemotron_h": (dict(KEYS, layers_block_type=["mamba", "attention"], mamba_num_heads=8, mamba_head_dim=8, n_groups=1, ssm_state_size=8),
                   {"mixer.A_log", "mixer.D", "norm_f.weight"}, True),
    "gpt_oss": (dict(KEYS, num_local_experts=4, num_experts_per_tok=2), {"self_attn.sinks"}, True),
    "qwen3_next": (dict(DELTA, num_experts=0, mlp_only_layers=[0, 1]), {"linear_attn.A_log"}, True),
    "qwen3_5_text": (DELTA, {"linear_attn.A_log"}, True),
}
print("torch", torch.__version__, "transformers", hf.__version__, "accelerate", accelerate.__version__)
for kind, (values, vectors, matrices) in MODELS.items():
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(hf.AutoConfig.for_model(kind, **SMALL, **values), dtype=torch.float32)
    options = hf.TrainingArguments(sys.argv[1], learning_rate=0.1, weight_decay=0.1, use_cpu=True, report_to=[])
    optimizer = hf.Trainer(model, options).create_optimizer()
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(1.0)
            weight.grad = torch.zeros_like(weight)
    optimizer.step()
    decayed = {name for name, weight in model.named_parameters() if abs(weight.flatten()[0].item() - 0.99) < 1e-4}
    assert all(name in decayed or weight.flatten()[0] == 1 for name, weight in model.named_parameters())
    seen = {re.search(r"[^.]*\.?[^.]*$", name)[0] for name, weight in model.named_parameters() if weight.ndim < 2 and name in decayed}
    several = [name in decayed for name, weight in model.named_parameters() if weight.ndim > 1]
    print(f"{kind:20s} decaying: {sum(several):2d} of {len(several):2d} matrices, vectors: {', '.join(sorted(seen)) or 'none'}", flush=True)
    assert seen == vectors and (sum(several) >= 0.8 * len(several) if matrices else sum(several) <= 1), "the behaviour changed"
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/decay.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
