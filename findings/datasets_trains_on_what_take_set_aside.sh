#!/usr/bin/env bash
# datasets 4.7.0, torch 2.15.0: take(n) and skip(n) of one stream overlap if they are read with different numbers of workers or ranks.
#
# Expected: stream.take(80) for validation and stream.skip(80) for training have no sample in common. One call is the rest of the other.
# Seen, 8 shards of 100 samples: validation read without workers is samples 0 to 79. Training with 2, 4 or 8 workers reads 40, 60 or 70 of
#   these, and as many others are in neither part. Training on 2, 4 or 8 ranks (split_dataset_by_node) does the same.
#   Controls: with equal numbers of workers or ranks on both sides nothing overlaps, and a map-style Dataset never does.
# Why: n is divided by workers and by ranks. Each skips its part of n from its own shards, so n is other samples for another number.
# Why it matters: training often has more workers than validation, or validation runs on one rank alone. Most validation samples are then
#   trained on, so that the validation loss says too little. The count of samples is right in each part, and nothing warns.
#   Shards that are set aside by name, and rows of a map-style Dataset, stay apart.
# Usage: ./datasets_trains_on_what_take_set_aside.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 datasets==4.7.0 numpy==2.4.6
cat >"$folder/parts.py" <<'END'
import datasets
import torch
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader

ROWS, SHARDS, ASIDE = 800, 8, 80
torch.set_num_threads(1)
rows = datasets.Dataset.from_dict({"number": list(range(ROWS))})


def part(which):
    stream = rows.to_iterable_dataset(num_shards=SHARDS)
    return stream.take(ASIDE) if which == "take" else stream.skip(ASIDE)


def by_workers(which, workers):
    return [number for batch in DataLoader(part(which), batch_size=4, num_workers=workers) for number in batch["number"].tolist()]


def by_ranks(which, ranks):
    return [row["number"] for rank in range(ranks) for row in split_dataset_by_node(part(which), rank=rank, world_size=ranks)]


print("datasets", datasets.__version__, "torch", torch.__version__)
assert datasets.__version__ == "4.7.0" and torch.__version__.startswith("2.15.0")
aside = set(by_workers("take", 0))
assert aside == set(range(ASIDE)) == set(by_ranks("take", 1))
assert not set(rows.take(ASIDE)["number"]) & set(rows.skip(ASIDE)["number"])
assert not aside & set(by_workers("skip", 0)) and not aside & set(by_workers("skip", 1))
for name, read in (("workers", by_workers), ("ranks", by_ranks)):
    for number in (2, 4, 8):
        trained, equal = read("skip", number), set(read("take", number))
        assert len(trained) == len(set(trained)) == ROWS - ASIDE
        leaked, neither = len(aside & set(trained)), ROWS - len(aside | set(trained))
        print(f"trained with {number} {name}: {leaked} of {ASIDE} validation samples are trained on, {neither} samples in neither part;",
              f"validated with {number} {name}, too: {len(equal & set(trained))}")
        assert leaked == neither == ASIDE - ASIDE // number, "the behaviour changed"
        assert len(equal) == ASIDE and not equal & set(trained)
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/parts.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
