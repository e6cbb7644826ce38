#!/usr/bin/env bash
# lightning 2.6.6, torch 2.15.0: under DDP what BackboneFinetuning or another BaseFinetuning unfreezes is never averaged over the ranks.
#
# Expected: a backbone that a callback of Lightning unfreezes after an epoch trains as the head does. DDP keeps the weights of all ranks equal.
# Seen, 2 processes, strategy="ddp", BackboneFinetuning that unfreezes at epoch 1 of 5: heads of both ranks are equal, backbones are apart by
#   0.79 of the way that they went. A callback of one's own from BaseFinetuning, and "ddp_find_unused_parameters_true", do the same.
#   Controls: 0.0000 apart, and the weights of one process, where the callback freezes after DDP is made, and where nothing is
#   frozen but the backbone's rate is 0 for that epoch.
# Why: the callback freezes in setup(), and the strategy wraps the model in DDP after that. DDP puts hooks on those weights that need a
#   gradient when it is made. Weights unfrozen later have none, so that each rank steps with its own gradient.
# Why it matters: the callback refuses DeepSpeed and lets DDP pass. The loss falls, and nothing warns. The checkpoint has the backbone of
#   rank 0, which has seen half of the samples, and a head that was trained on both backbones.
# Usage: ./lightning_finetuning_leaves_ranks_apart_on_ddp.sh (two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 lightning==2.6.6 numpy==2.4.6
cat >"$folder/train.py" <<'END'
import logging
import os
import sys

import lightning
import torch
from lightning.pytorch.callbacks import BackboneFinetuning, BaseFinetuning, Callback
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, WIDTH, SAMPLES, BATCH, RATE = 5, 16, 64, 16, 0.1
folder, kind, strategy, ranks = sys.argv[1:4] + [int(sys.argv[4])]
torch.set_num_threads(1)
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
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
        if kind == "rate 0":
            return torch.optim.SGD([{"params": self.head.parameters()}, {"params": self.backbone.parameters(), "lr": 0.0}], lr=RATE)
        return torch.optim.SGD((weight for weight in self.parameters() if weight.requires_grad), lr=RATE)


class Own(BaseFinetuning):
    def freeze_before_training(self, module):
        self.freeze(module.backbone)

    def finetune_function(self, module, epoch, optimizer):
        if epoch == 1:
            self.unfreeze_and_add_param_group(module.backbone, optimizer, lr=RATE)


class Late(Own):
    """Freezes once DDP is there."""
    def setup(self, trainer, module, stage):
        pass

    def on_train_start(self, trainer, module):
        self.freeze_before_training(module)

    def finetune_function(self, module, epoch, optimizer):
        if epoch == 1:
            self.make_trainable(module.backbone)


class Raise(Callback):
    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == 1:
            trainer.optimizers[0].param_groups[1]["lr"] = RATE


CALLBACKS = {"BackboneFinetuning": lambda: BackboneFinetuning(1, lambda epoch: 1.0, backbone_initial_lr=RATE, should_align=False),
             "own": Own, "late": Late, "rate 0": Raise}
model, start = Model(), Model()
trainer = lightning.Trainer(accelerator="cpu", devices=ranks, strategy=strategy, max_epochs=EPOCHS, callbacks=[CALLBACKS[kind]()], logger=False,
                            use_distributed_sampler=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder)
mine = range(int(os.environ.get("LOCAL_RANK", "0")), SAMPLES, ranks)  # a batch of all ranks has the samples of one process' batch
trainer.fit(model, DataLoader(TensorDataset(inputs, targets), batch_size=BATCH // ranks, sampler=mine))


def flat(module):
    return torch.cat([weight.detach().flatten() for weight in module.parameters()])


def numbers(name):
    mine, begin = flat(getattr(model, name)), flat(getattr(start, name))
    every = [torch.zeros_like(mine) for _ in range(ranks)]
    torch.distributed.all_gather(every, mine)
    alone = torch.load(f"{folder}/alone.pt")[name]
    return [((a - b).norm() / (alone - begin).norm()).item() for a, b in ((every[0], every[1]), (every[0], alone))]


if ranks == 1:
    torch.save({"backbone": flat(model.backbone), "head": flat(model.head)}, f"{folder}/alone.pt")
else:
    apart, off = numbers("backbone")
    head_apart, head_off = numbers("head")
    if trainer.global_rank == 0:
        print(f"{kind}, {strategy}: ranks' backbones apart by {apart:.4f} of their way, heads by {head_apart:.4f};",
              f"off one process {off:.4f} and {head_off:.4f}", flush=True)
    assert head_apart == 0
    if kind in ("late", "rate 0"):
        assert apart == 0 and off < 1e-4 and head_off < 1e-4
    else:
        assert apart > 0.3 and off > 0.1, "the behaviour changed"
END
python="$folder/env/bin/python"
"$python" -c 'import lightning, torch
print("lightning", lightning.__version__, "torch", torch.__version__)
assert lightning.__version__ == "2.6.6" and torch.__version__.startswith("2.15.0")'
train() {
  OMP_NUM_THREADS=1 timeout 200 "$python" -W ignore "$folder/train.py" "$folder" "$@" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
}
train own auto 1
train BackboneFinetuning ddp 2
train BackboneFinetuning ddp_find_unused_parameters_true 2
train own ddp 2
train late ddp_find_unused_parameters_true 2
train "rate 0" ddp 2
