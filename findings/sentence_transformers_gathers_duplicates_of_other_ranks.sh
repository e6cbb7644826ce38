#!/usr/bin/env bash
# sentence-transformers 6.3.0, transformers 5.24.0, accelerate 1.16.0, torch 2.15.0: NO_DUPLICATES does not hold for gathered batches.
#
# Expected: BatchSamplers.NO_DUPLICATES keeps an anchor's own positive out of its negatives. MultipleNegativesRankingLoss with
#   gather_across_devices=True is recommended on several GPUs, and is as one process with a batch as large.
# Seen, 4,000 questions with 1,000 answers, batches of 64: on 2 ranks 8.6 % of the anchors have their own answer as a negative, and on
#   4 ranks 20.0 %. A model that has learned all pairs has a loss of 0.060 and 0.149 in place of 0.
#   Controls: one process with a batch of 128 or 256 has none, and a loss of 0. So do 2 and 4 ranks without gather_across_devices.
# Why: the sampler looks for duplicates in one rank's batch. Accelerate deals these batches to ranks, and the loss takes the
#   batches of all ranks for one. Nobody compares values of two ranks.
# Why it matters: the larger batch is asked for to have better negatives, and the sampler to have no false ones. The share of false
#   ones grows with ranks, and no warning is given. Questions with a common answer, and NLI's repeated premises, are ordinary data.
# Usage: ./sentence_transformers_gathers_duplicates_of_other_ranks.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 sentence-transformers==6.3.0 transformers==5.24.0 \
    accelerate==1.16.0 datasets==5.2.0 tokenizers numpy==2.4.6
cat >"$folder/gathered.py" <<'END'
import collections
import os
import random
import sys

import accelerate
import datasets
import sentence_transformers
import torch
import transformers
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

FOLDER, BATCH = sys.argv[1], int(sys.argv[2])
QUESTIONS, ANSWERS = 4000, 1000
torch.set_num_threads(1)
answer_of = random.Random(0).choices(range(ANSWERS), k=QUESTIONS)
words = [f"question{one}" for one in range(QUESTIONS)] + [f"answer{one}" for one in range(ANSWERS)] + ["unknown"]
tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="unknown"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
# A model that has learned all pairs: a question has the vector of its answer.
table = torch.randn(ANSWERS + 1, 1024, generator=torch.Generator().manual_seed(0))
table = table[torch.tensor(answer_of + list(range(ANSWERS + 1)))]
model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=table.numpy())], device="cpu")
pairs = {"anchor": words[:QUESTIONS], "positive": [f"answer{one}" for one in answer_of]}
arguments = SentenceTransformerTrainingArguments(
    FOLDER, per_device_train_batch_size=BATCH, batch_sampler="no_duplicates", use_cpu=True, report_to="none", dataloader_drop_last=True
)
losses = [MultipleNegativesRankingLoss(model, gather_across_devices=gather) for gather in (False, True)]
trainer = SentenceTransformerTrainer(model, arguments, train_dataset=datasets.Dataset.from_dict(pairs), loss=losses[1])
ranks, rank = trainer.accelerator.num_processes, trainer.accelerator.process_index
false, anchors, sums, steps = [0, 0], 0, [0.0, 0.0], 0
for batch in trainer.get_train_dataloader():
    features, labels = trainer.collect_features(batch)
    own = features[1]["input_ids"].flatten()
    everyone = trainer.accelerator.gather(own)
    assert len(own) == BATCH and len(everyone) == BATCH * ranks
    for place, answers in enumerate((own, everyone)):
        counts = collections.Counter(answers.tolist())
        false[place] += sum(counts[answer] > 1 for answer in own.tolist())
        with torch.no_grad():
            sums[place] += losses[place](features, labels).item()
    anchors, steps = anchors + len(own), steps + 1
values = trainer.accelerator.reduce(torch.tensor([*false, anchors, *sums, steps], dtype=torch.float64)).tolist()
if rank == 0:
    if ranks == 1:
        print("sentence-transformers", sentence_transformers.__version__, "transformers", transformers.__version__,
              "accelerate", accelerate.__version__, "torch", torch.__version__)
    shares, means = [one / values[2] for one in values[:2]], [one / values[5] for one in values[3:5]]
    for name, share, mean in zip(("alone", "gathered"), shares, means):
        print(f"{ranks} ranks, batches of {BATCH}, {name}: {100 * share:.1f} % of anchors have their answer as a negative, loss {mean:.4f}")
    assert shares[0] == 0 and means[0] < 0.001
    if ranks == 1:
        assert shares[1] == 0 and means[1] < 0.001
    else:
        share, loss = {2: (0.086, 0.060), 4: (0.200, 0.149)}[ranks]
        assert abs(shares[1] - share) < 0.005 and abs(means[1] - loss) < 0.005, "the behaviour changed"
if ranks > 1:
    torch.distributed.destroy_process_group()
END
for run in "1 128" "1 256" "2 64" "4 64"; do
    read -r ranks batch <<<"$run"
    OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore -m torch.distributed.run --standalone --nproc_per_node "$ranks" \
        "$folder/gathered.py" "$folder/output" "$batch" 2>"$folder/errors" || { tail -30 "$folder/errors"; exit 1; }
done
