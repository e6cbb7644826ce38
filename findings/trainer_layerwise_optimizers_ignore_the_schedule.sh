#!/usr/bin/env bash
# transformers 5.24.0, accelerate 1.15.0, galore-torch 1.0, apollo-torch 1.0.3, torch 2.15.0: layerwise optimizers train at the full rate.
#
# Expected: lr_scheduler_type and warmup_steps hold for each optim. transformers has code that makes a scheduler for each weight's optimizer.
# Seen, learning_rate=0.01, 5 steps of warmup, then a linear decay to 0, 20 steps, galore_adamw_layerwise and
#   apollo_adamw_layerwise. The log has rates from 0.0000 to 0.0100 and back to 0.0007. The optimizer of each weight is at 0.0100 in all steps.
#   The run ends in the weights of a run with lr_scheduler_type="constant", to the last bit.
# Controls: galore_adamw and apollo_adamw follow the schedule, and end in other weights than with a constant rate. The layerwise ones do
#   so, too, when a callback makes the same scheduler for each weight's optimizer and steps it at the end of each step.
# Why: get_scheduler knows the layerwise optimizer by its class. train() makes the scheduler after accelerate has wrapped the optimizer, so
#   that the class is another one. It gets a scheduler of the placeholder, which is logged and moves nothing.
#   (Called with the bare optimizer, get_scheduler raises with this version of PyTorch.)
# Why it matters: a run without warmup and decay, at GaLore's large rates, looks like one with them in the log and in the plot.
#   Nothing warns.
# Usage: ./trainer_layerwise_optimizers_ignore_the_schedule.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0 \
  bitsandbytes==0.50.2
"$folder/tool/bin/uv" pip install --quiet --no-deps --python "$folder/env/bin/python" galore-torch==1.0 apollo-torch==1.0.3
cat >"$folder/rates.py" <<'PYTHON'
import sys

import accelerate
import torch
import transformers as hf

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
print("torch", torch.__version__, "transformers", hf.__version__, "accelerate", accelerate.__version__)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and accelerate.__version__ == "1.15.0"
RATE, STEPS, WARMUP = 1e-2, 20, 5
draws = torch.Generator().manual_seed(1)
rows = [{"input_ids": row, "labels": row.clone()} for row in torch.randint(0, 64, (8 * STEPS, 16), generator=draws)]
wanted = [RATE * min(step / WARMUP, (STEPS - step) / (STEPS - WARMUP)) for step in range(STEPS)]


class Rates(hf.TrainerCallback):
    """The smallest and the largest rate of the optimizers that move the weights, at the beginning of each step. It can give them schedulers."""

    def __init__(self, mend):
        self.mend, self.seen, self.schedulers = mend, [], []

    def parts(self, optimizer):
        optimizer = getattr(optimizer, "optimizer", optimizer)
        return list(getattr(optimizer, "optimizer_dict", {0: optimizer}).values())

    def on_train_begin(self, arguments, state, control, **given):
        if self.mend:
            self.schedulers = [hf.get_scheduler("linear", part, WARMUP, STEPS) for part in self.parts(given["optimizer"])]

    def on_step_begin(self, arguments, state, control, **given):
        rates = [group["lr"] for part in self.parts(given["optimizer"]) for group in part.param_groups]
        self.seen.append((min(rates), max(rates)))

    def on_step_end(self, arguments, state, control, **given):
        for scheduler in self.schedulers:
            scheduler.step()


def train(name, schedule, mend=False):
    """The rates that are used, those in the log, and the weights at the end."""
    torch.manual_seed(0)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4))
    options = hf.TrainingArguments(
        sys.argv[1], optim=name, optim_target_modules=["self_attn", "mlp"], optim_args="rank=8, update_proj_gap=10", learning_rate=RATE,
        lr_scheduler_type=schedule, warmup_steps=WARMUP, max_steps=STEPS, per_device_train_batch_size=8, logging_steps=1,
        use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True)
    rates = Rates(mend)
    trainer = hf.Trainer(model, options, train_dataset=rows, data_collator=hf.default_data_collator, callbacks=[rates])
    trainer.remove_callback(hf.PrinterCallback)
    trainer.train()
    logged = [entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry]
    return rates.seen, logged, torch.cat([weight.detach().flatten() for weight in model.parameters()])


def text(rates):
    return " ".join(f"{rate:.4f}" for rate in rates[::4] + rates[-1:])


for name in ("galore_adamw", "apollo_adamw", "galore_adamw_layerwise", "apollo_adamw_layerwise"):
    _, _, constant = train(name, "constant")
    for mend in (False, True) if name.endswith("layerwise") else (False,):
        seen, logged, weights = train(name, "linear", mend)
        same = torch.equal(weights, constant)
        used = [least for least, most in seen]
        print(f"{name}{', a scheduler for each weight' if mend else ''}: rates of every fourth step and the last, logged {text(logged)},",
              f"used {text(used)}; weights as with a constant rate: {same}", flush=True)
        assert all(abs(least - most) < 1e-9 for least, most in seen)
        if name.endswith("layerwise") and not mend:
            assert all(abs(rate - right) < 1e-9 for rate, right in zip(logged, wanted, strict=True))
            assert all(rate == RATE for rate in used) and same, "the behaviour changed"
        else:
            assert all(abs(rate - right) < 1e-9 for rate, right in zip(used, wanted, strict=True)) and not same
PYTHON
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/rates.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
