#!/usr/bin/env bash
# megatron-core 0.19.2: a run that is made longer than an epoch, or than one more, reads its samples in another order from where it resumes.
#
# Expected: the order depends on the seed and the data. More training samples append to it, so that a resumed run goes on where it stopped.
# Seen, 2,000 samples: a run planned for 1,900 stops at 1,600 and goes on to 2,100. Of its next 400 samples it has read 323 already, and 323
#   others are left out at the end of that epoch. Without the longer plan 300 of 300 are new. A plan of 1,600 that becomes 1,900 keeps the order.
#   The samples are shuffled by the same random numbers after the documents of each planned epoch, so their order depends on the epochs planned.
#   A plan whose last epoch is 80 % full or more shuffles all epochs as one: planned for 3,900, the first 2,000 samples hold 1,507 different ones.
# Why it matters: --train-iters or --train-samples raised before a resume, a usual thing, makes a run repeat data that it should see once.
#   consumed_samples in the checkpoint counts places in the order, not samples. Nothing compares the orders.
# Usage: ./megatron_reorders_the_data_of_a_longer_run.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6 packaging==26.4
# It asks for Python 3.12, and has a wheel for 3.11.
python3 -m pip install --quiet --root-user-action ignore --no-deps --ignore-requires-python --target "$folder/megatron" \
  megatron-core==0.19.2
cat >"$folder/order.py" <<'END'
import importlib.metadata
import sys

import numpy
import torch
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

LENGTH, SAMPLES = 16, 2000  # one document for each sample


class Words:
    eod, pad, vocab_size, unique_identifiers = 40000, 40001, 40002, {"words": "numbers"}


prefix = sys.argv[1] + "/corpus"
builder = IndexedDatasetBuilder(prefix + ".bin", dtype=numpy.int32)
for document in range(SAMPLES):
    builder.add_document(torch.arange(document * LENGTH, (document + 1) * LENGTH, dtype=torch.int32), [LENGTH])
builder.finalize(prefix + ".idx")


def order(planned):
    """Which samples a run of so many reads, one after another. The first token of a sample is another in each."""
    config = GPTDatasetConfig(random_seed=1234, sequence_length=LENGTH, blend=([prefix], None), split="100,0,0", tokenizer=Words(),
                              reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False)
    samples = BlendedMegatronDatasetBuilder(GPTDataset, [planned, 0, 0], lambda: True, config).build()[0]
    return [int(samples[place]["tokens"][0]) for place in range(planned)]


print("megatron-core", importlib.metadata.version("megatron-core"), "torch", torch.__version__)
for planned, stopped, longer, same in ((1600, 1500, 1900, True), (1900, 1600, 1900, True), (1900, 1600, 2100, False), (3800, 1600, 4200, False)):
    before, after = order(planned), order(longer)
    read = set(before[:stopped])
    following = after[stopped:min(longer, SAMPLES)]
    again, left = sum(sample in read for sample in following), SAMPLES - len(read | set(following))
    print(f"planned {planned}, stopped at {stopped}, resumed for {longer}: {'the same' if before[:stopped] == after[:stopped] else 'another'} order; "
          f"of the next {len(following)} samples {again} were read before; {left} were never read in {min(longer, SAMPLES)}")
    assert (before[:stopped] == after[:stopped]) == same, "the behaviour changed"
    if planned < SAMPLES:
        assert again == (0 if same else 323), again
once = len(set(order(3900)[:SAMPLES]))
print(f"planned 3900: the first {SAMPLES} samples hold {once} different ones; planned 3500: {len(set(order(3500)[:SAMPLES]))}")
assert once == 1507, once
END
PYTHONPATH="$folder/megatron" OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/order.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
