#!/usr/bin/env bash
# peft 0.21.2, transformers 5.24.0, trl 1.16.0, torch 2.15.0: Trainer and SFTTrainer never lower AdaLoRA's rank; TRL drops its penalty, too.
#
# Expected: AdaLoraConfig(init_r=12, target_r=4, total_step=...) begins with rank 12 and ends with 4 on average, as PEFT's own loop does.
# Seen, a small Llama, two adapters, 20 steps. A loop that calls update_and_allocate() after each step ends with 8 singular values that
#   are not 0. Trainer and SFTTrainer end with 24, all they began with; tinit, tfinal, deltaT, total_step and target_r have no effect.
#   The penalty that keeps the factors orthogonal is in the loop's and in Trainer's first gradient: with a weight of 0.5 lora_A's is 90
#   and 105 times as large as without. With SFTTrainer both gradients are the same to the last bit.
# Why: PEFT asks its caller for update_and_allocate() between backward and the next zero_grad(), and no trainer calls it. PEFT adds the
#   penalty to the loss of the model's output, and TRL computes its own from log-probabilities.
# Why it matters: nothing warns. The run is LoRA of rank 12 with a third factor, three times the adapters that were asked for.
# Usage: ./trainer_never_lowers_the_rank_of_adalora.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0 \
  peft==0.21.2 trl==1.16.0
cat >"$folder/ranks.py" <<'END'
import sys

import peft
import torch
import transformers as hf
import trl
from datasets import Dataset, disable_progress_bars
from tokenizers import Tokenizer, models

hf.logging.set_verbosity_error()
disable_progress_bars()
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and trl.__version__ == "1.16.0" and peft.__version__ == "0.21.2"
words = {f"w{i}": i for i in range(62)} | {"<pad>": 62, "<eos>": 63}
tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<pad>")), pad_token="<pad>",
                                       eos_token="<eos>")
torch.manual_seed(1)
samples = torch.randint(0, 62, (64, 16))
rows = [{"input_ids": row, "labels": row.clone()} for row in samples]


class Gradients(hf.TrainerCallback):
    first = None

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        if self.first is None:
            self.first = torch.cat([weight.grad.flatten() for name, weight in model.named_parameters() if "lora_A" in name])


def train(kind, penalty):
    """Singular values other than 0 after 20 steps, and the gradient of lora_A in the first step."""
    torch.manual_seed(0)
    base = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4,
                                              pad_token_id=62, eos_token_id=63, bos_token_id=None, initializer_range=0.1))
    model = peft.get_peft_model(base, peft.AdaLoraConfig(init_r=12, target_r=4, tinit=2, tfinal=2, deltaT=1, total_step=20,
                                                         target_modules=["q_proj", "v_proj"], orth_reg_weight=penalty, task_type="CAUSAL_LM"))
    for name, weight in model.named_parameters():
        if "lora_E" in name:
            torch.nn.init.normal_(weight, std=0.02)
    callback = Gradients()
    options = {"per_device_train_batch_size": 8, "max_steps": 20, "learning_rate": 1e-3, "use_cpu": True, "report_to": [],
               "max_grad_norm": 0.0, "save_strategy": "no", "disable_tqdm": True}
    if kind == "loop":
        optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], 1e-3)
        for step in range(20):
            tokens = samples[step * 8 % 64:][:8]
            model(input_ids=tokens, labels=tokens).loss.backward()
            callback.on_pre_optimizer_step(None, None, None, model=model)
            optimizer.step()
            model.base_model.update_and_allocate(step + 1)
            optimizer.zero_grad()
    else:
        if kind == "SFTTrainer":
            options |= {"bf16": False, "gradient_checkpointing": False}
            trainer = trl.SFTTrainer(model, trl.SFTConfig(sys.argv[1], **options), processing_class=tokenizer, callbacks=[callback],
                                     train_dataset=Dataset.from_dict({"input_ids": samples.tolist()}))
        else:
            trainer = hf.Trainer(model, hf.TrainingArguments(sys.argv[1], **options), train_dataset=rows, callbacks=[callback],
                                 data_collator=hf.default_data_collator)
        trainer.remove_callback(hf.PrinterCallback)
        trainer.train()
    return sum(int((weight != 0).sum()) for name, weight in model.named_parameters() if "lora_E" in name), callback.first


print("torch", torch.__version__, "transformers", hf.__version__, "trl", trl.__version__, "peft", peft.__version__)
for kind, values in {"loop": 8, "Trainer": 24, "SFTTrainer": 24}.items():
    (left, with_penalty), (_, without) = train(kind, 0.5), train(kind, 0.0)
    ratio = (with_penalty.norm() / without.norm()).item()
    print(f"{kind:10} singular values left of 24: {left}; gradient of lora_A with the penalty and without: {ratio:.3f} times")
    assert left == values and (torch.equal(with_penalty, without) if kind == "SFTTrainer" else ratio > 50), kind
END
"$folder/env/bin/python" -W ignore "$folder/ranks.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
