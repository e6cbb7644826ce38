#!/usr/bin/env bash
# trl 1.16.0, transformers 5.24.0, torch 2.15.0: DPO's reference is the checkpoint that a model came from, not the model it is given.
#
# Expected: without ref_model DPOTrainer's documentation promises the policy as it is when training starts. An error message
#   speaks of a copy of the model. The loss before the first update is ln 2 = 0.6931, and all rewards are 0.
# Seen, SFTTrainer for 60 steps and then DPOTrainer on the same model in one script, full training, a rate of 0. The first loss is
#   0.028, and chosen answers have a reward of 3.2. With an adapter of SFT merged it is 0.084.
#   KTO is off in the same way: the loss is 0.15 for 0.50, and chosen answers have a reward of 3.0.
# Controls: 0.6931 and 0.0 if the same weights are passed as ref_model, if they are saved and loaded before, and with
#   precompute_ref_log_probs=True, which reads the model itself.
# Why: a model remembers in its configuration the path that it was loaded from. TRL loads the reference from there.
# Why it matters: nothing warns. DPO begins with solved pairs: gradients are small, rewards and accuracies measure
#   what SFT learned, and beta holds the policy near a model without SFT. GRPO with beta takes the same path (read, not run).
# Usage: ./trl_takes_the_checkpoint_for_the_reference.sh (about two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.16.0 \
  peft==0.21.2 trl==1.16.0 datasets==5.2.0
cat >"$folder/refer.py" <<'END'
import copy
import sys

import peft
import torch
import transformers as hf
import trl
from datasets import Dataset, disable_progress_bars
from tokenizers import Tokenizer, models, pre_tokenizers

hf.logging.set_verbosity_error()
hf.logging.disable_progress_bar()
disable_progress_bars()
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and trl.__version__ == "1.16.0" and peft.__version__ == "0.21.2"
print("torch", torch.__version__, "transformers", hf.__version__, "trl", trl.__version__, "peft", peft.__version__)
BASE, TUNED, OUTPUT = (f"{sys.argv[1]}/{name}" for name in ("base", "tuned", "output"))
words = {f"w{i}": i for i in range(60)} | {"<pad>": 60, "<eos>": 61, "<unk>": 62, "<bos>": 63}
splitter = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
splitter.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=splitter, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", bos_token="<bos>")
draws = torch.Generator().manual_seed(1)


def text(length):
    return " ".join(f"w{word}" for word in torch.randint(0, 60, (length,), generator=draws).tolist())


pairs = Dataset.from_list([{"prompt": text(4) + " ", "chosen": text(6), "rejected": text(6)} for _ in range(32)])
examples = pairs.remove_columns("rejected").rename_column("chosen", "completion")
answers = Dataset.from_list([{"prompt": row["prompt"], "completion": row[kind], "label": kind == "chosen"}
                             for row in pairs for kind in ("chosen", "rejected")])
COMMON = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "report_to": [], "save_strategy": "no", "disable_tqdm": True,
          "logging_steps": 1, "per_device_train_batch_size": 8}
torch.manual_seed(0)
hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, initializer_range=0.1,
                                   num_attention_heads=4, pad_token_id=60, eos_token_id=61, bos_token_id=63)).save_pretrained(BASE)
tokenizer.save_pretrained(BASE)


def run(trainer):
    trainer.remove_callback(hf.PrinterCallback)
    trainer.train()
    return trainer.state.log_history


def tune(adapters):
    """The model after SFT on the chosen answers: trained as a whole, or with adapters that are merged."""
    options = trl.SFTConfig(OUTPUT, max_steps=60, learning_rate=1e-2 if adapters else 3e-3, **COMMON)
    trainer = trl.SFTTrainer(hf.AutoModelForCausalLM.from_pretrained(BASE), args=options, train_dataset=examples, processing_class=tokenizer,
                             peft_config=peft.LoraConfig(r=8, target_modules="all-linear") if adapters else None)
    run(trainer)
    return trainer.model.merge_and_unload().requires_grad_(True) if adapters else trainer.model


def first_step(name, model, reference=None, kind="DPO", **options):
    """What the trainer logs of the first batch. The rate is 0: nothing is ever updated."""
    make, configure, data = (trl.DPOTrainer, trl.DPOConfig, pairs) if kind == "DPO" else (trl.KTOTrainer, trl.KTOConfig, answers)
    configured = configure(OUTPUT, max_steps=1, learning_rate=0.0, **COMMON, **options)
    logged = run(make(model, reference, args=configured, train_dataset=data, processing_class=tokenizer))[0]
    print(f"{kind}, {name}: loss {logged['loss']:.4f}, reward of chosen answers {logged['rewards/chosen']:.4f}", flush=True)
    return logged["loss"], logged["rewards/chosen"]


for adapters, wanted in ((False, 0.028), (True, 0.084)):
    tuned = tune(adapters)
    tuned.save_pretrained(TUNED)
    tokenizer.save_pretrained(TUNED)
    name = "SFT with merged adapters" if adapters else "SFT of all weights"
    loss, reward = first_step(name, copy.deepcopy(tuned))
    assert abs(loss - wanted) < 0.01 and reward > 2, ("the behaviour changed", loss, reward)
    for seen in (first_step(f"{name}, ref_model passed", copy.deepcopy(tuned), copy.deepcopy(tuned)),
                 first_step(f"{name}, saved and loaded", hf.AutoModelForCausalLM.from_pretrained(TUNED)),
                 first_step(f"{name}, precomputed", copy.deepcopy(tuned), precompute_ref_log_probs=True)):
        assert abs(seen[0] - 0.6931) < 1e-4 and abs(seen[1]) < 1e-4, seen
    if not adapters:
        loss, reward = first_step(name, copy.deepcopy(tuned), kind="KTO")
        assert loss < 0.45 and reward > 2, ("the behaviour changed", loss, reward)
        loss, reward = first_step(f"{name}, saved and loaded", hf.AutoModelForCausalLM.from_pretrained(TUNED), kind="KTO")
        assert abs(loss - 0.5) < 1e-4 and abs(reward) < 1e-4
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/refer.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
