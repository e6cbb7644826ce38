#!/usr/bin/env bash
# mosaicml-streaming 0.10.0, torch 2.15.0: batching_method="stratified" mixes the global batch alone. Each rank reads one source or two.
#
# Expected: "stratified" gives every batch the same share of each stream, so that each rank's batches are mixed as well as one process' are.
#   Its documentation promises the share for each global batch. "device_per_stream" is there for devices that read one stream each.
# Seen, 2 streams of equal proportion, batches of 8 on 2 ranks: all 800 samples of rank 0 are of the first stream, and all of rank 1 of
#   the second, in all steps. On 4 ranks with proportions of 0.5, 0.25 and 0.25 each rank reads one stream.
#   With samples of 1 and 4 tokens rank 1 computes 4 times the tokens of rank 0. Where each rank averages its loss over its tokens, as
#   usual, the first stream weighs 0.50 on 2 ranks and 0.20 in one process.
#   A BatchNorm under DDP, which keeps the statistics of rank 0, has a running mean of 0.0. That of the data is 2.0.
#   Controls: "random" mixes each rank: the stream weighs 0.23, and the mean is 2.3. One process mixes each batch of "stratified".
#   With the samples of each global batch shuffled, "stratified" gives the same samples, and each rank reads both streams.
# Why: the parts of the streams are put in order into a global batch, which is then cut in order into the ranks' batches.
# Why it matters: a figure of each rank is of one source: token averages, batch norms, negatives in a batch, padding.
#   Ranks wait for the one with the longest source. The count and the shares of all samples are right, and nothing warns.
# Usage: ./mosaicml_stratified_batches_part_sources_by_rank.sh (three minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 mosaicml-streaming==0.10.0 numpy==2.4.6
cat >"$folder/ranks.py" <<'END'
import importlib.metadata
import os
import socket
import sys
from unittest import mock

import numpy as np
import streaming.base.dataset
import torch
from streaming import MDSWriter, Stream, StreamingDataLoader, StreamingDataset
from torch.nn.parallel import DistributedDataParallel

FOLDER, BATCH, SAMPLES, LENGTHS, MEANS = sys.argv[1], 8, 1600, (1, 4, 2), (0.0, 4.0, 8.0)
arrange = streaming.base.dataset.generate_work


def write(source):
    draws = np.random.default_rng(source)
    with MDSWriter(out=f"{FOLDER}/{source}", columns={"source": "int", "number": "int", "value": "float32"}, size_limit=1 << 13) as writer:
        for number in range(1000):
            writer.write({"source": source, "number": number, "value": np.float32(MEANS[source] + draws.normal())})


def mixed_over_ranks(*arguments):
    """The work of a method, with the samples of each global batch in a random order."""
    work = arrange(*arguments)
    nodes, ranks, workers, batches, batch = work.shape
    rows = work.transpose(3, 2, 0, 1, 4).reshape(-1, nodes * ranks * batch)
    rows = np.random.default_rng(0).permuted(rows, axis=1)
    return rows.reshape(batches, workers, nodes, ranks, batch).transpose(2, 3, 1, 0, 4)


def run(rank, ranks, port, method, proportions, mix, queue):
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo")
    norm = DistributedDataParallel(torch.nn.BatchNorm1d(1))
    with mock.patch.object(streaming.base.dataset, "generate_work", mixed_over_ranks if mix else arrange):
        streams = [Stream(local=f"{FOLDER}/{source}", proportion=proportion) for source, proportion in enumerate(proportions)]
        data = StreamingDataset(streams=streams, batch_size=BATCH, shuffle=True, batching_method=method, epoch_size=SAMPLES, num_canonical_nodes=1)
        batches = []
        for batch in StreamingDataLoader(data, batch_size=BATCH):
            norm(batch["value"].float().reshape(-1, 1)).sum().backward()
            batches.append(list(zip(batch["source"].tolist(), batch["number"].tolist())))
    queue.put((rank, batches, norm.module.running_mean.item()))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def read(ranks, method, proportions=(0.5, 0.5), mix=False):
    """Each rank's share of the first stream, the samples, the tokens of each rank, the stream's weight in the loss, and rank 0's mean."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    started = torch.multiprocessing.start_processes(run, (ranks, port, method, proportions, mix, queue), ranks, join=False)
    got = sorted(queue.get() for _ in range(ranks))
    started.join()
    sources = [[[source for source, _ in batch] for batch in batches] for _, batches, _ in got]
    tokens = [sum(LENGTHS[source] for batch in batches for source in batch) for batches in sources]
    weights = [batch.count(0) * LENGTHS[0] / sum(LENGTHS[source] for source in batch) for batches in sources for batch in batches]
    kinds = [sorted({source for batch in batches for source in batch}) for batches in sources]
    weight, mean = sum(weights) / len(weights), got[0][2]
    samples = sorted(sample for _, batches, _ in got for batch in batches for sample in batch)
    assert len(samples) == SAMPLES
    name = method + (", samples of a global batch shuffled" if mix else "")
    print(f"{name}, {proportions} on {ranks} ranks: ranks read streams {kinds} and {tokens} tokens;",
          f"the first stream weighs {weight:.2f} in the loss; rank 0 keeps a mean of {mean:.2f}", flush=True)
    return kinds, samples, tokens, weight, mean


if __name__ == "__main__":
    version = importlib.metadata.version("mosaicml-streaming")
    print("mosaicml-streaming", version, "torch", torch.__version__, flush=True)
    assert version == "0.10.0" and torch.__version__.startswith("2.15.0")
    for source in range(3):
        write(source)
    kinds, _, _, weight, mean = read(1, "stratified")
    assert kinds == [[0, 1]] and abs(weight - 0.2) < 0.001 and abs(mean - 2) < 0.4
    kinds, _, tokens, weight, mean = read(2, "random")
    assert kinds == [[0, 1]] * 2 and 0.8 < tokens[0] / tokens[1] < 1.25 and weight < 0.26 and abs(mean - 2) < 0.7
    kinds, samples, tokens, weight, mean = read(2, "stratified")
    assert kinds == [[0], [1]] and tokens == [800, 3200] and weight == 0.5 and abs(mean) < 0.4, "the behaviour changed"
    kinds, same, tokens, weight, mean = read(2, "stratified", mix=True)
    assert kinds == [[0, 1]] * 2 and same == samples and 0.8 < tokens[0] / tokens[1] < 1.25 and weight < 0.26 and abs(mean - 2) < 0.7
    assert read(4, "stratified", (0.5, 0.25, 0.25))[0] == [[0], [0], [1], [2]], "the behaviour changed"
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/ranks.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
