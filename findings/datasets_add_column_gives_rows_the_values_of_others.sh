#!/usr/bin/env bash
# datasets 4.7.0, torch 2.15.0: add_column of a stream gives rows the values of other rows as soon as shards are dealt out or shuffled.
#
# Expected: the value at place i of the column belongs to row i, however the rows are read. A map-style Dataset does so.
# Seen, 8 shards of 100 rows, a column with the number of the row: read in one process all 800 values are right.
#   With 2 or 4 workers 700 of 800 rows have the value of another row, on 2 or 4 ranks, too, and after shuffle() or set_epoch(1).
#   Two workers use half of the values, four a quarter. Control: Dataset.add_column before to_iterable_dataset() is right in all cases.
# Why: add_column takes a count of rows for the place. The count begins at 0 in each worker and rank, and follows the shuffled shards.
# Why it matters: labels, rewards or sample weights that are added to a stream go to the wrong samples in training. They are right when one
#   looks at the stream in one process. Counts and types are right, and nothing warns.
# Usage: ./datasets_add_column_gives_rows_the_values_of_others.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 datasets==4.7.0 numpy==2.4.6
cat >"$folder/column.py" <<'END'
import datasets
import torch
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader

ROWS, SHARDS = 800, 8
torch.set_num_threads(1)
rows, column = datasets.Dataset.from_dict({"number": list(range(ROWS))}), list(range(ROWS))


def streamed(late):
    """A stream with the column added to it, or made of a dataset that has the column."""
    if late:
        return rows.to_iterable_dataset(num_shards=SHARDS).add_column("label", column)
    return rows.add_column("label", column).to_iterable_dataset(num_shards=SHARDS)


def by_workers(stream, workers):
    loader = DataLoader(stream, batch_size=4, num_workers=workers)
    return [pair for batch in loader for pair in zip(batch["number"].tolist(), batch["label"].tolist())]


def by_ranks(stream, ranks):
    return [(row["number"], row["label"]) for rank in range(ranks) for row in split_dataset_by_node(stream, rank=rank, world_size=ranks)]


def later(stream):
    stream.set_epoch(1)
    return by_workers(stream, 0)


cases = {"one process": lambda stream: by_workers(stream, 0), "2 workers": lambda stream: by_workers(stream, 2),
         "4 workers": lambda stream: by_workers(stream, 4), "2 ranks": lambda stream: by_ranks(stream, 2),
         "4 ranks": lambda stream: by_ranks(stream, 4), "shuffle": lambda stream: by_workers(stream.shuffle(seed=1, buffer_size=10), 0),
         "second epoch": later}
print("datasets", datasets.__version__, "torch", torch.__version__)
assert datasets.__version__ == "4.7.0" and torch.__version__.startswith("2.15.0")
for case, read in cases.items():
    wrong = {}
    for late in (False, True):
        pairs = read(streamed(late))
        assert sorted(number for number, _ in pairs) == list(range(ROWS)), "rows are missing or double"
        wrong[late] = sum(number != label for number, label in pairs)
    print(f"{case:12}: wrong values {wrong[True]} of {ROWS}, {len({label for _, label in pairs})} different ones used; "
          f"added before the stream was made: {wrong[False]} wrong")
    assert wrong[False] == 0
    assert wrong[True] == 0 if case == "one process" else wrong[True] == 700, "the behaviour changed"
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/column.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
