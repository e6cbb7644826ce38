#!/usr/bin/env bash
# sentence-transformers 6.3.0, transformers 5.24.0, torch 2.15.0: MatryoshkaLoss normalizes embeddings, so that losses of lengths cannot be met.
#
# Expected: MatryoshkaLoss cuts embeddings to the given dimensions. With the whole dimension alone it is the loss that it wraps.
# Seen, a small BERT, 32 triplets, losses with their default settings, 80 steps: MarginMSELoss (dot products, a teacher's margins of 4 to 12) goes
#   from 105.5 to 0.0. Inside MatryoshkaLoss(dims=[32]) it goes from 84.6 to 52.7, where 52.6 is the best for unit vectors: margins of 2.
#   TripletLoss (Euclidean, margin 5) goes from 5.08 to 0.00, and inside to 3.01: unit vectors are at most 2 apart, so that no triplet is ever met.
#   Controls: MultipleNegativesRankingLoss and CoSENTLoss, which compare cosines, have the same loss and gradient inside and outside.
#   With the normalization taken out of the cutting, MarginMSELoss and TripletLoss inside have the loss of outside to four digits.
# Why: the cut embedding is divided by its length before the wrapped loss sees it, at all dimensions, the whole one too. The model's own output is not.
# Why it matters: MarginMSELoss is the usual way to distil a cross-encoder, whose margins are often near 10, and it compares dot products.
#   Inside, the teacher's margins are out of reach, and lengths of vectors are never trained, though a dot-product index uses them. Nothing warns.
# Usage: ./sentence_transformers_matryoshka_normalizes_what_losses_compare.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 \
  sentence-transformers==6.3.0 numpy==2.4.6
cat >"$folder/losses.py" <<'END'
import sys

import sentence_transformers
import tokenizers
import torch
import transformers as hf
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.losses import matryoshka

torch.set_num_threads(1)
hf.logging.set_verbosity_error()
print("sentence-transformers", sentence_transformers.__version__, "transformers", hf.__version__, "torch", torch.__version__, flush=True)
assert sentence_transformers.__version__ == "6.3.0" and hf.__version__ == "5.24.0" and torch.__version__.startswith("2.15.0")
WORDS = ["[pad]", "[unk]"] + [f"w{i}" for i in range(62)]
words = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[unk]"))
words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
hf.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[pad]", unk_token="[unk]", model_max_length=64).save_pretrained(sys.argv[1])
torch.manual_seed(0)
hf.BertModel(hf.BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                           hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.2)).save_pretrained(sys.argv[1])
draws = torch.Generator().manual_seed(1)
TEXTS = [[" ".join(WORDS[i] for i in torch.randint(2, 64, (6,), generator=draws)) for _ in range(32)] for _ in range(3)]
MARGINS, SCORES = 4 + 8 * torch.rand(32, generator=draws), torch.rand(32, generator=draws)
KINDS = {"MarginMSELoss": (losses.MarginMSELoss, 3, MARGINS), "TripletLoss": (losses.TripletLoss, 3, None),
         "MultipleNegativesRankingLoss": (losses.MultipleNegativesRankingLoss, 3, None), "CoSENTLoss": (losses.CoSENTLoss, 2, SCORES)}


def train(kind, inside, steps):
    """The first and last loss, and the first gradient."""
    make, columns, labels = KINDS[kind]
    model = SentenceTransformer(sys.argv[1], device="cpu").train()
    loss = make(model)
    if inside:
        loss = losses.MatryoshkaLoss(model, loss, matryoshka_dims=[32])
    given = [model.preprocess(texts) for texts in TEXTS[:columns]]
    optimizer, seen = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.0), []
    for _ in range(steps):
        optimizer.zero_grad()
        found = loss([dict(texts) for texts in given], labels)
        found.backward()
        seen.append(found.item())
        if len(seen) == 1:
            gradient = torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])
        optimizer.step()
    return seen[0], seen[-1], gradient


for kind in ("MultipleNegativesRankingLoss", "CoSENTLoss"):
    (outside, _, right), (inside, _, gradient) = train(kind, False, 1), train(kind, True, 1)
    off = ((gradient - right).norm() / right.norm()).item()
    print(f"{kind}: loss {outside:.4f}, inside MatryoshkaLoss {inside:.4f}, gradient off by {off:.4f}", flush=True)
    assert abs(inside / outside - 1) < 1e-4 and off < 1e-3
for kind, floor in (("MarginMSELoss", ((MARGINS - 2) ** 2).mean().item()), ("TripletLoss", 3)):
    first, outside, _ = train(kind, False, 80)
    start, inside, _ = train(kind, True, 80)
    shrink, matryoshka.shrink = matryoshka.shrink, lambda embeddings, dimension: embeddings[..., :dimension]
    begin, mended, _ = train(kind, True, 80)
    matryoshka.shrink = shrink
    print(f"{kind}: the best for unit vectors is {floor:.4f}; loss {first:.4f} to {outside:.4f}, inside MatryoshkaLoss {start:.4f} to {inside:.4f},",
          f"inside without the normalization {begin:.4f} to {mended:.4f}", flush=True)
    assert outside < floor / 2 and inside >= floor and abs(begin / first - 1) < 1e-5 and abs(mended - outside) < 0.05, "the behaviour changed"
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/losses.py" "$folder/model" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
