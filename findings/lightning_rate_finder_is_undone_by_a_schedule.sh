#!/usr/bin/env bash
# lightning 2.6.6, torch 2.15.0: the rate that the LearningRateFinder callback finds is used for one step if the model has a scheduler.
#
# Expected: with LearningRateFinder among the callbacks a run trains at the rate that the callback found, times the schedule's factor.
# Seen, a small language model built with lr=1e-4, 100 steps. The finder says 1.0e-02, or 8.3e-03, and writes it to model.lr.
#   Linear warm-up by LambdaLR over 10 steps: the first step has 1.0e-02, without warm-up, the second 2.0e-05. No later one has more
#   than 1.0e-04. OneCycleLR: 8.3e-03, then at most 1.0e-04. The loss ends at 3.42 and 3.67, and at 0.74 and 0.71 with the rate found.
#   Two groups of parameters, the embedding at a tenth of the rate: both get 1.0e-02, with and without a scheduler.
# Controls: Tuner.lr_find before fit() finds the same rate, and schedules multiply it: 1.0e-03 at the first step of the warm-up, 1.0e-02
#   after it. The embedding has a tenth. The callback without a scheduler stays at 1.0e-02 on one group.
# Why: the callback runs when optimizer and scheduler exist. It writes the rate into each group of the optimizer. The scheduler keeps
#   the rates that it was built with, and writes these, times its factor, at its first step. Tuner runs before they are built for good.
#   Schedules that go on from the current rate, as CosineAnnealingLR, keep the new one.
# Why it matters: most language models train with a warm-up. model.lr, hparams and the message "Learning rate set to" name the found rate.
#   The run has that of the code, and one step at full rate before the warm-up. Nothing warns.
# Usage: ./lightning_rate_finder_is_undone_by_a_schedule.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 lightning==2.6.6 numpy==2.4.6
cat >"$folder/rates.py" <<'END'
import logging

import lightning
import torch
from lightning.pytorch.callbacks import LearningRateFinder
from lightning.pytorch.tuner import Tuner

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)
print("lightning", lightning.__version__, "torch", torch.__version__)
assert lightning.__version__ == "2.6.6" and torch.__version__.startswith("2.15.0")
WORDS, STEPS, BUILT = 64, 100, 1e-4
draws = torch.Generator().manual_seed(0)
columns = [torch.randint(0, WORDS, (3200,), generator=draws)]
for _ in range(16):  # each word has two followers
    columns.append((columns[-1] * 3 + 1 + torch.randint(0, 2, (3200,), generator=draws)) % WORDS)
texts = torch.stack(columns, 1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(texts), batch_size=32, shuffle=True)


class Model(lightning.LightningModule):
    def __init__(self, schedule, groups):
        super().__init__()
        self.lr, self.schedule, self.groups, self.rates = BUILT, schedule, groups, []
        layers = torch.nn.Embedding(WORDS, 64), torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, WORDS)
        self.net = torch.nn.Sequential(*layers)

    def training_step(self, batch, _):
        words = batch[0]
        return torch.nn.functional.cross_entropy(self.net(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())

    def configure_optimizers(self):
        weights = self.parameters()
        if self.groups == 2:
            weights = [{"params": self.net[0].parameters(), "lr": self.lr / 10}, {"params": self.net[1:].parameters()}]
        optimizer = torch.optim.AdamW(weights, lr=self.lr)
        if self.schedule == "no scheduler":
            return optimizer
        if self.schedule == "LambdaLR":
            scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 10, 1))
        elif self.schedule == "OneCycleLR":
            scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.lr, total_steps=STEPS + 1)
        else:
            scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_train_start(self):
        self.rates.clear()  # what the finder's own steps had

    def on_before_optimizer_step(self, optimizer):
        self.rates.append([group["lr"] for group in optimizer.param_groups])


def run(schedule, callback, groups=1):
    lightning.seed_everything(0, verbose=False)
    model = Model(schedule, groups)
    trainer = lightning.Trainer(
        max_steps=STEPS, accelerator="cpu", callbacks=[LearningRateFinder()] if callback else [], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    if not callback:
        Tuner(trainer).lr_find(model, loader)
    trainer.fit(model, loader)
    rates = model.rates[-STEPS:]
    assert len(rates) == STEPS
    with torch.no_grad():
        loss = model.training_step((texts,), 0).item()
    highest = max(rate[-1] for rate in rates[1:])
    print(f"{schedule}, {'callback' if callback else 'Tuner'}, {groups} group{'s' * (groups - 1)}: model.lr {model.lr:.1e}, steps 1, 2 and 20",
          *(" ".join(f"{rate:.1e}" for rate in rates[step]) for step in (0, 1, 19)), sep=" | ", end="")
    print(f" | highest after step 1: {highest:.1e}, loss {loss:.2f}", flush=True)
    return model.lr, rates, highest, loss


for schedule in ("no scheduler", "CosineAnnealingLR", "LambdaLR", "OneCycleLR"):
    found, rates, highest, loss = run(schedule, True)
    right, planned, peak, good = run(schedule, False)
    assert 1e-3 < found == right < 0.1 and abs(peak / right - 1) < 0.01
    assert rates[0][0] == found
    if schedule in ("LambdaLR", "OneCycleLR"):
        assert highest <= BUILT * 1.001 < found / 10 and loss > good + 1 and planned[0][0] < found / 5, "the behaviour changed"
    else:
        assert abs(highest / found - 1) < 0.01 and abs(loss - good) < 0.1
for schedule in ("no scheduler", "LambdaLR"):
    rates, planned = run(schedule, True, 2)[1], run(schedule, False, 2)[1]
    assert rates[0][0] == rates[0][1], "the behaviour changed"
    assert all(abs(small / large - 0.1) < 1e-6 for small, large in planned)
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/rates.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
