#!/usr/bin/env bash
# torchtitan 0.3.0, torch 2.15.0, datasets 4.7.0: num_workers=4 of the chat and text loaders trains on each batch in four steps, one after the other.
#
# Expected: more workers make loading quicker. The samples of an epoch, and the steps for it, stay the same.
# Seen, 32 samples, 2 data ranks, batches of 2. Chat data (supervised fine-tuning), and text that is not streamed: with 0 or 1 workers rank 0 reads
#   each of its 16 samples once, in 8 batches. With 2 workers it reads each twice, in 16 batches, and with 4 workers four times, in 32.
#   The batches of 4 steps in a row are equal. Controls: a streamed dataset (streaming=True) has no
#   sample twice, and the chat data is right as soon as each worker takes every fourth of its rows.
# Why: each worker has a copy of the dataset, and no loader asks which worker it is. datasets divides streams among workers by
#   itself. A dataset that is not streamed has no such thing, and all workers read all of it in one order.
# Why it matters: the chat loader's data is never streamed, unless asked for. SFT then takes 4 steps on each batch, and in a given number of steps
#   sees a quarter of the data. The training loss falls too well. Nothing warns, and with infinite=True, the default, no count shows it.
# Usage: ./torchtitan_workers_repeat_each_batch.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 torchtitan==0.3.0 datasets==4.7.0 torchdata==0.11.0 \
  numpy==2.4.6
cat >"$folder/batches.py" <<'END'
import json
import os
import sys
from collections import Counter
from importlib.metadata import version

import torch
from datasets import load_dataset
from torch.utils.data import get_worker_info
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.hf_datasets import DatasetConfig
from torchtitan.hf_datasets import text_datasets
from torchtitan.hf_datasets.text_datasets import ChatDataLoader, HuggingFaceTextDataLoader

folder, SAMPLES, RANKS, LENGTH, BATCH, FIRST = sys.argv[1], 32, 2, 8, 2, 10
print("torchtitan", version("torchtitan"), "torch", torch.__version__, "datasets", version("datasets"), "torchdata", version("torchdata"))
assert version("torchtitan") == "0.3.0" and torch.__version__.startswith("2.15.0") and version("datasets") == "4.7.0"


class Words(BaseTokenizer):
    """Texts are numbers already; the first of each tells the sample."""
    bos_id, eos_id = 1, 2

    def __init__(self):
        pass

    def encode(self, text, add_bos=True, add_eos=True):
        return [self.bos_id] * add_bos + [int(word) for word in text.split()] + [self.eos_id] * add_eos

    def decode(self, tokens):
        return " ".join(map(str, tokens))

    def get_vocab_size(self):
        return 100

    def apply_chat_template(self, messages, **_):
        return " ".join(message["content"] for message in messages)


os.makedirs(f"{folder}/data")
for part in range(8):  # eight files, so that a stream has shards for all ranks and workers
    with open(f"{folder}/data/{part}.jsonl", "w") as file:
        for number in range(FIRST + part, FIRST + SAMPLES, 8):
            question, answer = f"{number} 5 5", "5 5 5 5"
            file.write(json.dumps({"question": question, "answer": answer, "text": f"{question} {answer}"}) + "\n")


def messages(row):
    return [{"role": "user", "content": row["question"]}, {"role": "assistant", "content": row["answer"]}]


# As the documentation of torchtitan adds a dataset.
for name, streaming in (("text", False), ("text, streamed", True)):
    text_datasets.DATASETS[name] = DatasetConfig(path=f"{folder}/data", sample_processor=lambda row: row["text"],
                                                 loader=lambda path, streaming=streaming: load_dataset(path, split="train", streaming=streaming))


def read(kind, workers):
    """The samples in each batch of rank 0."""
    common = {"num_workers": workers, "infinite": False}
    if kind == "chat":
        config = ChatDataLoader.Config(dataset_path="json", sample_processor=messages, load_dataset_kwargs={
            "data_files": f"{folder}/data/*.jsonl", "split": "train"}, **common)
    else:
        config = HuggingFaceTextDataLoader.Config(dataset=kind, dataset_path=f"{folder}/data", **common)
    loader = config.build(dp_world_size=RANKS, dp_rank=0, tokenizer=Words(), seq_len=LENGTH, local_batch_size=BATCH)
    return [inputs["input"][:, 1].tolist() for inputs, _ in loader]


def tell(kind, workers, batches):
    times = Counter(sample for batch in batches for sample in batch)
    print(f"{kind}, {workers} workers: {len(batches)} batches, {len(times)} samples, each {sorted(set(times.values()))} times;",
          "the first:", *batches[:4], flush=True)
    return set(times.values()), len(times)


for kind in ("chat", "text", "text, streamed"):
    for workers in (0, 1, 2, 4):
        batches = read(kind, workers)
        times, samples = tell(kind, workers, batches)
        assert samples == SAMPLES // RANKS
        if kind == "text, streamed" or workers < 2:
            assert times == {1} and len(batches) == SAMPLES // RANKS // BATCH
        else:
            assert times == {workers}, "the behaviour changed"
            assert all(batches[i] == batches[i - i % workers] for i in range(len(batches)))

# The same loader, whose workers take turns.
rows = text_datasets.ChatDataset._get_data_iter


def own_rows(dataset):
    worker = get_worker_info()
    for number, row in enumerate(rows(dataset)):
        if number % worker.num_workers == worker.id:
            yield row


text_datasets.ChatDataset._get_data_iter = own_rows
assert tell("chat in turns", 4, read("chat", 4)) == ({1}, SAMPLES // RANKS)
END
HF_HOME="$folder/home" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/batches.py" "$folder" 2>"$folder/errors" ||
  { tail "$folder/errors"; exit 1; }
