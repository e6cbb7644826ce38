#!/usr/bin/env bash
# transformers 5.24.0, accelerate 1.15.0, torch 2.15.0: eval_loss depends on the batch size of evaluation, as each batch weighs by its rows.
#
# Expected: the loss of training is a mean over tokens, whatever the micro-batches. eval_loss is the same mean over the evaluation data:
#   same weights and same samples give the same number.
# Seen, 16 samples of 32 tokens, half of which have 30 tokens with labels and half one, all weights fixed. Training logs 6.710 with a
#   batch of 16 and with 16 micro-batches of 1. eval_loss is 6.710 at per_device_eval_batch_size=16 and 4.694 at 1: samples with one
#   label weigh as much as those with 30. In batches of 2 it depends on the order of the samples: 6.710 when each batch has one of both
#   kinds, 4.694 when they are sorted.
# Why: training passes the number of labels of all micro-batches and ranks to the model. Evaluation does not, takes the mean of each
#   batch and repeats it for each row.
# Why it matters: eval_loss chooses the best checkpoint and stops runs. Fine-tuning on answers has such labels. More GPUs or another
#   evaluation batch move the curve, and training and evaluation cannot be compared.
# Usage: ./trainer_evaluates_rows_and_trains_tokens.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0
cat >"$folder/evaluate.py" <<'END'
import sys

import torch
import transformers as hf

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0"
torch.manual_seed(1)
rows = []
for number in range(16):
    tokens = torch.randint(0, 64, (32,))
    labels = tokens.clone()
    labels[:2] = -100
    if number % 2:
        tokens, labels = torch.full((32,), 5), torch.full((32,), -100)
        labels[31] = 7
    rows.append({"input_ids": tokens, "labels": labels})
sorted_rows = rows[::2] + rows[1::2]


def losses(batch, micro_batches, evaluation, data=rows):
    """The loss that training logs at a rate of 0, eval_loss, and the mean over all tokens with labels."""
    torch.manual_seed(0)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4,
                                               initializer_range=0.3))
    options = hf.TrainingArguments(sys.argv[1], learning_rate=0.0, max_steps=1, logging_steps=1, per_device_train_batch_size=batch,
                                   gradient_accumulation_steps=micro_batches, per_device_eval_batch_size=evaluation, use_cpu=True,
                                   report_to=[], save_strategy="no", disable_tqdm=True)
    trainer = hf.Trainer(model, options, train_dataset=data, eval_dataset=data, data_collator=hf.default_data_collator)
    trainer.remove_callback(hf.PrinterCallback)
    trainer.train()
    with torch.no_grad():
        whole = {name: torch.stack([row[name] for row in data]) for name in ("input_ids", "labels")}
        tokens = model.eval()(**whole).loss.item()
    return trainer.state.log_history[0]["loss"], trainer.evaluate()["eval_loss"], tokens


print("torch", torch.__version__, "transformers", hf.__version__)
for name, settings, wanted in (("16, evaluation 16", (16, 1, 16), 6.710), ("16 times 1, evaluation 1", (1, 16, 1), 4.694),
                               ("16, evaluation 2", (16, 1, 2), 6.710), ("16, evaluation 2, sorted", (16, 1, 2, sorted_rows), 4.694)):
    training, evaluation, tokens = losses(*settings)
    print(f"batch of {name:25} loss of training {training:.3f}, eval_loss {evaluation:.3f}, mean over tokens {tokens:.3f}")
    assert abs(training - 6.710) < 5e-3 and abs(tokens - 6.710) < 5e-3 and abs(evaluation - wanted) < 5e-3
END
"$folder/env/bin/python" -W ignore "$folder/evaluate.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
