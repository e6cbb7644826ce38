#!/usr/bin/env bash
# bitsandbytes 0.50.2, peft 0.21.2, transformers 5.24.0, torch 2.15.0: QLoRA of a mixture of experts holds the routed experts in fp32.
#
# Expected: load_in_4bit makes a model about four times smaller than bf16, as of a dense model, and the preparation for QLoRA turns
#   norms, embedding and head into fp32 and nothing else.
# Seen, layers of Mixtral, Qwen3-MoE, OLMoE, DeepSeek-V3 and GPT-OSS in bf16. load_in_4bit leaves all routed experts in bf16: the model
#   keeps 93 or 94 % of its bytes. prepare_model_for_kbit_training() makes them fp32: the model then has 1.83 to 1.87 times the bytes of
#   bf16, 8 times what 4 bits would be for an expert's weight. Nothing warns.
#   Control: dense Llama of the same sizes has all projections in 4 bits, before and after, and 0.38 and 0.54 of its bytes.
# Why: bitsandbytes replaces linear layers. Since transformers 5 experts are stacked weights and no linear layers.
#   The preparation upcasts all weights of 16 bits that are not 4-bit weights, for it takes these for norms and tables.
# Why it matters: Qwen3-30B-A3B is 61 GB in bf16 and some 17 GB in 4 bits. Prepared for QLoRA it takes some 118 GB on each GPU,
#   and twice the bytes of plain LoRA, which was to be saved on. Skipping the preparation leaves them in bf16.
# Usage: ./qlora_holds_experts_in_fp32.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 peft==0.21.2 \
    accelerate==1.15.0 bitsandbytes==0.50.2 numpy==2.4.6
cat >"$folder/experts.py" <<'END'
import sys
import warnings

import bitsandbytes
import peft
import torch
import transformers as hf

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
print("bitsandbytes", bitsandbytes.__version__, "peft", peft.__version__, "transformers", hf.__version__, "torch", torch.__version__)
assert bitsandbytes.__version__ == "0.50.2" and peft.__version__ == "0.21.2" and hf.__version__ == "5.24.0"
assert torch.__version__.startswith("2.15.0")
SIZES = {"vocab_size": 512, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 4, "tie_word_embeddings": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
MODELS = {
    "Llama": (hf.LlamaConfig, {}),
    "Mixtral": (hf.MixtralConfig, {"num_local_experts": 8}),
    "Qwen3-MoE": (hf.Qwen3MoeConfig, {"num_experts": 16, "moe_intermediate_size": 256, "head_dim": 64}),
    "OLMoE": (hf.OlmoeConfig, {"num_experts": 8}),
    "DeepSeek-V3": (hf.DeepseekV3Config, {"n_routed_experts": 16, "moe_intermediate_size": 256, "n_group": 1, "topk_group": 1,
                                          "num_experts_per_tok": 2, "first_k_dense_replace": 0, "q_lora_rank": 64, "kv_lora_rank": 64,
                                          "qk_rope_head_dim": 32, "qk_nope_head_dim": 32, "v_head_dim": 64}),
    "GPT-OSS": (hf.GptOssConfig, {"num_local_experts": 8, "head_dim": 64}),
}
asked = hf.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16,
                              bnb_4bit_use_double_quant=True)


def size(model):
    """Bytes of all weights, and for each type those of the layers' products: of stacked experts, and of other projections."""
    kinds = {"experts": {}, "projections": {}}
    for name, weight in model.named_parameters():
        stacked = weight.ndim == 3 and ".experts." in name
        if stacked or "_proj." in name or "_proj_" in name:
            types = kinds["experts" if stacked else "projections"]
            kind = "4 bits" if type(weight).__name__ == "Params4bit" else str(weight.dtype).replace("torch.", "")
            types[kind] = types.get(kind, 0) + weight.nbytes
    return sum(weight.nbytes for weight in model.parameters()), kinds


for name, (kind, options) in MODELS.items():
    torch.manual_seed(0)
    whole = hf.AutoModelForCausalLM.from_config(kind(**SIZES, **options)).to(torch.bfloat16)
    place = f"{sys.argv[1]}/{name}"
    whole.save_pretrained(place)
    before, had = size(whole)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = hf.AutoModelForCausalLM.from_pretrained(place, quantization_config=asked, dtype=torch.bfloat16)
        loaded, narrow = size(model)
        prepared, ready = size(peft.prepare_model_for_kbit_training(model))
    said = [str(warning.message) for warning in said if "expert" in str(warning.message) or "quanti" in str(warning.message)]
    print(f"{name}: {before:,} bytes in bf16, {loaded / before:.2f} of them after load_in_4bit, {prepared / before:.2f} after the "
          f"preparation; experts {had['experts'] or 'none'}, then {narrow['experts'] or 'none'}, then {ready['experts'] or 'none'}",
          flush=True)
    assert "4 bits" in narrow["projections"] and not said
    if name == "Llama":
        assert list(narrow["projections"]) == list(ready["projections"]) == ["4 bits"] and prepared < 0.7 * before
    else:
        number = had["experts"]["bfloat16"]
        assert narrow["experts"] == {"bfloat16": number} and ready["experts"] == {"float32": 2 * number}, "the behaviour changed"
        assert loaded > 0.85 * before and prepared > 1.7 * before
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/experts.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
