#!/usr/bin/env bash
# deepspeed 0.19.8, torch 2.15.0: variable batch sizes make their batches in a time that grows with the cube of the number of samples.
#
# Expected: samples are put into batches of at most max_tokens tokens in one pass: a batch is closed as soon as the next sample is too much.
# Seen, lengths of 32 to 1,024 tokens, max_tokens 4,096: 250, 500 and 1,000 samples need 0.4, 3.2 and 25 million additions of lengths.
#   Twice the samples are 8 times the work. 2,000 samples took 4.4 s of one core, so 10,000 take some 9 minutes and 100,000 some 6 days.
# Control: a single pass that closes full batches makes the very same batches of 1,000 samples with 1,000 additions.
# Why: for each batch the search goes on to the end of the data after the batch is full. It sums all samples up to each possible end anew.
# Why it matters: the fine-tuning sets that this is for have 10,000 to a million samples. Each rank does this before its first step, without
#   any message. In small trials nothing is seen. max_batch_size saves most sums, and the copies of lists still grow with the cube.
# Usage: ./deepspeed_variable_batches_take_cubic_time.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 deepspeed==0.19.8
cat >"$folder/batches.py" <<'END'
import logging
import random
import time

import deepspeed
import torch
from deepspeed.runtime.data_pipeline.data_sampling.variable_batch_size_and_lr import get_dataloader_and_lr_scheduler_for_variable_batch_size

logging.disable(logging.WARNING)
torch.set_num_threads(1)
TOKENS, MULTIPLE = 4096, 4


class Length(int):
    """A number of tokens that counts how often it is added to a sum."""
    additions = 0

    def __radd__(self, other):
        Length.additions += 1
        return int(other) + int(self)


def one_pass(lengths):
    batches, tokens = [[]], 0
    for sample, length in enumerate(lengths):
        tokens += length
        if tokens > TOKENS:
            batches.append([])
            tokens = int(length)
        batches[-1].append(sample)
    return batches


def make(lengths):
    """The batches of samples, as the loader has them."""
    samples = [torch.zeros(length) for length in lengths]
    optimizer = torch.optim.AdamW(torch.nn.Linear(2, 2).parameters())
    loader = get_dataloader_and_lr_scheduler_for_variable_batch_size(
        dataset=samples, dataset_seqlens=lengths, max_tokens=TOKENS, effective_batch_size=MULTIPLE, lr_scheduler_or_optimizer=optimizer)[0]
    return [batch for _, batch in loader.dataset]


print("deepspeed", deepspeed.__version__, "torch", torch.__version__, flush=True)
assert deepspeed.__version__ == "0.19.8" and torch.__version__.startswith("2.15.0")
work = {}
for number in (250, 500, 1000):
    draws = random.Random(0)
    drawn = [draws.randint(32, 1024) for _ in range(number)]
    Length.additions = 0
    batches = make([Length(length) for length in drawn])
    work[number] = Length.additions
    Length.additions = 0
    plain = one_pass([Length(length) for length in drawn])
    start = time.process_time()
    make(drawn)
    took = time.process_time() - start
    print(f"{number} samples: {len(batches)} batches by {work[number]:,} additions, {took:.2f} s without counting; "
          f"in one pass the same by {Length.additions:,}", flush=True)
    assert batches == plain[:len(batches)] and len(plain) - len(batches) <= MULTIPLE and Length.additions == number
for number in (500, 1000):
    growth = work[number] / work[number // 2]
    print(f"from {number // 2} to {number} samples the additions grow {growth:.1f} times")
    assert 6.5 < growth < 9.5 and work[1000] > 5_000_000, "the behaviour changed"
END
DS_ACCELERATOR=cpu OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/batches.py" >"$folder/said" 2>"$folder/errors" ||
  { cat "$folder/said"; tail -20 "$folder/errors"; exit 1; }
grep "samples\|^deepspeed [0-9]" "$folder/said"
