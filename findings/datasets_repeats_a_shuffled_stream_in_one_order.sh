#!/usr/bin/env bash
# datasets 5.2.0, torch 2.15.0: a shuffled stream that is repeated comes in the same order each time.
#
# Expected: shuffle() before repeat(n), or before an interleaving that starts small sources again, shuffles each repetition anew,
#   as a DataLoader with shuffle=True does in each epoch.
# Seen, 800 samples in 8 shards, a buffer of 100: the three passes of shuffle(seed=0).repeat(3) are the same list. A source of 100 samples
#   that interleave_datasets(stopping_strategy="all_exhausted") reads ten times, with one of 1,000, has one order in all ten.
# Controls: set_epoch between passes over the stream gives three orders. It gives none within repeat(3): epoch 1 has another order
#   than epoch 0, and its three repetitions are equal, too.
# Why: the repetition iterates the shuffled stream again, and each iteration copies the generator as it was made. Only set_epoch
#   changes the seed, and it is applied once, before the repetitions begin.
# Why it matters: repeat(None) is how a run of so many steps reads more than one epoch, and mixtures repeat their small sources often.
#   All epochs then meet the same neighbours in the same order. The documentation says nothing of this for shuffle before repeat.
# Usage: ./datasets_repeats_a_shuffled_stream_in_one_order.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 datasets==5.2.0 numpy==2.4.6
cat >"$folder/orders.py" <<'PY'
import datasets
import torch

ROWS, SHARDS, BUFFER, TIMES, SMALL = 800, 8, 100, 3, 100
torch.set_num_threads(1)


def stream(first, rows, shards):
    return datasets.Dataset.from_dict({"number": list(range(first, first + rows))}).to_iterable_dataset(num_shards=shards)


def numbers(source):
    return [row["number"] for row in source]


def orders(read, size):
    """How many orders the whole repetitions have. Each of them holds each sample once."""
    repetitions = [tuple(read[start:start + size]) for start in range(0, len(read) - size + 1, size)]
    assert all(len(set(repetition)) == size for repetition in repetitions)
    return len(set(repetitions)), len(repetitions)


print("datasets", datasets.__version__, "torch", torch.__version__)
assert datasets.__version__ == "5.2.0" and torch.__version__.startswith("2.15.0")
shuffled = stream(0, ROWS, SHARDS).shuffle(seed=0, buffer_size=BUFFER)
assert numbers(shuffled) != list(range(ROWS))
repeated, epochs = shuffled.repeat(TIMES), []
for epoch in range(2):
    repeated.set_epoch(epoch)
    epochs.append(numbers(repeated))
    found = orders(epochs[-1], ROWS)
    print(f"repeat({TIMES}) in epoch {epoch}: {found[0]} order in {found[1]} repetitions")
    assert found == (1, TIMES), "the behaviour changed"
assert epochs[0] != epochs[1]
passes = []
for epoch in range(TIMES):
    shuffled.set_epoch(epoch)
    passes += numbers(shuffled)
print(f"set_epoch before each of {TIMES} passes: {orders(passes, ROWS)[0]} orders")
assert orders(passes, ROWS) == (TIMES, TIMES)
rows = datasets.Dataset.from_dict({"number": list(range(ROWS))})
batches = torch.utils.data.DataLoader(rows, batch_size=10, shuffle=True)
passes = [number for _ in range(TIMES) for batch in batches for number in batch["number"].tolist()]
print(f"a DataLoader with shuffle=True, {TIMES} passes: {orders(passes, ROWS)[0]} orders")
assert orders(passes, ROWS) == (TIMES, TIMES)
small = stream(0, SMALL, 4).shuffle(seed=0, buffer_size=BUFFER)
large = stream(ROWS, 1000, 4).shuffle(seed=0, buffer_size=BUFFER)
mixed = datasets.interleave_datasets([small, large], probabilities=[0.5, 0.5], seed=0, stopping_strategy="all_exhausted")
found = orders([number for number in numbers(mixed) if number < SMALL], SMALL)
print(f"a source of {SMALL} interleaved with one of 1000: {found[0]} order in {found[1]} repetitions")
assert found[0] == 1 and found[1] >= 9, "the behaviour changed"
PY
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/orders.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
