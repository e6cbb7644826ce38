#!/usr/bin/env bash
# transformers 5.24.0, torch 2.15.0: Llama, Qwen2, Mistral and Gemma take partial_rotary_factor, keep it, and rotate whole heads.
#
# Expected: GLM, Phi-3 and StableLM read this key. So other classes that accept it compute by it, too, or refuse it.
# Seen, two layers with the same weights and 0.5 against 1.0: logits of Llama, Qwen2, Mistral and Gemma are equal to the bit; those of GLM
#   and Phi-3 differ. save_pretrained() writes the key in all of them. Nothing warns.
# Why it matters: a converter that writes another family as "llama" with half of each head rotated makes a file that loads, trains, and
#   is another model.
# Usage: ./llama_ignores_partial_rotary_factor.sh (seconds, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0
"$folder/env/bin/python" - "$folder" <<'END'
import json
import pathlib
import sys

import torch
import transformers as hf

assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0"
SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
         "vocab_size": 128, "pad_token_id": 0, "max_position_embeddings": 64}
tokens = torch.arange(1, 33).reshape(1, 32)
seen = {}
for kind in ("llama", "qwen2", "mistral", "gemma", "glm", "phi3"):
    logits, weights = [], None
    for factor in (1.0, 0.5):
        config = hf.AutoConfig.for_model(kind, **SIZES, partial_rotary_factor=factor)
        torch.manual_seed(0)
        model = hf.AutoModelForCausalLM.from_config(config).eval()
        weights = weights or model.state_dict()
        model.load_state_dict(weights)
        with torch.no_grad():
            logits.append(model(tokens).logits)
    model.save_pretrained(pathlib.Path(sys.argv[1]) / kind)
    written = json.loads((pathlib.Path(sys.argv[1]) / kind / "config.json").read_text())
    kept = written.get("partial_rotary_factor", written.get("rope_parameters", {}).get("partial_rotary_factor"))
    seen[kind] = (torch.equal(*logits), kept)
    print(f"{kind}: logits {'are equal' if seen[kind][0] else 'differ'}; the saved file says {kept}")
assert {kind for kind, (equal, _) in seen.items() if equal} == {"llama", "qwen2", "mistral", "gemma"}, seen
assert all(kept == 0.5 for _, kept in seen.values()), seen
END
