#!/usr/bin/env bash
# litdata 0.2.76, torch 2.15.0: with batching_method="per_stream" CombinedStreamingDataset does not keep to its weights.
#
# Expected: weights=[0.9, 0.1] takes nine batches of ten from the first source. Both batching methods read the same shares:
#   "stratified" draws a source for each sample, "per_stream" one for each batch, at random.
# Seen, 400 batches of 8: two sources of weights 0.9 and 0.1 have shares of 0.500 and 0.500, and take turns without an exception.
#   Weights of 0.99 and 0.01 do so, too. Three of 0.8, 0.1 and 0.1 have 0.453, 0.268 and 0.280. Two workers change nothing.
#   Without weights, sources of 3,600 and 400 samples have 0.500 each for the first 800 samples, then the large one is alone for 3,200.
#   Controls: "stratified" has 0.90 and 0.10, 0.99 and 0.01, 0.80, 0.10 and 0.10, and spreads the 400 samples over the pass.
#   With the draws of per_stream allowed to name the last source again, its shares are 0.89 and 0.11.
# Why: after a batch the source is drawn until it is another one than before. Two sources so take turns, whatever they weigh,
#   and none of more can have a share above one half.
# Why it matters: a mixture of 90 % text and 10 % code trains on as much code as text, and repeats or ends the small source five times as
#   soon. per_stream is meant for sources of different shapes, which cannot share a batch. Nothing warns.
# Usage: ./litdata_ignores_weights_with_batches_of_one_source.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 litdata==0.2.76 numpy==2.4.6
cat >"$folder/shares.py" <<'END'
import importlib.metadata
import sys
from unittest import mock

import torch
from litdata import CombinedStreamingDataset, StreamingDataLoader, StreamingDataset
from litdata.streaming.cache import Cache
from litdata.streaming.combined import _CombinedDatasetIterator

FOLDER, BATCH, BATCHES = sys.argv[1], 8, 400


def write(name, source, samples):
    cache = Cache(input_dir=f"{FOLDER}/{name}", chunk_size=100)
    for number in range(samples):
        cache[number] = source, number
    cache.done()
    cache.merge()


def read(names, method, workers=0, **options):
    """The source of each sample of the first batches."""
    parts = [StreamingDataset(f"{FOLDER}/{name}", shuffle=True) for name in names]
    loader = StreamingDataLoader(CombinedStreamingDataset(parts, batching_method=method, **options), batch_size=BATCH, num_workers=workers)
    batches = [batch[0].tolist() for _, batch in zip(range(BATCHES + 100), loader)]
    if method == "per_stream":
        assert all(len(set(batch)) == 1 for batch in batches)
    return [source for batch in batches for source in batch]


def shares(sources, count):
    return [sum(source == one for source in sources) / len(sources) for one in range(count)]


def weighed(weights, method, workers=0):
    sources = read([f"long{number}" for number in range(len(weights))], method, workers, weights=weights, iterate_over_all=False)
    got = shares(sources[: BATCHES * BATCH], len(weights))
    print(f"weights {weights}, {method}, {workers} workers:", *(f"{share:.3f}" for share in got), flush=True)
    return got, sources[:: BATCH][:BATCHES]


def near(got, wanted, within):
    return all(abs(one - other) < within for one, other in zip(got, wanted))


def draw_one_for_each_batch(iterator):
    """per_stream with each batch's source drawn by weight, the last one too."""
    if iterator._samples_yielded_in_batch % BATCH == 0:
        iterator._cur_dataset_index = iterator._set_new_dataset_index()
    iterator._samples_yielded_in_batch += 1
    return iterator._cur_dataset_index


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("litdata", importlib.metadata.version("litdata"), "torch", torch.__version__, flush=True)
    assert importlib.metadata.version("litdata") == "0.2.76" and torch.__version__.startswith("2.15.0")
    for source in range(3):
        write(f"long{source}", source, 5000)
    write("large", 0, 3600)
    write("small", 1, 400)
    for weights in ([0.9, 0.1], [0.99, 0.01], [0.8, 0.1, 0.1]):
        assert near(weighed(weights, "stratified")[0], weights, 0.02)
    for weights, workers in (([0.9, 0.1], 0), ([0.9, 0.1], 2), ([0.99, 0.01], 0)):
        got, order = weighed(weights, "per_stream", workers)
        assert got == [0.5, 0.5], "the behaviour changed"
        if workers == 0:
            assert all(one != other for one, other in zip(order, order[1:])), "the behaviour changed"
    assert near(weighed([0.8, 0.1, 0.1], "per_stream")[0], [0.45, 0.275, 0.275], 0.04), "the behaviour changed"
    with mock.patch.object(_CombinedDatasetIterator, "_get_dataset_index", draw_one_for_each_batch):
        print("with the last source allowed again, ", end="")
        assert near(weighed([0.9, 0.1], "per_stream")[0], [0.9, 0.1], 0.04)
    for method in ("stratified", "per_stream"):
        sources = read(["large", "small"], method)
        assert len(sources) == 4000 and sum(sources) == 400
        first, rest = sum(sources[:800]), sum(sources[800:])
        print(f"a pass over 3,600 and 400 samples, {method}: {first} of the small source in the first 800 samples, {rest} later")
        assert (first, rest) == (400, 0) if method == "per_stream" else first < 120, "the behaviour changed"
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/shares.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
