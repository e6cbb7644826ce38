#!/usr/bin/env bash
# lightning 2.6.6, torch 2.15.0: a resumed run freezes again for good what BackboneFinetuning or another BaseFinetuning had unfrozen.
#
# Expected: trainer.fit(ckpt_path=...) goes on where the run was. A backbone that was unfrozen at epoch 1 trains on from epoch 3.
# Seen, BackboneFinetuning that unfreezes at epoch 1, six epochs. In one go the backbone moves in epochs 3 to 5. Resumed from the
#   checkpoint of epoch 2 it does not move at all: 0.0000 of that way, in three epochs. All its weights have requires_grad=False. The optimizer
#   holds them in a group with the right rate, so that the log shows a learning rate. The head trains. The same with a callback of
#   one's own that unfreezes at one epoch. Control: with a callback that calls make_trainable() whenever the epoch is past, the
#   resumed run ends at the weights of the run in one go.
# Why: setup() freezes in each run. What is restored on resume are the optimizer's groups, and not requires_grad. The callback
#   unfreezes at the very epoch that it is told, which the resumed run does not meet again.
# Why it matters: jobs with a time limit resume often. From the first resume on, only the head trains. The loss still falls, and nothing warns.
# Usage: ./lightning_finetuning_freezes_again_on_resume.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 lightning==2.6.6 numpy==2.4.6
cd "$folder"
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore - 2>"$folder/errors" <<'END' || { tail "$folder/errors"; exit 1; }
import logging

import lightning
import torch
from lightning.pytorch.callbacks import BackboneFinetuning, BaseFinetuning, ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

SAVED, EPOCHS, WIDTH, SAMPLES, RATE = 3, 6, 16, 64, 0.1
torch.set_num_threads(1)
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
print("lightning", lightning.__version__, "torch", torch.__version__)
assert lightning.__version__ == "2.6.6" and torch.__version__.startswith("2.15.0")
draws = torch.Generator().manual_seed(1)
inputs = torch.randn(SAMPLES, WIDTH, generator=draws)
targets = torch.tanh(inputs @ torch.randn(WIDTH, 1, generator=draws))


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.backbone = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())
        self.head = torch.nn.Linear(WIDTH, 1)

    def training_step(self, batch, _):
        return torch.nn.functional.mse_loss(self.head(self.backbone(batch[0])), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD((weight for weight in self.parameters() if weight.requires_grad), lr=RATE)


class Own(BaseFinetuning):
    def freeze_before_training(self, module):
        self.freeze(module.backbone)

    def finetune_function(self, module, epoch, optimizer):
        if epoch == 1:
            self.unfreeze_and_add_param_group(module.backbone, optimizer, lr=RATE)


class Again(Own):
    def finetune_function(self, module, epoch, optimizer):
        super().finetune_function(module, epoch, optimizer)
        if epoch > 1:
            self.make_trainable(module.backbone)


def backbone_finetuning():
    return BackboneFinetuning(unfreeze_backbone_at_epoch=1, lambda_func=lambda epoch: 1.0, backbone_initial_lr=RATE, should_align=False)


def fit(callback, epochs, resumed=None):
    saver = ModelCheckpoint(dirpath="saved", filename="last", save_top_k=1, enable_version_counter=False)
    model = Model()
    trainer = lightning.Trainer(accelerator="cpu", max_epochs=epochs, callbacks=[callback(), saver], logger=False,
                                enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, DataLoader(TensorDataset(inputs, targets), batch_size=16), ckpt_path=resumed)
    return model, trainer.optimizers[0].param_groups, saver.best_model_path


def flat(module):
    return torch.cat([weight.detach().flatten() for weight in module.parameters()])


for name, callback in {"BackboneFinetuning": backbone_finetuning, "a callback of one's own": Own, "one that unfreezes again": Again}.items():
    whole = fit(callback, EPOCHS)[0]
    stopped, _, path = fit(callback, SAVED)
    resumed, groups, _ = fit(callback, EPOCHS, path)
    way = {part: (flat(getattr(whole, part)) - flat(getattr(stopped, part))).norm() for part in ("backbone", "head")}
    moved = {part: ((flat(getattr(resumed, part)) - flat(getattr(stopped, part))).norm() / way[part]).item() for part in way}
    off = ((flat(resumed) - flat(whole)).norm() / (flat(whole) - flat(stopped)).norm()).item()
    trains = [weight.requires_grad for weight in resumed.backbone.parameters()]
    print(f"{name}: resumed, the backbone moves {moved['backbone']:.4f} of the way of a run in one go, the head {moved['head']:.4f};",
          f"requires_grad {trains}, rates of the groups {[group['lr'] for group in groups]}; all weights off by {off:.4f}")
    assert len(groups) == 2 and groups[1]["lr"] == RATE and len(groups[1]["params"]) == 2
    if callback is Again:
        assert all(trains) and off < 1e-5
    else:
        assert not any(trains) and moved["backbone"] == 0 and moved["head"] > 0.3, "the behaviour changed"
END
