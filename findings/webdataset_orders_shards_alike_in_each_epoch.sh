#!/usr/bin/env bash
# webdataset 1.0.2, torch 2.15.0: shardshuffle gives each epoch the same order of shards, and with_epoch then never reads the last ones.
#
# Expected: WebDataset(urls, shardshuffle=100) without a seed shuffles the shards anew for each pass, as .shuffle() does with samples.
# Seen, 10 shards of 100 samples, 5 epochs: the order of the shards is the same in all five. With .shuffle(100).with_epoch(500) five
#   epochs of 500 read fewer than 650 of the 1,000 samples, and the shards at the end of the order never.
# Controls: detshuffle=True gives five orders, and five epochs of 500 read more than 900 samples. With 2 workers of a DataLoader, which
#   are started anew for each epoch, it gives one order, too; with persistent_workers=True five.
# Why: the dataset draws one seed when it is made and hands it to the stage that shuffles shards. Each pass makes its generator of this
#   seed. detshuffle counts passes, but a new worker begins to count at 0.
# Why it matters: where a source, a language or a date fills shards, each epoch meets these in the same order. A run whose epochs are
#   shorter than the data trains on a part of it alone, for any number of epochs. Nothing warns.
# Usage: ./webdataset_orders_shards_alike_in_each_epoch.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 webdataset==1.0.2 numpy==2.4.6
cat >"$folder/shards.py" <<'PY'
import importlib.metadata
import sys

import torch
import webdataset

SHARDS, SIZE, EPOCHS, EPOCH = 10, 100, 5, 500
torch.set_num_threads(1)
for shard in range(SHARDS):
    with webdataset.TarWriter(f"{sys.argv[1]}/{shard:02d}.tar") as tar:
        for place in range(SIZE):
            tar.write({"__key__": f"{shard * SIZE + place:05d}", "cls": shard * SIZE + place})


def data(**settings):
    return webdataset.WebDataset(f"{sys.argv[1]}/{{00..{SHARDS - 1:02d}}}.tar", shardshuffle=100, **settings).decode()


def passes(source):
    return [[int(sample["cls"]) for sample in source] for _ in range(EPOCHS)]


def orders(source):
    epochs = passes(source)
    assert all(sorted(epoch) == list(range(SHARDS * SIZE)) for epoch in epochs)
    return len({tuple(dict.fromkeys(number // SIZE for number in epoch)) for epoch in epochs})


def loader(dataset, **settings):
    return torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2, **settings)


print("webdataset", importlib.metadata.version("webdataset"), "torch", torch.__version__)
assert importlib.metadata.version("webdataset") == "1.0.2" and torch.__version__.startswith("2.15.0")
for name, source, expected in (("shardshuffle", data(), 1), ("shardshuffle, 2 workers", loader(data()), 1),
                               ("detshuffle", data(detshuffle=True), EPOCHS), ("detshuffle, 2 workers", loader(data(detshuffle=True)), 1),
                               ("detshuffle, 2 persistent workers", loader(data(detshuffle=True), persistent_workers=True), EPOCHS)):
    seen = orders(source)
    print(f"{name}: {seen} different orders of shards in {EPOCHS} epochs")
    assert seen == expected, "the behaviour changed"
for name, settings in (("shardshuffle", {}), ("detshuffle", {"detshuffle": True, "seed": 0})):
    epochs = passes(data(**settings).shuffle(100).with_epoch(EPOCH))
    assert all(len(epoch) == EPOCH for epoch in epochs)
    read = {number for epoch in epochs for number in epoch}
    untouched = SHARDS - len({number // SIZE for number in read})
    print(f"{name}, with_epoch({EPOCH}): {len(read)} of {SHARDS * SIZE} samples in {EPOCHS} epochs; {untouched} shards are never read")
    assert (len(read) < 650 and untouched >= 3) if not settings else (len(read) > 900 and untouched == 0), "the behaviour changed"
PY
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/shards.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
