#!/usr/bin/env bash
# trl 1.16.0, transformers 5.24.0, torch 2.15.0: GKDTrainer divides the loss of generated text by the number of tokens of answers that it does not read.
#
# Expected: where the student generates the answers (lmbda=1.0), the answers of the data set play no part. The loss is a mean over generated tokens.
# Seen, lmbda=1.0, the same 8 questions, the same generated text of 256 tokens, and answers of 4, 16 or 32 tokens that nobody reads: the loss is
#   8.00, 2.00 and 1.00 times the mean over generated tokens. The gradient changes by the same factors.
#   lmbda=0.5 (the default), answers of 4 tokens, 12 steps: 7 steps with generated text log a loss of 1.976 and have a gradient of 1.281, 5 steps
#   with given answers 0.233 and 0.291. With answers of 32 tokens the losses are 0.247 and 0.233, and the gradients 0.160 and 0.460.
#   Controls: with answers that are as long as the generated text the loss is that mean. With the count left out, the three losses are equal.
# Why: Trainer counts the labels of the batches as they come from the loader. The text is generated later, in training_step, and replaces the labels.
#   The loss is a sum over the new labels, divided by the old count.
# Why it matters: max_new_tokens is 128. Beside short answers generated batches weigh many times as much, beside long ones a part, so that
#   lmbda is not the share that it says. Gradient clipping meets the one kind and not the other, and the logged loss says which kind came.
# Usage: ./trl_gkd_divides_generated_text_by_the_length_of_unread_answers.sh (two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 trl==1.16.0 \
  accelerate==1.16.0 datasets==5.2.0 numpy==2.4.6
cat >"$folder/lengths.py" <<'END'
import sys

import tokenizers
import torch
import transformers as hf
import trl
from datasets import Dataset
from trl.experimental.gkd import GKDConfig, GKDTrainer

torch.set_num_threads(1)
hf.logging.set_verbosity_error()
print("trl", trl.__version__, "transformers", hf.__version__, "torch", torch.__version__, flush=True)
assert trl.__version__ == "1.16.0" and hf.__version__ == "5.24.0" and torch.__version__.startswith("2.15.0")
WORDS = ["[pad]", "[eos]", "[user]", "[bot]"] + [f"w{i}" for i in range(60)]
words = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="w0"))
words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[pad]", eos_token="[eos]")
tokenizer.chat_template = ("{% for m in messages %}{{ '[user] ' if m.role == 'user' else '[bot] ' }}{{ m.content }} "
                           "{{ '' if m.role == 'user' else '[eos]' }}{% endfor %}{% if add_generation_prompt %}[bot]{% endif %}")
draws = torch.Generator().manual_seed(1)
QUESTIONS = [" ".join(WORDS[i] for i in torch.randint(4, 64, (6,), generator=draws)) for _ in range(96)]


def model(seed):
    torch.manual_seed(seed)
    return hf.AutoModelForCausalLM.from_config(hf.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        initializer_range=0.2, pad_token_id=0, bos_token_id=None, eos_token_id=None))


class Watched(GKDTrainer):
    """Notes the generated text and the sum of the divergences; changes nothing."""

    @staticmethod
    def generate_on_policy_outputs(model, inputs, generation_config):
        found = GKDTrainer.generate_on_policy_outputs(model, inputs, generation_config)
        NOTES["generated"].append(found[2][found[2] != -100].tolist())
        return found

    @staticmethod
    def generalized_jsd_loss(*logits, labels, num_items_in_batch=None, **rest):
        NOTES["sum"] += GKDTrainer.generalized_jsd_loss(*logits, labels=labels, reduction="sum", **rest).item()
        return GKDTrainer.generalized_jsd_loss(*logits, labels=labels, num_items_in_batch=num_items_in_batch, **rest)

    def training_step(self, *given, **named):
        before = len(NOTES["generated"])
        loss = super().training_step(*given, **named)
        NOTES["kinds"].append(len(NOTES["generated"]) > before)
        return loss


def run(answer, lmbda, steps, counted=True, micro_batches=1):
    """Logs of a run whose answers have `answer` tokens, the end of the text among them."""
    NOTES.update(generated=[], sum=0.0, kinds=[])
    rows = [{"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": " ".join(["w7"] * (answer - 1))}]}
            for question in QUESTIONS[:8 * steps]]
    student = model(0)
    if not counted:
        student.accepts_loss_kwargs = False
    options = GKDConfig(output_dir=sys.argv[1], lmbda=lmbda, max_new_tokens=32, per_device_train_batch_size=8 // micro_batches,
                        gradient_accumulation_steps=micro_batches, max_steps=steps, logging_steps=1, optim="sgd", learning_rate=1e-4,
                        max_grad_norm=1e9, report_to=[], use_cpu=True, bf16=False, gradient_checkpointing=False, disable_tqdm=True,
                        save_strategy="no", seed=3)
    trainer = Watched(model=student, teacher_model=model(7), args=options, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
    trainer.train()
    return [(log["loss"], float(log["grad_norm"])) for log in trainer.state.log_history if "grad_norm" in log]


NOTES, first = {}, None
for micro_batches in (1, 4):
    for answer in (4, 16, 32):
        [(loss, norm)] = run(answer, 1.0, 1, micro_batches=micro_batches)
        texts, mean = NOTES["generated"], NOTES["sum"] / 256
        assert sum(map(len, texts)) == 256
        if answer == 4:
            first, strongest = texts, norm
        [(free, _)] = run(answer, 1.0, 1, counted=False, micro_batches=micro_batches)
        print(f"{micro_batches} micro-batches, answers of {answer} tokens, same generated text: {texts == first}, mean divergence {mean:.4f},",
              f"loss {loss:.4f} ({loss / mean:.2f} times), gradient {norm:.4f}; loss without the count {free:.4f}", flush=True)
        assert texts == first and abs(free / mean - 1) < 0.01
        assert abs(loss / mean / (32 / answer) - 1) < 0.01 and abs(strongest / norm / (answer / 4) - 1) < 0.01, "the behaviour changed"
for answer in (4, 32):
    logs = run(answer, 0.5, 12)
    kinds = NOTES["kinds"]
    means = [[sum(log[i] for log, kind in zip(logs, kinds) if kind == which) / kinds.count(which) for i in (0, 1)] for which in (True, False)]
    print(f"lmbda=0.5, answers of {answer} tokens: {kinds.count(True)} steps with generated text, loss {means[0][0]:.3f}, gradient {means[0][1]:.3f};",
          f"{kinds.count(False)} with given answers, loss {means[1][0]:.3f}, gradient {means[1][1]:.3f}", flush=True)
    ratio = means[0][0] / means[1][0]
    assert ratio > 6 and means[0][1] > 3 * means[1][1] if answer == 4 else ratio < 1.5 and means[0][1] < means[1][1], "the behaviour changed"
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/lengths.py" "$folder/out" >"$folder/log" 2>"$folder/errors" ||
  { tail "$folder/errors" "$folder/log"; exit 1; }
grep -v "^{" "$folder/log"
