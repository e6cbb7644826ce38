#!/usr/bin/env bash
# datatrove 0.10.1, torch 2.15.0: after dataset[0] in the main process, the workers of a DataLoader read wrong windows of the tokenized file.
#
# Expected: a look at one sample changes nothing. Each window of a DatatroveFolderDataset is then read once, whatever the number of workers.
# Seen, the first 8,000 of 9,000 windows of 2,049 tokens in one file, 4 workers, 3 passes: after a look at dataset[0] some thousands of the 24,000
#   windows hold tokens of others, 1,875 in one run (it is a race, and the number differs). Most are parts of two windows in one.
#   Others are read twice, and some windows are never read. At the end of a file a window may be too short, which raises.
#   Controls: without the look all 24,000 are right. So they are after a look with one worker or none, or at another dataset.
# Why: the file of tokens is opened at the first access and kept. Workers that fork share the open file with the main process and with each other,
#   and so its position. One worker's seek comes between the seek and the read of another.
# Why it matters: people print a sample, its length or its largest token before training. No shape is wrong and nothing warns. A look
#   through a second DatatroveFolderDataset of the same folder is safe.
# Usage: ./datatrove_workers_mix_up_windows_after_a_look_at_one.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 datatrove==0.10.1 numpy==2.4.6
cat >"$folder/windows.py" <<'END'
import importlib.metadata
import sys

import numpy
import torch
from datatrove.utils.dataset import DatatroveFolderDataset
from torch.utils.data import DataLoader, Subset

WINDOWS, LENGTH, PASSES = 8000, 2048, 3  # the file has 1,000 windows more
torch.set_num_threads(1)
print("datatrove", importlib.metadata.version("datatrove"), "torch", torch.__version__, flush=True)
assert importlib.metadata.version("datatrove") == "0.10.1" and torch.__version__.startswith("2.15.0")
numpy.repeat(numpy.arange(WINDOWS + 1000, dtype=numpy.uint16), LENGTH + 1).tofile(sys.argv[1] + "/tokens.ds")  # each window repeats its number


def read(look, workers):
    """Of all passes: windows that are not what they should be, those of two windows, and those that were never read."""
    wrong = mixed = never = 0
    for _ in range(PASSES):
        dataset, other = (DatatroveFolderDataset(sys.argv[1], seq_len=LENGTH, filename_pattern="*.ds", token_size=2) for _ in range(2))
        if look != "no look":
            looked_at = other if look == "a look at another dataset" else dataset
            assert looked_at[0]["input_ids"].tolist() == [0] * (LENGTH + 1)
        part = Subset(dataset, range(WINDOWS))
        rows = [row for batch in DataLoader(part, batch_size=8, num_workers=workers) for row in batch["input_ids"]]
        assert len(rows) == WINDOWS and all(len(row) == LENGTH + 1 for row in rows)
        wrong += sum(bool((row != number).any()) for number, row in enumerate(rows))
        mixed += sum(bool((row != row[0]).any()) for row in rows)
        never += len(set(range(WINDOWS)) - set(torch.stack(rows).unique().tolist()))
    return wrong, mixed, never


for look, workers in (("no look", 4), ("a look", 0), ("a look", 1), ("a look at another dataset", 4), ("a look", 4)):
    wrong, mixed, never = read(look, workers)
    print(f"{look}, {workers} workers: {wrong} of {WINDOWS * PASSES} windows are wrong, {mixed} of these hold tokens of two,",
          f"{never} were never read", flush=True)
    assert wrong > 5 if (look, workers) == ("a look", 4) else (wrong, mixed, never) == (0, 0, 0), "the behaviour changed"
END
mkdir "$folder/data"
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/windows.py" "$folder/data" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
