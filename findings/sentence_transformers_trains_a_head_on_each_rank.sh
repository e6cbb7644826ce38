#!/usr/bin/env bash
# sentence-transformers 6.3.0, transformers 5.24.0, torch 2.15.0: weights of a loss are not averaged over ranks: each rank trains its own.
#
# Expected: SentenceTransformerTrainer under DDP trains one model. The layers of a loss, such as the classifier of SoftmaxLoss, are
#   in its optimizer, and are averaged like all others.
# Seen, SoftmaxLoss with three classes, 2 ranks with 16 pairs each, equal weights at the start, 64 steps. Embeddings agree to the
#   last bit. The two classifiers are apart by 0.51 of the way that rank 0's went, and agree on 87 % of 512 pairs. MSELoss with
#   projection_dim has two projections in the same way, apart by 0.70 of their way.
# Controls: with the gradients of the loss's layer averaged over ranks by hand before each step, the layers agree to the last bit.
#   Embeddings without it are off those with it by 0.36 (SoftmaxLoss) and 0.19 (MSELoss) of their way.
# Why: the trainer puts DDP's wrapper around the model alone, and hands the wrapped model to the loss. Nothing sums over ranks
#   what the loss owns, though the optimizer updates it.
# Why it matters: embeddings get the mean of gradients for two different layers. Each layer sees a part of the data, 1/8 on 8
#   ranks. Without a seed of one's own before the loss is made the layers begin apart, too. Nothing warns. A projection that
#   is saved afterwards is that of one rank.
# Usage: ./sentence_transformers_trains_a_head_on_each_rank.sh (about two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 sentence-transformers==6.3.0 transformers==5.24.0 \
  accelerate==1.16.0 datasets==5.2.0 numpy==2.4.6
cat >"$folder/heads.py" <<'END'
import random
import sys

import datasets
import sentence_transformers
import torch
import transformers
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MSELoss, SoftmaxLoss
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

OUTPUT, WORDS, SIZE, STEPS = sys.argv[1], 200, 32, 64
torch.set_num_threads(1)
datasets.disable_progress_bars()
transformers.logging.set_verbosity_error()
vocabulary = [f"word{place}" for place in range(WORDS)] + ["unknown"]
splitter = Tokenizer(models.WordLevel({word: place for place, word in enumerate(vocabulary)}, unk_token="unknown"))
splitter.pre_tokenizer = pre_tokenizers.Whitespace()
table = torch.randn(WORDS + 1, SIZE, generator=torch.Generator().manual_seed(0)) * 0.3
drawn, left, right, labels = random.Random(0), [], [], []
for _ in range(1024):
    kind = drawn.randrange(3)  # the second text has 4, 2 or 0 words of the first
    first = drawn.sample(range(WORDS), 4)
    second = first[2 * kind:] + drawn.sample(sorted(set(range(WORDS)) - set(first)), 2 * kind)
    left.append(" ".join(vocabulary[word] for word in first))
    right.append(" ".join(vocabulary[word] for word in second))
    labels.append(kind)
pairs = datasets.Dataset.from_dict({"left": left, "right": right, "label": labels})
meanings = torch.randn(WORDS, 8, generator=torch.Generator().manual_seed(1))  # a teacher's vectors
goals = [meanings[[int(word[4:]) for word in text.split()]].mean(0).tolist() for text in left]
targets = datasets.Dataset.from_dict({"left": left, "label": goals})


class Average(transformers.TrainerCallback):
    """The control: gradients of the loss's own layer become their mean over ranks before each step."""

    def __init__(self, trainer, layer):
        self.trainer, self.layer = trainer, layer

    def on_pre_optimizer_step(self, *_, **__):
        for weight in self.layer.parameters():
            weight.grad.copy_(self.trainer.accelerator.reduce(weight.grad, "mean"))


def train(kind, averaged):
    """The trained embeddings, the layer of the loss, that layer at the start, and the trainer."""
    model = SentenceTransformer(modules=[StaticEmbedding(splitter, embedding_weights=table.numpy().copy())], device="cpu")
    torch.manual_seed(1)  # the loss begins alike on all ranks
    loss = SoftmaxLoss(model, SIZE, num_labels=3) if kind == "SoftmaxLoss" else MSELoss(model, projection_dim=8)
    layer = loss.classifier if kind == "SoftmaxLoss" else loss.projection
    start = layer.weight.detach().clone()
    arguments = SentenceTransformerTrainingArguments(OUTPUT, per_device_train_batch_size=16, max_steps=STEPS, learning_rate=1e-2, use_cpu=True,
                                                     report_to="none", disable_tqdm=True, save_strategy="no", dataloader_drop_last=True)
    trainer = SentenceTransformerTrainer(model, arguments, train_dataset=pairs if kind == "SoftmaxLoss" else targets, loss=loss)
    trainer.remove_callback(transformers.PrinterCallback)
    if averaged:
        trainer.add_callback(Average(trainer, layer))
    trainer.train()
    return model[0].embedding.weight.detach(), layer, start, trainer, loss


def compare(kind, averaged):
    embeddings, layer, start, trainer, loss = train(kind, averaged)
    gathered = [trainer.accelerator.gather(one.detach()[None]) for one in (embeddings, layer.weight)]
    apart = [((one[0] - one[1]).norm() / (one[0] - base).norm()).item() for one, base in zip(gathered, (table, start))]
    agreed = None
    if kind == "SoftmaxLoss":
        with torch.no_grad():
            features = [trainer.model.preprocess(texts[:512]) for texts in (left, right)]
            votes = trainer.accelerator.gather(loss(features, None)[1].argmax(1)[None])
        agreed = (votes[0] == votes[1]).float().mean().item()
    if trainer.accelerator.process_index == 0:
        print(f"{kind}, {'averaged by hand' if averaged else 'as it is'}: embeddings of two ranks are apart by {apart[0]:.4f} of their way, "
              f"layers of the loss by {apart[1]:.4f}", "" if agreed is None else f"; they agree on {100 * agreed:.0f} % of pairs", flush=True)
    return *apart, agreed, embeddings


if __name__ == "__main__":
    results = {(kind, averaged): compare(kind, averaged) for kind in ("SoftmaxLoss", "MSELoss") for averaged in (False, True)}
    if torch.distributed.get_rank() == 0:
        print("sentence-transformers", sentence_transformers.__version__, "transformers", transformers.__version__, "torch", torch.__version__)
    assert sentence_transformers.__version__ == "6.3.0" and torch.__version__.startswith("2.15.0")
    for (kind, averaged), (embeddings, layers, agreed, _) in results.items():
        assert embeddings == 0, kind
        assert layers == 0 and agreed in (None, 1.0) if averaged else layers > 0.4, ("the behaviour changed", kind, averaged, layers)
    for kind in ("SoftmaxLoss", "MSELoss"):
        seen, right = results[kind, False][3], results[kind, True][3]
        off = ((seen - right).norm() / (right - table).norm()).item()
        if torch.distributed.get_rank() == 0:
            print(f"{kind}: embeddings are off those of the averaged run by {off:.2f} of their way")
        assert off > 0.1
    assert results["SoftmaxLoss", False][2] < 0.95
    torch.distributed.destroy_process_group()
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore -m torch.distributed.run --standalone --nproc_per_node 2 "$folder/heads.py" \
  "$folder/output" 2>"$folder/errors" || { tail -30 "$folder/errors"; exit 1; }
