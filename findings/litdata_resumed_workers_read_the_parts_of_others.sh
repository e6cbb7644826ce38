#!/usr/bin/env bash
# litdata 0.2.76, torch 2.15.0: a CombinedStreamingDataset resumed with several workers reads some samples twice, and as many never.
#
# Expected: a pass that is stopped, saved with StreamingDataLoader.state_dict() and resumed with the same numbers of workers and
#   samples a batch reads each sample once. It does so for one StreamingDataset.
# Seen, four sources of 8,000, 6,000, 4,000 and 2,000 samples, iterate_over_all=True, batches of 64, stopped after 96 of 313 batches:
#   with 8 workers 382 of the 20,000 samples are read twice, and 382 others never. 4 workers: 171 and 171. 2 workers: 64 and 64.
#   The count of samples is right, 20,000, and so are the four counts of sources.
#   Controls: no sample is read twice with one worker, nor without a stop (8 workers). One StreamingDataset with 8 workers has none.
#   The numbers 64, 171 and 382 follow from the state alone: what each worker had read, less where the deal below lets it begin.
# Why: the state has one count for each source, a sum over workers. At the resume it is dealt out again in whole batches, the first
#   workers first. A batch of a mixture holds some samples of each source only, so no worker had stopped at these places.
# Why it matters: each restart repeats and leaves out up to a batch of samples for each worker and source, more with larger batches and
#   more sources. Nothing warns, counts are right, and the state was saved and loaded with the methods meant for it.
# Usage: ./litdata_resumed_workers_read_the_parts_of_others.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 litdata==0.2.76 numpy==2.4.6
cat >"$folder/resumed.py" <<'END'
import collections
import importlib.metadata
import sys

import torch
from litdata import CombinedStreamingDataset, StreamingDataLoader, StreamingDataset
from litdata.streaming.cache import Cache

FOLDER, BATCH, STOP, SIZES = sys.argv[1], 64, 96, (8000, 6000, 4000, 2000)


def write(source):
    cache = Cache(input_dir=f"{FOLDER}/{source}", chunk_size=50)
    for number in range(SIZES[source]):
        cache[number] = source, number
    cache.done()
    cache.merge()


def build(workers, sources):
    parts = [StreamingDataset(f"{FOLDER}/{source}", shuffle=True) for source in range(sources)]
    data = CombinedStreamingDataset(parts, iterate_over_all=True) if sources > 1 else parts[0]
    return StreamingDataLoader(data, batch_size=BATCH, num_workers=workers)


def read(loader, batches=None):
    samples = []
    for number, (source, place) in enumerate(loader, 1):
        samples += zip(source.tolist(), place.tolist())
        if number == batches:
            break
    return samples


def dealt(count, workers):
    """Where workers begin if a count is dealt out in whole batches, the first workers first."""
    rounds, rest = divmod(count, workers * BATCH)
    return [rounds * BATCH + min(BATCH, max(0, rest - worker * BATCH)) for worker in range(workers)]


def run(what, workers, sources=4, stop=True):
    loader, predicted = build(workers, sources), 0
    samples = read(loader, STOP if stop else None)
    if stop:
        state = loader.state_dict()
        if sources > 1:
            places = list(zip(*state["num_samples_yielded"].values()))
            predicted = sum(max(0, place - begin) for of in places for place, begin in zip(of, dealt(sum(of), workers)))
        loader = build(workers, sources)
        loader.load_state_dict(state)
        samples += read(loader)
    counts = collections.Counter(samples)
    assert [sum(source == one for source, _ in samples) for one in range(sources)] == list(SIZES[:sources])
    twice, never = sum(count == 2 for count in counts.values()), sum(SIZES[:sources]) - len(counts)
    print(f"{what}, {workers} workers: {len(samples)} samples read, {twice} twice, {never} never; predicted {predicted}", flush=True)
    assert max(counts.values()) <= 2
    return twice, never, predicted


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("litdata", importlib.metadata.version("litdata"), "torch", torch.__version__, flush=True)
    assert importlib.metadata.version("litdata") == "0.2.76" and torch.__version__.startswith("2.15.0")
    for source in range(len(SIZES)):
        write(source)
    for workers, wanted in ((2, 64), (4, 171), (8, 382)):
        assert run("resumed", workers) == (wanted,) * 3, "the behaviour changed"
    assert run("resumed", 1) == (0, 0, 0)
    assert run("not stopped", 8, stop=False) == (0, 0, 0)
    assert run("one source, resumed", 8, sources=1) == (0, 0, 0)
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/resumed.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
