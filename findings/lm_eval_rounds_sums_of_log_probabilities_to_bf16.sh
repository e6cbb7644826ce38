#!/usr/bin/env bash
# lm-eval 0.4.13, transformers 5.24.0, torch 2.15.0: log-likelihoods of a bf16 model are rounded to 8 bits, so that answers tie.
#
# Expected: the model computes in bf16, and probabilities and their sums are fp32, as in training's loss and in other backends.
# Seen, a small Llama saved in bf16, 500 questions of four endings that differ in one word, and lm-eval's defaults.
#   Endings of 64 words: 2,000 log-likelihoods have 85 values, the best answers of 12.8 % of the questions tie, and 6.0 % get another
#   choice. 68.2 % are right; 74.2 % if the right ending is always the first, 64.6 % if the last.
#   Endings of 32 words: 112 values, 6.8 % ties, and 70.4 or 65.2 % right by the place of the right one.
# Controls: softmax_dtype="float32" alone, with the same weights and logits: no more than 0.2 % tie, and 69.8 %
#   are right wherever the right one is.
#   dtype="float32" chooses as that does, but for 0.4 % of the questions: bf16 weights and logits are not the cause.
#   Endings of one word, whose log-likelihoods are about -4, hardly tie.
# Why: the logits are bf16, log_softmax keeps their type by default, and the sum over the tokens is bf16, too. Between 64 and 128
#   bf16 has steps of a half, between 128 and 256 of one. The best of equal ones is the first in the list.
#   softmax_dtype is said to help with stability, and is None by default. dtype="auto" takes the type of the checkpoint.
# Why it matters: endings as long as HellaSwag's have such sums, and checkpoints of one run differ by less. Where a task lists the
#   right answer first, as BLiMP does, each tie counts as right.
# Usage: ./lm_eval_rounds_sums_of_log_probabilities_to_bf16.sh (two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" \
    torch==2.15.0 transformers==5.24.0 accelerate==1.15.0 peft==0.21.2 datasets==4.7.0 lm-eval==0.4.13 numpy==2.4.6
cat >"$folder/sums.py" <<'END'
import importlib.metadata
import logging
import sys

import numpy as np
import tokenizers
import torch
import transformers as hf
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

hf.logging.set_verbosity_error()
logging.disable(logging.WARNING)
torch.set_num_threads(1)
print(*(f"{name} {importlib.metadata.version(name)}" for name in ("lm-eval", "transformers", "torch")))
assert importlib.metadata.version("lm-eval") == "0.4.13" and torch.__version__.startswith("2.15.0")
WORDS, CONTEXT, QUESTIONS = 128, 8, 500
folder, draws = sys.argv[1], torch.Generator().manual_seed(0)
chances = torch.softmax(2 * torch.randn(WORDS, WORDS, generator=draws), 1)
NAMES = [f"w{number}" for number in range(WORDS)] + ["<end>"]
tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({name: number for number, name in enumerate(NAMES)}, unk_token="<end>"))
tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>").save_pretrained(folder)


def follow(words):
    return torch.multinomial(chances[words], 1, generator=draws)[:, 0]


def texts(number, length):
    columns = [torch.randint(0, WORDS, (number,), generator=draws)]
    while len(columns) < length:
        columns.append(follow(columns[-1]))
    return torch.stack(columns, 1)


def train():
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(hf.LlamaConfig(
        vocab_size=len(NAMES), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=128))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(400):
        batch = texts(32, 32)
        loss = model(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.bfloat16().save_pretrained(folder)
    return loss.item()


def questions(length):
    """A start, four endings that differ in one word, and the place of the one that the chain drew."""
    result = []
    for row in texts(QUESTIONS, CONTEXT + length).tolist():
        endings, place = [row[CONTEXT:]], int(torch.randint(0, length, (1,), generator=draws))
        while len(endings) < 4:
            other = list(endings[0])
            before = row[CONTEXT + place - 1]
            other[place] = int(follow(torch.tensor([before])))
            if other not in endings:
                endings.append(other)
        order = torch.randperm(4, generator=draws).tolist()
        result.append((row[:CONTEXT], [endings[number] for number in order], order.index(0)))
    return result


def spell(words):
    return " ".join(NAMES[word] for word in words)


def evaluate(asked, **options):
    """Log-likelihoods; the parts of ties, of right answers, and of right ones if the right ending were the first or the last."""
    model = HFLM(pretrained=folder, device="cpu", batch_size=64, **options)
    assert options.get("dtype") or model.model.dtype == torch.bfloat16
    requests = [Instance("loglikelihood", {}, (spell(start), " " + spell(ending)), 0) for start, endings, _ in asked for ending in endings]
    sums = np.array([answer[0] for answer in model.loglikelihood(requests, disable_tqdm=True)]).reshape(-1, 4)
    places = np.array([place for _, _, place in asked])
    mine, best = sums[np.arange(len(sums)), places], sums.max(1)
    alone = (sums == best[:, None]).sum(1) == 1
    return sums, np.mean(~alone), np.mean(sums.argmax(1) == places), np.mean(mine == best), np.mean((mine == best) & alone)


print(f"loss {train():.2f}")
for length in (1, 8, 32, 64):
    asked = questions(length)
    seen, ties, right, first, last = evaluate(asked)
    fine, fine_ties, fine_right, fine_first, fine_last = evaluate(asked, softmax_dtype="float32")
    whole = evaluate(asked, dtype="float32")[0]
    other, rounding = (np.mean(sums.argmax(1) != fine.argmax(1)) for sums in (seen, whole))
    print(f"endings of {length} words, log-likelihoods of {fine.mean():.0f} on average:")
    print(f"  as it is: {len(np.unique(seen))} values of {seen.size}, ties {ties:.1%}, right {right:.1%},"
          f" {first:.1%} with the right ending first and {last:.1%} with it last; another choice than below {other:.1%}")
    print(f"  softmax_dtype=float32: {len(np.unique(fine))} values, ties {fine_ties:.1%}, right {fine_right:.1%},"
          f" {fine_first:.1%} first and {fine_last:.1%} last; another choice in fp32 altogether {rounding:.1%}", flush=True)
    assert seen.dtype == fine.dtype == np.float64 and (torch.from_numpy(seen).bfloat16().double().numpy() == seen).all(), "the behaviour changed"
    assert fine_ties < 0.01 and rounding < 0.01 and fine_first - fine_last < 0.01
    if length == 1:
        assert ties < 0.01 and other < 0.01
    if length >= 32:
        assert ties > 0.04 and other > 0.02 and first - last > 0.03, "the behaviour changed"
END
OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 "$folder/env/bin/python" -W ignore "$folder/sums.py" "$folder/model" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
