#!/usr/bin/env bash
# datasets 5.2.0, torchdata 0.11.0, torch 2.15.0: a stream that was resumed reads only its rest in all later passes, too.
#
# Expected: load_state_dict moves the next pass to where the state was saved. The pass after it begins at the first sample.
# Seen, 48 samples, saved after 28: the resumed pass reads 20, and so does each later pass. 28 samples are never read again.
#   A StatefulDataLoader over the stream does the same without workers and with persistent workers.
# Controls: without a resume each pass reads 48. With workers that are started anew for each pass (persistent_workers=False) the later
#   passes read 48. With set_epoch of another epoch before each later pass they read 48, also after a resume.
# Why: the loaded state stays in the dataset. It is applied at the start of each pass whose epoch is that of the state, and the epoch
#   is 0 unless set_epoch changes it. New workers get a copy of the dataset that never had the state.
# Why it matters: a loop over epochs without set_epoch trains on the rest of the data alone after a restart. The later the checkpoint
#   in the epoch, the less is left. Steps and losses go on, and nothing warns. accelerate's loaders and Trainer call set_epoch.
# Usage: ./datasets_resumed_stream_never_returns_to_its_start.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 datasets==5.2.0 torchdata==0.11.0 numpy==2.4.6
cat >"$folder/passes.py" <<'PY'
import datasets
import torch
import torchdata
from torchdata.stateful_dataloader import StatefulDataLoader

ROWS, SHARDS, BATCH, READ, PASSES = 48, 4, 2, 28, 3
torch.set_num_threads(1)


def stream():
    return datasets.Dataset.from_dict({"number": list(range(ROWS))}).to_iterable_dataset(num_shards=SHARDS)


def direct(resumed, epochs):
    rows = stream()
    if resumed:
        first = iter(rows)
        for _ in range(READ):
            next(first)
        state, rows = rows.state_dict(), stream()
        rows.load_state_dict(state)
    counts = []
    for epoch in range(PASSES):
        if epochs:
            rows.set_epoch(epoch)
        counts.append(len({row["number"] for row in rows}))
    return counts


def loader(resumed, epochs, workers=0, persistent=False):
    def make():
        rows = stream()
        return rows, StatefulDataLoader(rows, batch_size=BATCH, num_workers=workers, persistent_workers=persistent)

    rows, batches = make()
    if resumed:
        first = iter(batches)
        for _ in range(READ // BATCH):
            next(first)
        state = batches.state_dict()
        rows, batches = make()
        batches.load_state_dict(state)
    counts = []
    for epoch in range(PASSES):
        if epochs:
            rows.set_epoch(epoch)
        counts.append(len({number for batch in batches for number in batch["number"].tolist()}))
    return counts


print("datasets", datasets.__version__, "torchdata", torchdata.__version__, "torch", torch.__version__)
assert datasets.__version__ == "5.2.0" and torch.__version__.startswith("2.15.0")
rest, whole = ROWS - READ, ROWS
cases = (("the stream", direct, {}), ("a loader without workers", loader, {}),
         ("a loader with 2 persistent workers", loader, {"workers": 2, "persistent": True}),
         ("a loader with 2 new workers for each pass", loader, {"workers": 2}))
for name, read, settings in cases:
    fresh, resumed, epochs = read(False, False, **settings), read(True, False, **settings), read(True, True, **settings)
    print(f"{name}: {fresh} samples in three passes; resumed {resumed}; resumed, with set_epoch {epochs}")
    later = whole if name.endswith("each pass") else rest
    assert fresh == [whole] * PASSES and resumed == [rest, later, later], "the behaviour changed"
    assert epochs == [rest, whole, whole]
PY
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/passes.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
