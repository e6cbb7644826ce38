#!/usr/bin/env bash
# transformers 5.24.0, galore-torch 1.0, apollo-torch 1.0.3, torch 2.15.0: GaLore and APOLLO do not get Trainer's weight_decay.
#
# Expected: weight_decay, adam_beta1, adam_beta2 and adam_epsilon hold for each optim that is a kind of AdamW. Norms do not decay.
# Seen, weight_decay=0.1, adam_beta1=0.8, adam_beta2=0.95. adamw_torch gets all of it, with 0 for norms. galore_adamw trains with a decay
#   of 0.0 and betas of 0.9 and 0.999 for all weights. apollo_adamw has these for the weights that it does not project, and a decay of 0
#   for the others, too. galore_adafactor has no decay either. One step of galore_adamw with a decay of 0.1 and one of 0 end in the same
#   weights to the last bit; with adamw_torch they differ.
# Why: these handlers build their own groups of parameters and pass the learning rate alone, or the betas for one group.
# Why it matters: nothing warns. A comparison of GaLore with AdamW at one recipe compares another decay and another beta2 as well.
# Usage: ./trainer_ignores_weight_decay_for_galore.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0 \
  bitsandbytes==0.50.2
"$folder/tool/bin/uv" pip install --quiet --no-deps --python "$folder/env/bin/python" galore-torch==1.0 apollo-torch==1.0.3
cat >"$folder/decay.py" <<'END'
import sys

import torch
import transformers as hf

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0"
torch.manual_seed(1)
tokens = torch.randint(0, 64, (8, 16))
rows = [{"input_ids": row, "labels": row.clone()} for row in tokens]


def train(name, decay):
    """The decay and betas of each group of parameters, and the weights after one step."""
    torch.manual_seed(0)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4))
    low_rank = {"optim_target_modules": ["q_proj", "v_proj"], "optim_args": "rank=4"} if name.startswith(("galore", "apollo")) else {}
    options = hf.TrainingArguments(sys.argv[1], optim=name, weight_decay=decay, adam_beta1=0.8, adam_beta2=0.95, learning_rate=1e-2,
                                   max_steps=1, per_device_train_batch_size=8, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True,
                                   lr_scheduler_type="constant", **low_rank)
    trainer = hf.Trainer(model, options, train_dataset=rows, data_collator=hf.default_data_collator)
    trainer.remove_callback(hf.PrinterCallback)
    trainer.train()
    groups = [(group["weight_decay"], group.get("betas")) for group in trainer.optimizer.param_groups]
    return groups, torch.cat([weight.detach().flatten() for weight in model.parameters()])


print("torch", torch.__version__, "transformers", hf.__version__)
default, asked = (0.9, 0.999), (0.8, 0.95)
wanted = {"adamw_torch": ([(0.1, asked), (0.0, asked)], False), "galore_adamw": ([(0.0, default), (0.0, default)], True),
          "galore_adafactor": ([(0.0, None), (0.0, None)], True), "apollo_adamw": ([(0.0, default), (0.0, asked)], True)}
for name, (groups, same) in wanted.items():
    (seen, decayed), (_, plain) = train(name, 0.1), train(name, 0.0)
    print(f"{name:16} decay and betas of its groups {seen}; weights with a decay of 0.1 and of 0 the same: {torch.equal(decayed, plain)}")
    assert seen == groups and torch.equal(decayed, plain) == same, name
END
"$folder/env/bin/python" -W ignore "$folder/decay.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
