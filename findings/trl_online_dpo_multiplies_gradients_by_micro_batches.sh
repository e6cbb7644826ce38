#!/usr/bin/env bash
# trl 1.16.0, transformers 5.24.0, torch 2.15.0: OnlineDPOTrainer adds gradients of micro-batches up, and logs a loss that is averaged.
#
# Expected: 8 questions in 1, 2, 4 or 8 micro-batches give one gradient. DPOTrainer and GRPOTrainer of the same package do so.
# Seen, OnlineDPOTrainer, one step over the same 8 questions and completions: the loss is 0.6931 in each run. The gradient is 1.00, 2.00, 4.00
#   and 8.00 times that of one batch. With SGD the weights go 2.00, 4.00 and 8.00 times as far.
#   Controls: the same trainer with the loss divided before its backward, and DPOTrainer on the same completions, have 1.00 throughout.
# Why: the trainer has a training_step of its own. It calls backward on the mean of the micro-batch and divides only what it returns for
#   the log by gradient_accumulation_steps. Trainer sets accelerate's own number of steps to 1, so that backward divides nothing.
# Why it matters: accumulation is how people fit two long completions a question. The default clipping at a norm of 1.0 then acts at an eighth
#   of it, and steps of SGD are longer. Loss, rewards and margins in the log look right; grad_norm alone differs. AdamW's steps without
#   clipping hardly change.
# Usage: ./trl_online_dpo_multiplies_gradients_by_micro_batches.sh (two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 trl==1.16.0 \
  accelerate==1.16.0 datasets==5.2.0 numpy==2.4.6
cat >"$folder/steps.py" <<'END'
import os
import sys

import tokenizers
import torch
import transformers as hf
import trl
from datasets import Dataset
from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer

torch.set_num_threads(1)
hf.logging.set_verbosity_error()
print("trl", trl.__version__, "transformers", hf.__version__, "torch", torch.__version__, flush=True)
assert trl.__version__ == "1.16.0" and hf.__version__ == "5.24.0" and torch.__version__.startswith("2.15.0")
WORDS = ["[pad]", "[eos]"] + [f"w{i}" for i in range(62)]
words = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="w0"))
words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[pad]", eos_token="[eos]")
draws = torch.Generator().manual_seed(1)
QUESTIONS = [" ".join(WORDS[i] for i in torch.randint(2, 64, (6,), generator=draws)) for _ in range(8)]
ANSWERS = {question: torch.randint(2, 64, (2, 8), generator=draws) for question in QUESTIONS}


def model():
    torch.manual_seed(0)
    return hf.AutoModelForCausalLM.from_config(hf.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        initializer_range=0.2, pad_token_id=0, bos_token_id=None, eos_token_id=1))


def reward(completion_ids, **rest):
    return [float(sum(completion) % 17) for completion in completion_ids]


class Online(OnlineDPOTrainer):
    """Two given completions for each question in place of sampled ones, so that all runs learn from the same."""

    def _generate(self, model, prompts, images=None):
        questions = torch.tensor(self.processing_class(prompts)["input_ids"] * 2)
        answers = torch.stack([ANSWERS[prompt][which] for which in (0, 1) for prompt in prompts])
        return questions, torch.ones_like(questions), answers, torch.ones_like(answers), None


def step(kind, micro_batches, clip=1e9):
    options = dict(per_device_train_batch_size=8 // micro_batches, gradient_accumulation_steps=micro_batches, max_steps=1, logging_steps=1,
                   optim="sgd", learning_rate=1e-3, max_grad_norm=clip, output_dir=sys.argv[1], report_to=[], use_cpu=True, bf16=False,
                   gradient_checkpointing=False, disable_tqdm=True, save_strategy="no")
    if kind == "DPO":
        pairs = []
        for question, two in ANSWERS.items():
            better, worse = sorted(two.tolist(), key=lambda ids: -(sum(ids) % 17))
            pairs.append({"prompt": question, "chosen": tokenizer.decode(better), "rejected": tokenizer.decode(worse)})
        trainer = trl.DPOTrainer(model(), model(), trl.DPOConfig(**options), train_dataset=Dataset.from_list(pairs),
                                 processing_class=tokenizer)
    else:
        trainer = Online(model(), reward_funcs=reward, args=OnlineDPOConfig(max_new_tokens=8, **options),
                         train_dataset=Dataset.from_dict({"prompt": QUESTIONS}), processing_class=tokenizer)
        backward = trainer.accelerator.backward
        if kind == "divided":
            trainer.accelerator.backward = lambda loss, **rest: backward(loss / micro_batches, **rest)
    trainer.train()
    start, end = (torch.cat([weight.detach().flatten() for weight in one.parameters()]) for one in (model(), trainer.model))
    log = trainer.state.log_history[0]
    return log["loss"], float(log["grad_norm"]), (end - start).norm().item()


for kind, name in (("online", "OnlineDPOTrainer"), ("divided", "OnlineDPOTrainer, loss divided before backward"), ("DPO", "DPOTrainer")):
    _, whole, way = step(kind, 1)
    for micro_batches in (2, 4, 8):
        loss, norm, further = step(kind, micro_batches)
        print(f"{name}, {micro_batches} micro-batches: loss {loss:.4f}, gradient {norm / whole:.2f} times that of one batch,",
              f"weights go {further / way:.2f} times as far", flush=True)
        factor = micro_batches if kind == "online" else 1
        assert abs(loss - 0.6931) < 1e-3 and abs(norm / whole / factor - 1) < 0.01 > abs(further / way / factor - 1), "the behaviour changed"
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/steps.py" "$folder/out" >"$folder/log" 2>"$folder/errors" ||
  { tail "$folder/errors" "$folder/log"; exit 1; }
grep -v "^{" "$folder/log"
