#!/usr/bin/env bash
# transformers 5.24.0 Trainer (torch 2.15.0, accelerate 1.15.0), mixture of experts: each data rank adds the balance loss once more.
#
# Expected: 8 copies of one sample give the same gradient on one process and on two, cross-entropy and load-balancing loss alike.
# Seen: cross-entropy is right. The router's gradient from the balance loss is 2.0 times as large on 2 ranks with one batch of 4 each,
#   and 8.0 times with 4 micro-batches of 1 on each.
#   Trainer multiplies the model's whole loss by the number of processes: DistributedDataParallel divides by it, and cross-entropy is
#   already divided by the tokens of all ranks (num_items_in_batch). The balance loss is an average, and every rank's is added whole.
# Why it matters: on 64 GPUs with 4 micro-batches router_aux_loss_coef of 0.001 acts as 0.256. A coefficient found on one GPU pushes the
#   router towards uniform choice on many. trainer_balance_loss_grows_with_micro_batches.sh shows the other factor.
# Usage: ./trainer_balance_loss_grows_with_ranks.sh (about 2 minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0
cat >"$folder/balance.py" <<'END'
import os
import sys

import accelerate
import torch
import transformers as hf

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and accelerate.__version__ == "1.15.0"
VOCABULARY, RANKS = 64, int(os.environ.get("WORLD_SIZE", 1))
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
    options = hf.TrainingArguments(sys.argv[1], per_device_train_batch_size=8 // micro_batches // RANKS, max_steps=1, max_grad_norm=0.0,
                                   gradient_accumulation_steps=micro_batches, use_cpu=True, report_to=[], save_strategy="no",
                                   disable_tqdm=True, log_level="error")
    callback = Gradients()
    trainer = hf.Trainer(hf.MixtralForCausalLM(config), options, train_dataset=rows, data_collator=hf.default_data_collator,
                         callbacks=[callback])
    trainer.remove_callback(hf.PrinterCallback)
    trainer.train()
    assert (type(trainer.model_wrapped).__name__ == "DistributedDataParallel") == (RANKS > 1)
    return callback.seen


def sizes(micro_batches):
    """Of the whole gradient of cross-entropy, and of what the balance loss adds to the routers'."""
    entropy, balanced = gradients(0.0, micro_batches), gradients(1.0, micro_batches)
    routers = [balanced[name] - entropy[name] for name in entropy if name.endswith("mlp.gate.weight")]
    return [torch.cat([part.flatten() for part in parts]).norm().item() for parts in (entropy.values(), routers)]


if RANKS == 1:
    print("torch", torch.__version__, "transformers", hf.__version__, "accelerate", accelerate.__version__)
    torch.save(sizes(1), sys.argv[1] + "/alone")
for micro_batches in (1, 4) if RANKS > 1 else ():
    plain, balance = (seen / alone for seen, alone in zip(sizes(micro_batches), torch.load(sys.argv[1] + "/alone")))
    if os.environ["RANK"] == "0":
        print(f"{RANKS} ranks, {micro_batches} micro-batches: gradient of cross-entropy x {plain:.3f}, of the balance loss x {balance:.3f}")
    assert abs(plain - 1) < 1e-3 and abs(balance / RANKS / micro_batches - 1) < 1e-2
END
"$folder/env/bin/python" -W ignore "$folder/balance.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
timeout 500 "$folder/env/bin/python" -W ignore -m torch.distributed.run --standalone --nproc-per-node 2 "$folder/balance.py" "$folder" \
  2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
