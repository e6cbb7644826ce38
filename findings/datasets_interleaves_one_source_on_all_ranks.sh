#!/usr/bin/env bash
# datasets 4.7.0: interleave_datasets with probabilities draws the same source on all ranks at each step.
#
# Expected: a global batch is a sample of the mixture. With probabilities of 0.5 the share of a source in 32 samples varies by 0.088.
# Seen, 8 ranks with 4 samples each, split_dataset_by_node: sample for sample all ranks read from the same source, for 2,000 samples.
#   The share of a source in a batch varies by 0.26, as for the 4 samples of one rank. In 13 % of batches all 32 samples have one source.
#   Controls: 9 shards for 8 ranks, which deals single samples, and seed + rank each give 0.087. No sample is read twice.
# Why: the generator that draws the source has the user's seed. Workers and epochs shift it, ranks do not.
#   Where shards are dealt to ranks (their number is a multiple of the ranks'), each rank begins with the same generator.
# Why it matters: more ranks do not make batches more even. With micro-batches of one sample each global batch has one source alone.
#   Gradients and losses swing from source to source. Each source has its share over the run, and nothing warns.
# Usage: ./datasets_interleaves_one_source_on_all_ranks.sh (a minute, and the download of the packages)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" datasets==4.7.0 numpy==2.4.6
cat >"$folder/mixture.py" <<'END'
from itertools import islice

import datasets
import numpy
from datasets.distributed import split_dataset_by_node

RANKS, EACH, BATCHES, ROWS = 8, 4, 500, 40_000


def source(first, shards):
    return datasets.Dataset.from_dict({"number": list(range(first, first + ROWS))}).to_iterable_dataset(num_shards=shards)


def read(shards, shifted):
    """The samples that each rank reads. Those of the second source have numbers from ROWS on."""
    ranks = []
    for rank in range(RANKS):
        sources = [source(0, shards), source(ROWS, shards)]
        mixture = datasets.interleave_datasets(sources, probabilities=[0.5, 0.5], seed=42 + shifted * rank)
        mine = split_dataset_by_node(mixture, rank=rank, world_size=RANKS)
        ranks.append([row["number"] for row in islice(mine, EACH * BATCHES)])
    return numpy.array(ranks)


print("datasets", datasets.__version__, "numpy", numpy.__version__)
assert datasets.__version__ == "4.7.0"
free = 0.5 / (RANKS * EACH) ** 0.5
print(f"independent draws of {RANKS * EACH} samples vary by {free:.3f}, of {EACH} samples by {0.5 / EACH ** 0.5:.3f}")
for shards, shifted in ((8, False), (16, False), (9, False), (8, True)):
    numbers = read(shards, shifted)
    assert len(set(numbers.ravel().tolist())) == numbers.size, "a sample was read twice"
    second = numbers >= ROWS
    share = second.reshape(RANKS, BATCHES, EACH).mean(axis=(0, 2))
    same = bool((second == second[0]).all())
    alone = ((share == 0) | (share == 1)).mean()
    print(f"{shards} shards on {RANKS} ranks, {'seed + rank' if shifted else 'one seed'}: all ranks read the same sources {same},",
          f"share of a source {share.mean():.3f}, varies by {share.std():.3f}; one source alone in {alone:.3f} of the batches")
    assert abs(share.mean() - 0.5) < 0.03
    if shards % RANKS == 0 and not shifted:
        assert same and abs(share.std() - 0.25) < 0.03 and alone > 0.08, "the behaviour changed"
    else:
        assert not same and abs(share.std() - free) < 0.015 and alone == 0
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/mixture.py"
