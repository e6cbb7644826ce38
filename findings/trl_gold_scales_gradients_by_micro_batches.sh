#!/usr/bin/env bash
# trl 1.16.0, transformers 5.24.0, torch 2.15.0: GOLDTrainer divides gradients by the number of micro-batches, and with ULD multiplies them.
#
# Expected: 8 samples in 1, 2 or 4 micro-batches give one loss and one gradient, as in GKDTrainer of the same package.
# Seen, GOLDTrainer, one step over the same 8 samples with lmbda=0.0, so that nothing is random. Same tokenizer for both models (the divergence of JSD):
#   2 and 4 micro-batches give 0.50 and 0.25 times the loss and the gradient of one batch. use_uld_loss=True (a teacher with a tokenizer of its own):
#   2.00 and 4.00 times.
#   Controls: GKDTrainer has 1.00 with the same loss. ULD divided by the micro-batches before its backward has 1.00, JSD multiplied by them, too.
# Why: GOLD's loader gives the samples of the whole step in each of its batches, and each micro-batch takes a slice. Trainer counts the labels
#   of all these batches, so that the count is too large by the number of micro-batches. JSD is divided by it. ULD is a mean of the
#   micro-batch and takes no notice of the count, but the model takes keyword arguments, and so Trainer does not divide it either.
# Why it matters: with 16 micro-batches a recipe that moves from JSD to ULD has 256 times the gradient. Clipping at 1.0 meets all steps of the one
#   and none of the other. The logged loss is off by the same factor, so that it does not look wrong beside the gradient.
# Usage: ./trl_gold_scales_gradients_by_micro_batches.sh (two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 trl==1.16.0 \
  accelerate==1.16.0 datasets==5.2.0 numpy==2.4.6
cat >"$folder/steps.py" <<'END'
import sys

import tokenizers
import torch
import transformers as hf
import trl
from datasets import Dataset
from trl.experimental.gkd import GKDConfig, GKDTrainer
from trl.experimental.gold import GOLDConfig, GOLDTrainer

torch.set_num_threads(1)
hf.logging.set_verbosity_error()
print("trl", trl.__version__, "transformers", hf.__version__, "torch", torch.__version__, flush=True)
assert trl.__version__ == "1.16.0" and hf.__version__ == "5.24.0" and torch.__version__.startswith("2.15.0")
TEXT = "the cat sat on the mat and the dog ran to the end of the road"


def byte_level(size):
    whole = tokenizers.Tokenizer(tokenizers.models.BPE())
    whole.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    whole.decoder = tokenizers.decoders.ByteLevel()
    whole.train_from_iterator([TEXT], tokenizers.trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=["[pad]", "[eos]", "[user]", "[bot]"]))
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=whole, pad_token="[pad]", eos_token="[eos]")
    tokenizer.chat_template = ("{% for m in messages %}{{ '[user]' if m.role == 'user' else '[bot]' }}{{ m.content }}"
                               "{{ '' if m.role == 'user' else '[eos]' }}{% endfor %}{% if add_generation_prompt %}[bot]{% endif %}")
    return tokenizer


def model(seed, tokenizer):
    torch.manual_seed(seed)
    return hf.AutoModelForCausalLM.from_config(hf.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, initializer_range=0.2, pad_token_id=0, bos_token_id=None, eos_token_id=1))


draws = torch.Generator().manual_seed(1)
speak = lambda count: " ".join(TEXT.split()[i] for i in torch.randint(0, 16, (count,), generator=draws))
ROWS = [{"messages": [{"role": "user", "content": speak(6)}, {"role": "assistant", "content": speak(10)}]} for _ in range(8)]
MINE, OTHER = byte_level(300), byte_level(270)
OTHER.save_pretrained(sys.argv[1])


def step(kind, micro_batches):
    options = dict(per_device_train_batch_size=8 // micro_batches, gradient_accumulation_steps=micro_batches, max_steps=1, logging_steps=1,
                   optim="sgd", learning_rate=1e-4, max_grad_norm=1e9, output_dir=sys.argv[1] + "/run", report_to=[], use_cpu=True,
                   bf16=False, gradient_checkpointing=False, disable_tqdm=True, save_strategy="no", lmbda=0.0)
    given = dict(model=model(0, MINE), train_dataset=Dataset.from_list(ROWS), processing_class=MINE)
    if kind == "GKD":
        trainer = GKDTrainer(teacher_model=model(7, MINE), args=GKDConfig(**options), **given)
    elif kind.startswith("JSD"):
        trainer = GOLDTrainer(teacher_model=model(7, MINE), args=GOLDConfig(**options), **given)
    else:
        trainer = GOLDTrainer(teacher_model=model(7, OTHER), args=GOLDConfig(
            use_uld_loss=True, teacher_tokenizer_name_or_path=sys.argv[1], **options), **given)
    if kind.endswith("mended"):
        backward, factor = trainer.accelerator.backward, micro_batches if kind.startswith("JSD") else 1 / micro_batches
        trainer.accelerator.backward = lambda loss, **rest: backward(loss * factor, **rest)
    trainer.train()
    log = trainer.state.log_history[0]
    return log["loss"], float(log["grad_norm"])


for kind, expected in (("JSD", lambda m: 1 / m), ("ULD", lambda m: m), ("GKD", lambda m: 1),
                       ("JSD, mended", lambda m: 1), ("ULD, mended", lambda m: 1)):
    loss, norm = step(kind, 1)
    for micro_batches in (2, 4):
        seen, gradient = step(kind, micro_batches)
        print(f"{kind}: one batch has a loss of {loss:.4f} and a gradient of {norm:.4f},",
              f"{micro_batches} micro-batches {seen / loss:.2f} and {gradient / norm:.2f} times these", flush=True)
        assert abs(gradient / norm / expected(micro_batches) - 1) < 0.02, "the behaviour changed"
        assert "mended" in kind or abs(seen / loss / expected(micro_batches) - 1) < 0.02, "the behaviour changed"
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/steps.py" "$folder/out" >"$folder/log" 2>"$folder/errors" ||
  { tail "$folder/errors" "$folder/log"; exit 1; }
grep -v "^{" "$folder/log"
