#!/usr/bin/env bash
# megatron-core 0.19.2, torch 2.15.0: GPTDataset leaves out of every sample's loss what was padding in the first sample that a worker read.
#
# Expected: the loss mask of a sample is zero at its own padding.
# Seen, documents of 8 to 64 tokens, each padded to the length of a sample, 64; no reset of positions or masks, the default. 128 samples have
#   4,560 labels. Read by one process 4,242 of them count in the loss, for the first sample has 47; where the shortest is read first, with 8,
#   1,024 count. With a loader of 4 workers it is 3,644, for each worker has a first sample of its own.
# Control: with eod_mask_loss=True, which caches no mask, and the same data (no end-of-document token in it), all 4,560 count.
# Why: the first sample's mask is kept for the others. Its padding is set to zero after that, in place, in the mask that was kept.
#   Later samples take a copy of it and set their own padding to zero.
# Why it matters: documents that are padded to the length, so that none is cut, lose the ends of their answers. How much depends on the seed,
#   the number of workers and where a run resumes. The loss is a mean over what is left, and looks well.
# Usage: ./megatron_masks_all_samples_as_the_first_one.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6 packaging==26.4
# It asks for Python 3.12, and has a wheel for 3.11.
python3 -m pip install --quiet --root-user-action ignore --no-deps --ignore-requires-python --target "$folder/megatron" \
  megatron-core==0.19.2
cat >"$folder/masks.py" <<'END'
import importlib.metadata
import sys

import numpy
import torch
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

LENGTH, DOCUMENTS, READ = 64, 512, 128


class Words:
    eod, pad, vocab_size, unique_identifiers = 999, 1000, 1001, {"words": "numbers"}


prefix = sys.argv[1] + "/corpus"
draws = numpy.random.RandomState(0)
lengths = draws.randint(8, LENGTH + 1, DOCUMENTS)
builder = IndexedDatasetBuilder(prefix + ".bin", dtype=numpy.uint16)
for length in lengths:
    document = torch.full((LENGTH,), Words.pad, dtype=torch.int32)
    document[:length] = torch.from_numpy(draws.randint(1, 900, length))
    builder.add_document(document, [LENGTH])
builder.finalize(prefix + ".idx")


def build(**more):
    options = {"reset_position_ids": False, "reset_attention_mask": False, "eod_mask_loss": False, **more}
    config = GPTDatasetConfig(random_seed=1234, sequence_length=LENGTH, blend=([prefix], None), split="100,0,0", tokenizer=Words(), **options)
    return BlendedMegatronDatasetBuilder(GPTDataset, [READ, 0, 0], lambda: True, config).build()[0]


def masks(places, workers=0, **more):
    """The loss masks of these samples, read in this order."""
    loader = torch.utils.data.DataLoader(torch.utils.data.Subset(build(**more), places), batch_size=4, num_workers=workers)
    batches = list(loader)
    # Padding in the data became token 0, which no document has: a label of 0 is padding.
    return torch.cat([batch["loss_mask"] for batch in batches]), torch.cat([batch["labels"] for batch in batches]) != 0


if __name__ == "__main__":
    print("megatron-core", importlib.metadata.version("megatron-core"), "torch", torch.__version__, flush=True)
    assert torch.__version__.startswith("2.15.0")
    order = list(range(READ))
    seen = {}
    shortest = int(masks(order, eod_mask_loss=True)[0].sum(1).argmin())
    for name, places, options in (("one process", order, {}), ("one process, the shortest sample first", order[shortest:] + order[:shortest], {}),
                                  ("4 workers", order, {"workers": 4}),
                                  ("one process, eod_mask_loss=True", order, {"eod_mask_loss": True}),
                                  ("4 workers, eod_mask_loss=True", order, {"workers": 4, "eod_mask_loss": True})):
        mask, real = masks(places, **options)
        assert bool((mask.bool() <= real).all()), "padding counts"
        seen[name] = int(mask.sum())
        print(f"{name}: {int(mask.sum())} of {int(real.sum())} tokens count in the loss; the first sample has {int(real[0].sum())}", flush=True)
        if "eod" in name:
            assert bool((mask.bool() == real).all())
        elif "process" in name:
            assert bool((mask.bool() == (real & real[0])).all()), "the behaviour changed"
    assert list(seen.values()) == [4242, 1024, 3644, 4560, 4560], seen
END
PYTHONPATH="$folder/megatron" OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/masks.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
