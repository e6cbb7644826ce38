#!/usr/bin/env bash
# transformers 5.24.0, torch 2.15.0: with reduce_lr_on_plateau and metric_for_best_model="accuracy" the rate falls while accuracy rises.
#
# Expected: Trainer knows that a higher accuracy is better (it sets greater_is_better=True itself), keeps the best checkpoint by that,
#   and lowers the rate when accuracy has stopped to rise.
# Seen, a small BERT, 60 evaluations, no options for the schedule. The rate falls from 5e-4 to 5e-5 after evaluation 12, where accuracy
#   has gone from 0.064 to 0.256, then by 10 after each 11: it ends at 5e-9. Accuracy ends at 0.361; 13 evaluations
#   are the best so far. greater_is_better is True.
# Controls, one thing changed: with lr_scheduler_kwargs={"mode": "max"} the rate stays at 5e-4 and accuracy is 1.000. So it is with
#   metric_for_best_model="loss".
# Why: Trainer hands lr_scheduler_kwargs to ReduceLROnPlateau and nothing else. Its mode is "min" by default. It takes the first and
#   lowest accuracy for the best one, and each later evaluation for a bad one.
# Why it matters: metric_for_best_model chooses the schedule's metric, too, so one setting is read in two directions. The
#   better the model gets, the surer the rate falls. The run looks as if it had converged early, and nothing warns.
# Usage: ./trainer_lowers_the_rate_as_accuracy_rises.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.16.0 \
  numpy==2.4.6
cd "$folder"
OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES="" "$folder/env/bin/python" -W ignore - 2>"$folder/errors" <<'END' || { tail "$folder/errors"; exit 1; }
import importlib.metadata
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, PrinterCallback, Trainer, TrainingArguments, logging, set_seed

logging.set_verbosity_error()
torch.set_num_threads(1)
versions = {name: importlib.metadata.version(name) for name in ("torch", "transformers", "accelerate")}
print(*(f"{name} {version}" for name, version in versions.items()))
assert versions["torch"].startswith("2.15.0") and versions["transformers"] == "5.24.0"
WORDS, CLASSES, RATE = 64, 16, 5e-4


def samples(number, seed):
    """Texts of 12 words. The class is named by the one word that is less than 16."""
    draws = torch.Generator().manual_seed(seed)
    rows = torch.randint(CLASSES, WORDS, (number, 12), generator=draws)
    labels = torch.randint(0, CLASSES, (number,), generator=draws)
    places = torch.randint(0, 12, (number,), generator=draws)
    rows[torch.arange(number), places] = labels
    return [{"input_ids": row, "labels": label} for row, label in zip(rows, labels)]


def accuracy(result):
    return {"accuracy": float((result.predictions.argmax(-1) == result.label_ids).mean())}


def train(metric, **options):
    set_seed(0)
    model = BertForSequenceClassification(BertConfig(vocab_size=WORDS, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
                                                     intermediate_size=64, num_labels=CLASSES, max_position_embeddings=16))
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(), learning_rate=RATE, per_device_train_batch_size=32, max_steps=1200, eval_strategy="steps",
        eval_steps=20, logging_steps=20, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True,
        lr_scheduler_type="reduce_lr_on_plateau", metric_for_best_model=metric, lr_scheduler_kwargs=options or None)
    trainer = Trainer(model, arguments, train_dataset=samples(4096, 1), eval_dataset=samples(512, 2), compute_metrics=accuracy)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    seen = [log["eval_accuracy"] for log in trainer.state.log_history if "eval_accuracy" in log]
    rates = [log["learning_rate"] for log in trainer.state.log_history if "learning_rate" in log]
    return arguments.greater_is_better, seen, rates


results = {}
for metric, options in (("accuracy", {}), ("accuracy", {"mode": "max"}), ("loss", {})):
    better, seen, rates = train(metric, **options)
    name = metric + (", mode max" if options else "")
    first = next((step for step, rate in enumerate(rates) if rate < RATE), None)
    fell = "never" if first is None else f"after evaluation {first}, at accuracy {seen[first - 1]:.3f}"
    rises = sum(one > max(seen[:step]) for step, one in enumerate(seen) if step)
    results[name] = seen, rates, first
    print(f"{name}: greater_is_better {better}; accuracy {seen[0]:.3f} at first, {seen[-1]:.3f} at last, {rises} new bests of {len(seen)}; "
          f"the rate fell first {fell}; rates after evaluations 11, 12, 23, 34, 59: "
          + ", ".join(f"{rates[min(at, len(rates) - 1)]:.0e}" for at in (11, 12, 23, 34, 59)), flush=True)
    assert better == (metric == "accuracy")
    if name == "accuracy":
        assert first == 12 and seen[first - 1] > 3 * seen[0] and rates[59] < 1e-3 * RATE and seen[-1] < 0.4, "the behaviour changed"
    else:
        assert rates[59] == RATE and seen[-1] > 0.9
END
