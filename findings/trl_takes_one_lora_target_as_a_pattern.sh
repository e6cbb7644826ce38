#!/usr/bin/env bash
# trl 1.16.0, peft 0.21.2, transformers 5.24.0, torch 2.15.0: one word of --lora_target_modules is no name of a layer.
#
# Expected: `trl sft --use_peft --lora_target_modules o_proj` adapts the layers named o_proj, as two words adapt the layers of both names.
# Seen: ModelConfig makes a text of a list with one word. PEFT takes a list as ends of names and a text as a regular expression of whole
#   names, which "o_proj" matches nowhere: get_peft_model() raises. Two words adapt 4 layers of a model of two layers, "o_proj" none,
#   and ".*o_proj" 2, so that a pattern is the way to name one kind of layer. In a list with another word the pattern matches nothing.
# Why it matters: the same YAML works with two entries and fails with one, after the model was loaded. A list of patterns, taken from a
#   recipe with one, loses them without a word, if another entry names a layer.
# Usage: ./trl_takes_one_lora_target_as_a_pattern.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 peft==0.21.2 trl==1.16.0
cat >"$folder/adapt.py" <<'END'
import peft
import torch
import transformers as hf
import trl
from peft import get_peft_model

assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and trl.__version__ == "1.16.0" and peft.__version__ == "0.21.2"
config = hf.LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)


def adapted(*words):
    """The number of layers with adapters, or the error's first words."""
    arguments, = hf.HfArgumentParser(trl.ModelConfig).parse_args_into_dataclasses(["--use_peft", "--lora_target_modules", *words])
    try:
        model = get_peft_model(hf.LlamaForCausalLM(config), trl.get_peft_config(arguments))
    except ValueError as error:
        return " ".join(str(error).split()[:5])
    return sum(name.endswith("lora_A.default.weight") for name, _ in model.named_parameters())


seen = {words: adapted(*words.split()) for words in ("q_proj o_proj", "o_proj", ".*o_proj", "q_proj .*o_proj")}
print("\n".join(f"--lora_target_modules {words:16}{how}" for words, how in seen.items()))
if list(seen.values()) != [4, "Target modules o_proj not found", 2, 2]:
    raise SystemExit("it is otherwise now")
END
"$folder/env/bin/python" -W ignore "$folder/adapt.py"
