#!/usr/bin/env bash
# transformers 5.24.0 Trainer (torch 2.15.0, accelerate 1.15.0): accumulation and data ranks multiply the gradient of most heads.
#
# Expected: 8 samples in one step give one gradient, whether they come as 1 batch of 8, as 4 micro-batches of 2,
#   or as 4 micro-batches of 1 on each of 2 ranks. Trainer documents that it corrects the loss for accumulation.
# Seen: that holds for causal language models. Sequence classification, regression, masked language models, T5 and BART get
#   4 times the gradient with 4 micro-batches, and (the first two of them run) 8 times on 2 ranks. The logged loss is 4 times too large.
#   Trainer takes every forward() with **kwargs for one that divides by num_items_in_batch, and leaves its own division out.
#   These heads take **kwargs and average over their micro-batch all the same.
# Why it matters: with clipping at 1.0 (the default) a run on 8 ranks with 8 micro-batches is clipped as if its gradient were
#   64 times as large, so nearly every step is. Reward and classifier runs cannot be compared between layouts.
# Usage: ./trainer_multiplies_gradients_of_most_heads.sh (about 2 minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0
cat >"$folder/gradients.py" <<'END'
import os
import sys

import torch
import transformers as hf

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
VOCABULARY, RANKS = 64, int(os.environ.get("WORLD_SIZE", 1))
LLAMA = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, pad_token_id=0)
T5 = dict(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0, decoder_start_token_id=0)
BART = dict(vocab_size=VOCABULARY, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=32, decoder_ffn_dim=32, dropout=0.0, max_position_embeddings=64, forced_eos_token_id=2)
BERT = dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=32,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
torch.manual_seed(1)
tokens = [torch.randint(3, VOCABULARY, (16,)) for _ in range(8)]
TEXT, CLASS, NUMBER = list(tokens), [torch.tensor(i % 3) for i in range(8)], [torch.tensor(i / 4 - 1) for i in range(8)]
HEADS = [  # name, model, labels, whether its gradient grows
    ("LlamaForCausalLM", lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA)), TEXT, False),
    ("LlamaForSequenceClassification", lambda: hf.LlamaForSequenceClassification(hf.LlamaConfig(**LLAMA, num_labels=3)), CLASS, True),
    ("the same, regression", lambda: hf.LlamaForSequenceClassification(hf.LlamaConfig(**LLAMA, num_labels=1)), NUMBER, True),
    ("BertForMaskedLM", lambda: hf.BertForMaskedLM(hf.BertConfig(**BERT)), TEXT, True),
    ("T5ForConditionalGeneration", lambda: hf.T5ForConditionalGeneration(hf.T5Config(**T5)), TEXT, True),
    ("BartForConditionalGeneration", lambda: hf.BartForConditionalGeneration(hf.BartConfig(**BART)), TEXT, True),
]


class Norm(hf.TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.value = torch.stack([p.grad.double().norm() for p in model.parameters() if p.grad is not None]).norm().item()


def step(make, labels, micro_batches):
    torch.manual_seed(0)
    seen = Norm()
    options = hf.TrainingArguments(sys.argv[1], per_device_train_batch_size=8 // micro_batches // RANKS, max_steps=1, max_grad_norm=0.0,
                                   gradient_accumulation_steps=micro_batches, use_cpu=True, report_to=[], save_strategy="no",
                                   disable_tqdm=True, logging_steps=1, log_level="error")
    rows = [{"input_ids": t, "labels": y} for t, y in zip(tokens, labels)]
    trainer = hf.Trainer(make(), options, train_dataset=rows, data_collator=hf.default_data_collator, callbacks=[seen])
    trainer.remove_callback(hf.PrinterCallback)
    trainer.train()
    return seen.value, trainer.state.log_history[0]["loss"]


for name, make, labels, grows in HEADS if RANKS == 1 else HEADS[:3]:
    path = f"{sys.argv[1]}/{name.replace(' ', '_')}"
    if RANKS == 1:
        whole, loss = step(make, labels, 1)
        torch.save(whole, path)
        split, logged = step(make, labels, 4)
        print(f"{name:32s} 4 micro-batches: gradient x {split / whole:.3f}, logged loss x {logged / loss:.3f}", flush=True)
        assert abs(split / whole - (4 if grows else 1)) < 1e-2 and abs(logged / loss - (4 if grows else 1)) < 1e-2, name
        continue
    split = step(make, labels, 4)[0] / torch.load(path)
    if os.environ["RANK"] == "0":
        print(f"{name:32s} 4 micro-batches on 2 ranks: gradient x {split:.3f}", flush=True)
    assert abs(split - (8 if grows else 1)) < 2e-2, (name, split)
END
"$folder/tool/bin/uv" pip list --python "$folder/env/bin/python" 2>/dev/null | grep -E '^(torch|transformers|accelerate) '
"$folder/env/bin/python" "$folder/gradients.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
timeout 500 "$folder/env/bin/python" -m torch.distributed.run --standalone --nproc-per-node 2 "$folder/gradients.py" "$folder" \
  2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
