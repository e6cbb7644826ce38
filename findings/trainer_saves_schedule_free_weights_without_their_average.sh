#!/usr/bin/env bash
# transformers 5.24.0, schedulefree 1.4.1, torch 2.15.0: Trainer saves the point where gradients are taken, not the average to be used.
#
# Expected: optim="schedule_free_adamw" saves the averaged weights, which take the place of a decayed learning rate. Its authors ask for
#   optimizer.eval() before a checkpoint is saved. Whether a run evaluates changes nothing about what it trains.
# Seen, a small Llama, 50 steps, saved at step 50. With eval_strategy="steps" the file holds the average. Without evaluation it holds
#   other weights, 5.5 % away in norm; optimizer.eval() turns the model in memory into that of the first run to the last bit.
#   A run that evaluates at steps 40 and 60 saves those other weights at step 50, too.
# Why: Trainer calls optimizer.eval() in its evaluation loop alone, and optimizer.train() in each step. Saving calls neither.
# Why it matters: nothing warns. A run without evaluation, or with other save_steps than eval_steps, ships weights that the
#   method does not mean to be used, and its evaluation losses are of weights that no file holds.
# Usage: ./trainer_saves_schedule_free_weights_without_their_average.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0 \
  schedulefree==1.4.1
cat >"$folder/save.py" <<'END'
import sys

import torch
import transformers as hf
from safetensors.torch import load_file

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0"
torch.manual_seed(1)
tokens = torch.randint(0, 64, (64, 16))
rows = [{"input_ids": row, "labels": row.clone()} for row in tokens]


def whole(weights):
    return torch.cat([weights[name].flatten() for name in sorted(weights)])


def train(steps, folder, **how):
    """The trainer after its steps, and the weights in the checkpoint of step 50."""
    torch.manual_seed(0)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4))
    options = hf.TrainingArguments(folder, optim="schedule_free_adamw", learning_rate=1e-2, lr_scheduler_type="constant", max_steps=steps,
                                   save_steps=50, per_device_train_batch_size=8, use_cpu=True, report_to=[], disable_tqdm=True, **how)
    trainer = hf.Trainer(model, options, train_dataset=rows, eval_dataset=rows if how else None, data_collator=hf.default_data_collator)
    trainer.remove_callback(hf.PrinterCallback)
    trainer.train()
    return trainer, load_file(f"{folder}/checkpoint-50/model.safetensors")


def average(trainer, names):
    """The model's weights once the optimizer has been asked for those of evaluation."""
    trainer.optimizer.optimizer.eval()
    return {name: trainer.model.state_dict()[name] for name in names}


print("torch", torch.__version__, "transformers", hf.__version__)
_, evaluated = train(50, sys.argv[1] + "/evaluated", eval_strategy="steps", eval_steps=50)
trainer, silent = train(50, sys.argv[1] + "/silent")
away = ((whole(silent) - whole(evaluated)).norm() / whole(evaluated).norm()).item()
same = torch.equal(whole(average(trainer, evaluated)), whole(evaluated))
print(f"checkpoint of step 50 without evaluation: {away:.3f} away from that with it; after optimizer.eval() the same: {same}")
_, between = train(60, sys.argv[1] + "/between", eval_strategy="steps", eval_steps=20)
rest = ((whole(between) - whole(evaluated)).norm() / whole(evaluated).norm()).item()
print(f"checkpoint of step 50 between evaluations at 40 and 60: {rest:.3f} away")
assert same and abs(away - 0.055) < 0.01 and abs(rest - 0.055) < 0.01
END
"$folder/env/bin/python" -W ignore "$folder/save.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
