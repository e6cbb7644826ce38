#!/usr/bin/env bash
# transformers 5.24.0 Trainer (torch 2.15.0, accelerate 1.15.0), mixture of experts: accumulation multiplies the balance loss.
#
# Expected: the same samples in 1, 4 or 8 micro-batches give the same gradient, cross-entropy and load-balancing loss alike.
# Seen: cross-entropy is right. The router's gradient from the balance loss alone is 4.0 times as large with 4 micro-batches and
#   8.0 times with 8 (8 copies of one sample, so that the balance of a micro-batch is that of the batch).
#   The model divides cross-entropy by num_items_in_batch; its balance loss is an average over the micro-batch and is added whole.
#   Trainer leaves its own division out, because the model takes num_items_in_batch.
# Why it matters: router_aux_loss_coef tuned on one layout is another coefficient on the next: with 16 micro-batches 0.001 acts as
#   0.016. The router is pushed towards uniform choice at the cost of the loss, and layouts of one global batch do not compare.
# Usage: ./trainer_balance_loss_grows_with_micro_batches.sh (about a minute, and the download of PyTorch)
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
VOCABULARY = 64
torch.manual_seed(1)
tokens = torch.randint(0, VOCABULARY, (16,))
rows = [{"input_ids": tokens, "labels": tokens.clone()} for _ in range(8)]


class Gradients(hf.TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.seen = {name: p.grad.double().clone() for name, p in model.named_parameters() if p.grad is not None}


def gradients(coefficient, micro_batches):
    torch.manual_seed(0)
    config = hf.MixtralConfig(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                              num_key_value_heads=2, num_local_experts=4, output_router_logits=True, router_aux_loss_coef=coefficient)
    options = hf.TrainingArguments(sys.argv[1], per_device_train_batch_size=8 // micro_batches, max_steps=1, max_grad_norm=0.0,
                                   gradient_accumulation_steps=micro_batches, use_cpu=True, report_to=[], save_strategy="no",
                                   disable_tqdm=True, log_level="error")
    callback = Gradients()
    trainer = hf.Trainer(hf.MixtralForCausalLM(config), options, train_dataset=rows, data_collator=hf.default_data_collator,
                         callbacks=[callback])
    trainer.remove_callback(hf.PrinterCallback)
    trainer.train()
    return callback.seen


def size(parts):
    return torch.cat([part.flatten() for part in parts]).norm().item()


entropy = {m: gradients(0.0, m) for m in (1, 4, 8)}
balanced = {m: gradients(1.0, m) for m in (1, 4, 8)}
routers = [name for name in entropy[1] if name.endswith("mlp.gate.weight")]
assert len(routers) == 2, routers
whole = size([balanced[1][name] - entropy[1][name] for name in routers])
assert whole > 1e-4
for m in 4, 8:
    plain = size(entropy[m].values()) / size(entropy[1].values())
    balance = size([balanced[m][name] - entropy[m][name] for name in routers]) / whole
    print(f"{m} micro-batches against 1: gradient of cross-entropy x {plain:.3f}, router's gradient of the balance loss x {balance:.3f}")
    assert abs(plain - 1) < 1e-3 and abs(balance / m - 1) < 1e-2
END
