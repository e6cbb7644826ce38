#!/usr/bin/env bash
# lightning 2.6.6, transformers 5.24.0, torch 2.15.0: under DDP Lightning shuffles what a sampler has put in order.
#
# Expected: the DataLoader's own sampler, here transformers' LengthGroupedSampler, orders samples so that those of a batch are of like
#   length. On several ranks Lightning wraps it in DistributedSamplerWrapper, whose docstring says that its `shuffle` has no effect,
#   and each rank reads its share in the sampler's order.
# Seen, 1,024 samples of 1 to 512 tokens, batches of 8, padding as a share of all positions: one process 3 %. Two ranks 43 %, as much as
#   plain shuffle=True (43 %). A sampler of 0, 1, 2 and so on is read in that order on one process only.
#   With use_distributed_sampler=False and the same order dealt out by hand two ranks have 3 %. All read each sample once.
# Why: Trainer passes shuffle=True to the wrapper, which permutes the places in the sampler's list before it deals them out.
# Why it matters: grouping by length is lost as soon as there is a second GPU: 1.7 times the positions for the same tokens. A curriculum
#   becomes a random order. No warning says so, and logs of samples per epoch look right.
# Usage: ./lightning_shuffles_what_a_sampler_ordered.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 lightning==2.6.6
cat >"$folder/order.py" <<'END'
import logging
import os

import lightning
import torch
import transformers as hf
from torch.utils.data import DataLoader
from transformers.trainer_pt_utils import LengthGroupedSampler

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and lightning.__version__ == "2.6.6"
SAMPLES, BATCH, RANKS, RANK = 1024, 8, int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
lengths = torch.randint(1, 513, (SAMPLES,), generator=torch.Generator().manual_seed(0))


class Dealt:
    """Each rank's share of the grouped order, batch by batch."""
    def __iter__(self):
        return iter(torch.tensor(list(grouped)).view(-1, BATCH)[RANK::RANKS].flatten().tolist())

    def __len__(self):
        return SAMPLES // RANKS


class Reader(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.batches, self.automatic_optimization = torch.nn.Linear(1, 1), [], False

    def training_step(self, batch, _):
        self.batches.append(batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def read(distribute=True, **how):
    """The share of padding, and whether rank 0 reads in rising order."""
    lightning.seed_everything(7, verbose=False)
    reader = Reader()
    lightning.Trainer(accelerator="cpu", devices=RANKS, strategy="ddp" if RANKS > 1 else "auto", max_epochs=1, logger=False,
                      enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                      use_distributed_sampler=distribute).fit(reader, DataLoader(torch.arange(SAMPLES), batch_size=BATCH, **how))
    batches = torch.stack(reader.batches)
    rising, parts = bool((batches.flatten().diff() > 0).all()), [torch.empty_like(batches) for _ in range(RANKS)]
    if RANKS > 1:
        torch.distributed.all_gather(parts, batches)
        batches = torch.cat(parts)
    assert torch.equal(batches.flatten().sort().values, torch.arange(SAMPLES))
    positions = (lengths[batches].amax(1) * BATCH).sum()
    return 1 - (lengths.sum() / positions).item(), rising


grouped, curriculum = LengthGroupedSampler(BATCH, lengths=lengths.tolist()), list(range(SAMPLES))
seen = {"shuffle=True": read(shuffle=True), "grouped by length": read(sampler=grouped), "in order": read(sampler=curriculum),
        "grouped, dealt by hand": read(False, sampler=Dealt())}
if RANK == 0:
    print("torch", torch.__version__, "transformers", hf.__version__, "lightning", lightning.__version__)
    for name, (padding, rising) in seen.items():
        print(f"{RANKS} process(es), {name:24} padding {padding:.1%}, rising order {rising}")
assert 0.4 < seen["shuffle=True"][0] < 0.46 and seen["grouped, dealt by hand"][0] < 0.03
assert seen["grouped by length"][0] < 0.03 if RANKS == 1 else seen["grouped by length"][0] > 0.4
assert seen["in order"][1] == (RANKS == 1)
END
"$folder/env/bin/python" -W ignore "$folder/order.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
timeout 300 "$folder/env/bin/python" -W ignore -m torch.distributed.run --standalone --nproc-per-node 2 "$folder/order.py" \
  2>"$folder/errors" || { tail -40 "$folder/errors"; exit 1; }
