#!/usr/bin/env bash
# transformers 5.24.0, trl 1.16.0, torch 2.15.0: NEFTune's noise falls when samples share a row, by padding_free or packing.
#
# Expected: padding_free=True and packing=True change the layout in memory, not what is trained. With neftune_noise_alpha of 5 the noise of
#   a sample of L tokens is at most 5 / sqrt(L times hidden size), as its paper says.
# Seen, SFTTrainer, 16 samples of 16 tokens, hidden size 256: with 16 padded rows the noise reaches 0.0781, which is 5 / sqrt(16 x 256).
#   With padding_free and with packing it reaches 0.0195, a quarter of it: the hook takes the length of the row, 256 tokens, for L.
# Why it matters: nothing raises. The noise depends on the micro-batch: 64 samples in a row have an eighth of it. A run that is packed
#   to be faster loses the regularisation that it was tuned with; alpha must grow with the root of the samples in a row.
# Usage: ./neftune_noise_shrinks_without_padding.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0 trl==1.16.0
cat >"$folder/noise.py" <<'END'
import sys

import torch
import transformers as hf
import trl
from datasets import Dataset, disable_progress_bars
from tokenizers import Tokenizer, models

hf.logging.set_verbosity_error()
disable_progress_bars()
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and trl.__version__ == "1.16.0"
words = {f"w{i}": i for i in range(62)} | {"<pad>": 62, "<eos>": 63}
tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<pad>")), pad_token="<pad>",
                                       eos_token="<eos>")
SAMPLES, LENGTH, HIDDEN, ALPHA = 16, 16, 256, 5.0
torch.manual_seed(0)
samples = torch.randint(0, 62, (SAMPLES, LENGTH)).tolist()


def noise(rows, **how):
    """Shape of the batch and the largest element that enters the first layer. The embedding is 0, so that all of it is noise."""
    torch.manual_seed(1)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=64, hidden_size=HIDDEN, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
                                               bos_token_id=None, eos_token_id=63, pad_token_id=62))
    torch.nn.init.zeros_(model.model.embed_tokens.weight)
    seen = []
    model.model.layers[0].register_forward_pre_hook(lambda layer, given: seen.append(given[0].detach()))
    options = trl.SFTConfig(sys.argv[1], per_device_train_batch_size=rows, max_steps=1, learning_rate=0.0, neftune_noise_alpha=ALPHA,
                            use_cpu=True, bf16=False, gradient_checkpointing=False, report_to=[], save_strategy="no", disable_tqdm=True, **how)
    trainer = trl.SFTTrainer(model, options, train_dataset=Dataset.from_dict({"input_ids": samples}), processing_class=tokenizer)
    trainer.remove_callback(hf.PrinterCallback)
    trainer.train()
    return tuple(seen[0].shape[:2]), seen[0].abs().max().item()


ways = {"padded": (SAMPLES, {}), "padding_free": (SAMPLES, {"padding_free": True, "max_length": None}),
        "packing": (1, {"packing": True, "max_length": SAMPLES * LENGTH})}
seen = {name: noise(rows, **how) for name, (rows, how) in ways.items()}
for name, (shape, largest) in seen.items():
    print(f"{name:13} batch of {shape[0]:2} x {shape[1]:3} tokens: noise of at most {largest:.4f}")
assert {name: (shape, round(largest, 4)) for name, (shape, largest) in seen.items()} == {
    "padded": ((16, 16), 0.0781), "padding_free": ((1, 256), 0.0195), "packing": ((1, 256), 0.0195)}
END
"$folder/env/bin/python" -W ignore "$folder/noise.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
