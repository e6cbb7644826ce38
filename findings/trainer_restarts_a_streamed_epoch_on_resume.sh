#!/usr/bin/env bash
# transformers 5.24.0, accelerate 1.15.0, datasets 4.7.0, torch 2.15.0: resumed past its first pass, a streamed run reads from the start.
#
# Expected: a resumed run goes on with the sample after the last one that it read. Trainer skips what was read, streamed data included.
# Seen, 40 samples, 2 a step, 60 steps: three passes. Resumed at step 15, in the first pass, the run reads the same samples as one that
#   was not stopped. Resumed at step 35 it should read samples 30 to 39 and then a third pass. It reads a pass from sample 0 and then
#   0 to 9: in all, samples 0 to 9 are trained on four times and samples 30 to 39 twice, not three times each.
#   With the same samples in a list, resumed runs are right in each pass. IterableDataset of torch and of datasets both go wrong.
# Why: without a length Trainer takes all steps for one epoch. At step 35 it skips 35 batches of a pass that has 20, is left with
#   none, and begins the next pass at its start.
# Why it matters: nothing warns, besides the log that says that it skips batches, and skipping reads the data for nothing. A run that is
#   resumed often in later passes reads the start of its data each time and seldom the end.
# Usage: ./trainer_restarts_a_streamed_epoch_on_resume.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0 datasets==4.7.0
cat >"$folder/resume.py" <<'END'
import sys

import datasets
import torch
import transformers as hf

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and datasets.__version__ == "4.7.0"
rows = [{"input_ids": [number, 0, 1, 2], "labels": [number, 0, 1, 2]} for number in range(40)]


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(rows)


class Recorder(hf.Trainer):
    def compute_loss(self, model, inputs, **rest):
        self.read += inputs["input_ids"][:, 0].tolist()
        return super().compute_loss(model, inputs, **rest)


def train(data, folder, step=None):
    """The samples that a run reads, from its start or from the checkpoint of a step."""
    torch.manual_seed(0)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2))
    options = hf.TrainingArguments(folder, max_steps=60, save_steps=5, per_device_train_batch_size=2, use_cpu=True, report_to=[],
                                   disable_tqdm=True, remove_unused_columns=False)
    trainer = Recorder(model, options, train_dataset=data, data_collator=hf.default_data_collator)
    trainer.remove_callback(hf.PrinterCallback)
    trainer.read = []
    trainer.train(resume_from_checkpoint=step and f"{folder}/checkpoint-{step}")
    return trainer.read


print("torch", torch.__version__, "transformers", hf.__version__, "datasets", datasets.__version__)
for name, data in {"list": rows, "torch": Stream(), "datasets": datasets.Dataset.from_list(rows).to_iterable_dataset()}.items():
    whole = train(data, f"{sys.argv[1]}/{name}")
    assert sorted(whole) == sorted(3 * list(range(40)))
    for step in (15, 35):
        read, right = train(data, f"{sys.argv[1]}/{name}", step), whole[2 * step:]
        print(f"{name:8} resumed at step {step}: right {read == right}; should read {right[:12]}, reads {read[:12]}")
        assert (read == right) == (name == "list" or step == 15)
    if name != "list":
        times = [(whole[:70] + read).count(number) for number in range(40)]
        print(f"{name:8} first to last sample, times read in both runs: {times}")
        assert right == [*range(30, 40), *range(40)] and times == 10 * [4] + 20 * [3] + 10 * [2]
END
"$folder/env/bin/python" -W ignore "$folder/resume.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
