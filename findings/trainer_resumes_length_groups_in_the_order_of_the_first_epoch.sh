#!/usr/bin/env bash
# transformers 5.24.0, accelerate 1.15.0, torch 2.15.0: group_by_length resumed in a later epoch reads the order of the first epoch.
#
# Expected: a resumed run trains on the samples that are left of its epoch. Random sampling does so in each epoch.
# Seen, 40 samples of different lengths, 2 a step, 60 steps: three epochs. With random sampling runs resumed at steps 15, 35 and 55 read
#   what the run that was not stopped reads. With train_sampling_strategy="group_by_length" the one resumed at step 15, in the first
#   epoch, does so. Resumed at step 35 the epoch goes on in the order of the first: 7 of the 10 samples that are left were
#   read before the stop. The third epoch then has another order, too. Resumed at step 55 it is 9 of 10.
# Why: the sampler draws its order from the global generator. Its state is loaded after the batches were skipped, so that skipping draws
#   from the seed, which is the order of the first epoch. RandomSampler is exchanged for one that knows its epoch, this one is not.
# Why it matters: nothing warns. Each stop in a later epoch repeats some samples and leaves out as many, and the run is not the one
#   that would have been without a stop. The same data, longer than an epoch and seldom stopped, has no fault.
# Usage: ./trainer_resumes_length_groups_in_the_order_of_the_first_epoch.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0
cat >"$folder/groups.py" <<'END'
import sys

import torch
import transformers as hf

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0"
rows = [{"input_ids": [number] + (number * 7 % 9 + 2) * [50]} for number in range(40)]


def collate(batch):
    length = max(len(row["input_ids"]) for row in batch)
    tokens = torch.tensor([row["input_ids"] + (length - len(row["input_ids"])) * [63] for row in batch])
    return {"input_ids": tokens, "labels": tokens.masked_fill(tokens == 63, -100)}


class Recorder(hf.Trainer):
    def compute_loss(self, model, inputs, **rest):
        self.read += inputs["input_ids"][:, 0].tolist()
        return super().compute_loss(model, inputs, **rest)


def train(strategy, step=None):
    """The samples that a run reads, from its start or from the checkpoint of a step."""
    torch.manual_seed(0)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2))
    options = hf.TrainingArguments(f"{sys.argv[1]}/{strategy}", max_steps=60, save_steps=5, per_device_train_batch_size=2, use_cpu=True,
                                   report_to=[], disable_tqdm=True, remove_unused_columns=False, train_sampling_strategy=strategy)
    trainer = Recorder(model, options, train_dataset=rows, data_collator=collate)
    trainer.remove_callback(hf.PrinterCallback)
    trainer.read = []
    trainer.train(resume_from_checkpoint=step and f"{sys.argv[1]}/{strategy}/checkpoint-{step}")
    return trainer.read


print("torch", torch.__version__, "transformers", hf.__version__)
for strategy in ("random", "group_by_length"):
    whole = train(strategy)
    assert all(sorted(whole[start:start + 40]) == list(range(40)) for start in (0, 40, 80))
    for step in (15, 35, 55):
        read, epoch = train(strategy, step), step // 20 * 40
        again = len(set(read[:10]) & set(whole[epoch:2 * step]))
        first = read[:10] == whole[30:40]
        print(f"{strategy:15} resumed at step {step}: right {read == whole[2 * step:]}, of the 10 samples left {again} were read before,",
              f"order of the first epoch {first}")
        good = strategy == "random" or step == 15
        assert (read == whole[2 * step:]) == good and (good and again == 0 or first and again == {35: 7, 55: 9}[step])
END
"$folder/env/bin/python" -W ignore "$folder/groups.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
