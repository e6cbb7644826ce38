#!/usr/bin/env bash
# transformers 5.24.0 Trainer (torch 2.15.0, accelerate 1.15.0): bf16=True on a bf16 checkpoint keeps no weight and no moment in fp32.
#
# Expected: bf16=True is "mixed precision": products in bf16, weights and AdamW's moments in fp32, as version 4 loaded them (read, not run).
# Seen: from_pretrained() and from_config() take the checkpoint's type, and Trainer leaves it so on one process and under DDP.
#   Weights, gradients and both moments of a bf16 checkpoint are in bf16. After 100 steps at a learning rate of 1e-5 15 % of the
#   weights differ from the checkpoint, and the loss has fallen by 0.014. With dtype=torch.float32 99.9 % do, and it fell by 0.064.
#   An update of 1e-5 is less than half a step of bf16 at 0.02, so most weights round back to where they were. No warning.
# Why it matters: a recipe of version 4 trains a fraction of what it did. Under FSDP accelerate turns the same weights into fp32 (read, not
#   run), so the step from one GPU or DDP to FSDP changes the training. In fp32 a weight with its states takes 16 bytes instead of 8.
# Usage: ./trainer_trains_weights_in_the_type_of_the_checkpoint.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0
"$folder/env/bin/python" -W ignore - "$folder" 2>"$folder/errors" <<'END' || { tail "$folder/errors"; exit 1; }
import sys

import accelerate
import torch
import transformers as hf

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
print("torch", torch.__version__, "transformers", hf.__version__, "accelerate", accelerate.__version__)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and accelerate.__version__ == "1.15.0"
checkpoint = sys.argv[1] + "/checkpoint"
torch.manual_seed(0)
config = hf.LlamaConfig(vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4)
hf.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(checkpoint)
torch.manual_seed(1)
rows = [{"input_ids": tokens, "labels": tokens} for tokens in torch.randint(0, 512, (64, 32))]


def trained(**given):
    model = hf.AutoModelForCausalLM.from_pretrained(checkpoint, **given)
    before = [weight.detach().float().clone() for weight in model.parameters()]
    options = hf.TrainingArguments(sys.argv[1], per_device_train_batch_size=2, max_steps=100, learning_rate=1e-5,
                                   lr_scheduler_type="constant", bf16=True, use_cpu=True, logging_steps=10, report_to=[],
                                   save_strategy="no", disable_tqdm=True, log_level="error")
    trainer = hf.Trainer(model, options, train_dataset=rows, data_collator=hf.default_data_collator)
    trainer.remove_callback(hf.PrinterCallback)
    trainer.train()
    moved = sum(int((weight.detach().float() != old).sum()) for weight, old in zip(model.parameters(), before))
    moments = {state[key].dtype for state in trainer.optimizer.state.values() for key in ("exp_avg", "exp_avg_sq")}
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    return {weight.dtype for weight in model.parameters()}, moments, moved / model.num_parameters(), losses[0] - losses[-1]


for given, kind, least, most in ({}, torch.bfloat16, 0.10, 0.20), ({"dtype": torch.float32}, torch.float32, 0.99, 1.0):
    weights, moments, moved, fall = trained(**given)
    print(f"{given or 'no dtype'}: weights {weights}, moments {moments}, {moved:.1%} of the weights moved, loss fell by {fall:.3f}")
    assert weights == moments == {kind} and least < moved <= most
assert hf.AutoModelForCausalLM.from_config(hf.AutoConfig.from_pretrained(checkpoint)).dtype == torch.bfloat16
END
