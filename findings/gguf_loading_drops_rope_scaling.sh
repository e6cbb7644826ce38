#!/usr/bin/env bash
# transformers 5.24.0, gguf 0.19.0, torch 2.15.0: a model loaded from a GGUF file loses its RoPE scaling: Llama 3.1's and YaRN's.
#
# Expected: from_pretrained(gguf_file=...) with GgufConfig(dequantize=True) gives the model that the file describes, for more training.
# Seen, fp32 tensors, so that nothing is lost to quantising. Llama 3.1's scaling is in the file as rope_freqs.weight, and Qwen2's YaRN under
#   qwen2.rope.scaling.*, as llama.cpp's converter writes them. Both load with rope_type "default", and save_pretrained
#   writes that. Logits of 96 tokens are off by 105 % and 102 % (random weights). The same weights without scaling load right, to 1e-4.
# Why: the loader's table names rope.freq_base only, the one key kept. The tensor has no name in the model and is skipped. At the default
#   verbosity nothing is printed.
# Why it matters: Llama 3.1 to 3.3 and long Qwen files are other models after loading. What is trained there is fitted to
#   wrong frequencies, and is served by another model if the original configuration is put back.
# Usage: ./gguf_loading_drops_rope_scaling.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 \
  accelerate==1.15.0 gguf==0.19.0
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore - "$folder" 2>"$folder/errors" <<'END' || { tail "$folder/errors"; exit 1; }
import importlib.metadata
import json
import pathlib
import sys

import gguf
import torch
import transformers as hf

torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and importlib.metadata.version("gguf") == "0.19.0"
print("torch", torch.__version__, "transformers", hf.__version__, "gguf", importlib.metadata.version("gguf"))
SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "vocab_size": 96, "max_position_embeddings": 128, "initializer_range": 0.2, "rms_norm_eps": 1e-6, "tie_word_embeddings": False}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
KINDS = {"llama": hf.LlamaConfig, "qwen2": hf.Qwen2Config}
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm", "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
         "model.layers.": "blk."}


def write(path, kind, model, scaling):
    file = gguf.GGUFWriter(path, kind)
    for key, value in (("name", "small"), ("context_length", 128), ("embedding_length", 64), ("block_count", 2),
                       ("feed_forward_length", 128), ("head_count", 4), ("head_count_kv", 2), ("layer_norm_rms_eps", 1e-6),
                       ("rope_freq_base", 1e4), ("rope_dimension_count", 16), ("vocab_size", 96)):
        getattr(file, f"add_{key}")(value)
    if scaling is YARN:
        file.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        file.add_rope_scaling_factor(4.0)
        file.add_rope_scaling_orig_ctx_len(32)
    if scaling is LLAMA3:
        plain = 1e4 ** -(torch.arange(0, 16, 2) / 16)
        file.add_tensor("rope_freqs.weight", (plain / model.model.rotary_emb.inv_freq).numpy())
    for name, weight in model.state_dict().items():
        if kind == "llama" and ("q_proj" in name or "k_proj" in name):  # the order of rotated pairs in GGUF's llama
            weight = weight.reshape(weight.shape[0] // 16, 2, 8, 64).transpose(1, 2).reshape(weight.shape)
        for old, new in NAMES.items():
            name = name.replace(old, new)
        file.add_tensor(name, weight.contiguous().numpy())
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


torch.manual_seed(1)
tokens = torch.randint(0, 96, (1, 96))
for kind, scaling in (("llama", None), ("llama", LLAMA3), ("qwen2", None), ("qwen2", YARN)):
    torch.manual_seed(0)
    rope = {"rope_theta": 1e4, **(scaling or {"rope_type": "default"})}
    model = hf.AutoModelForCausalLM.from_config(KINDS[kind](**SIZES, rope_parameters=rope))
    folder = pathlib.Path(sys.argv[1]) / f"{kind}_{bool(scaling)}"
    folder.mkdir()
    write(folder / "model.gguf", kind, model, scaling)
    loaded = hf.AutoModelForCausalLM.from_pretrained(folder, gguf_file="model.gguf", dtype=torch.float32,
                                                     quantization_config=hf.GgufConfig(dequantize=True))
    loaded.save_pretrained(folder / "saved")
    written = json.loads((folder / "saved" / "config.json").read_text())["rope_parameters"]["rope_type"]
    with torch.no_grad():
        right, seen = model.eval()(tokens).logits, loaded.eval()(tokens).logits
    off = ((seen - right).norm() / right.norm()).item()
    print(f"{kind}, {scaling['rope_type'] if scaling else 'no'} scaling: saved as {written!r}, logits off by {off:.1%}")
    assert written == "default" and (off > 0.8 if scaling else off < 1e-4), (kind, off)
END
