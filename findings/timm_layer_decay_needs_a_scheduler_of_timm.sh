#!/usr/bin/env bash
# timm 1.0.31, torch 2.15.0: layer_decay of create_optimizer_v2 sets no rate: with a scheduler of torch, or with none, all layers have the same.
#
# Expected: its documentation says that rates are scaled by layer_decay to the power of the layer's distance from the top.
# Seen, ViT with 12 blocks, AdamW, lr=1e-3, layer_decay=0.65. With torch's CosineAnnealingLR all groups have 1e-3. After 10 steps all
#   weights equal those of a run without layer_decay, to the last bit. The patch embedding has moved by 1.04. With no
#   scheduler all groups have 1e-3, too.
# Controls: with timm's CosineLRScheduler the first group has 3.7e-06, that is 0.65 to the 13th, and the patch embedding moves by 0.0048.
#   So does multiplying each group's lr by its lr_scale before torch's scheduler is made.
# Why: the factor is only written to each group as lr_scale. timm's schedulers multiply by it when they set a rate. The optimizer does
#   not read it, and neither do torch's, transformers' and Lightning's schedulers.
# Why it matters: a fine-tuning outside timm's own script trains the lowest layers at 270 times the rate that was asked for. There are 28
#   groups, as there should be. Nothing warns. A pull request (#2532) that set the rates was closed.
# Usage: ./timm_layer_decay_needs_a_scheduler_of_timm.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 timm==1.0.31 numpy==2.4.6
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore - 2>"$folder/errors" <<'END' || { tail "$folder/errors"; exit 1; }
import importlib.metadata

import timm
import torch
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler

torch.set_num_threads(1)
print("torch", torch.__version__, "timm", importlib.metadata.version("timm"))
assert torch.__version__.startswith("2.15.0") and importlib.metadata.version("timm") == "1.0.31"
RATE, DECAY, STEPS = 1e-3, 0.65, 10
draws = torch.Generator().manual_seed(1)
IMAGES, LABELS = torch.randn(8, 3, 32, 32, generator=draws), torch.randint(0, 10, (8,), generator=draws)


def train(kind, decay):
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=10, depth=12)
    optimizer = create_optimizer_v2(model, "adamw", lr=RATE, weight_decay=0.05, layer_decay=decay)
    if kind == "torch's, rates by hand":
        for group in optimizer.param_groups:
            group["lr"] *= group["lr_scale"]
    schedule = None
    if kind == "timm's":
        schedule = CosineLRScheduler(optimizer, t_initial=STEPS, t_in_epochs=False)
    elif kind != "none":
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    rates = sorted({group["lr"] for group in optimizer.param_groups})
    start = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for step in range(STEPS):
        torch.nn.functional.cross_entropy(model(IMAGES), LABELS).backward()
        optimizer.step()
        optimizer.zero_grad()
        if kind == "timm's":
            schedule.step_update(step + 1)
        elif schedule is not None:
            schedule.step()
    moved = {name: (weight.detach() - start[name]).norm().item() for name, weight in model.named_parameters()}
    return rates, len(optimizer.param_groups), moved["patch_embed.proj.weight"], moved["head.weight"], list(model.parameters())


*_, plain = train("torch's", None)
for kind in ("torch's", "none", "timm's", "torch's, rates by hand"):
    rates, groups, low, high, weights = train(kind, DECAY)
    rest = all(torch.equal(one, two) for one, two in zip(weights, plain))
    print(f"scheduler {kind}: {groups} groups, rates {rates[0]:.1e} to {rates[-1]:.1e}; the patch embedding moves by {low:.4f}, the head by "
          f"{high:.4f}; weights equal to those without layer_decay: {rest}", flush=True)
    if kind in ("torch's", "none"):
        assert rates == [RATE] and (kind == "none" or rest), "the behaviour changed"
    else:
        assert abs(rates[0] / (RATE * DECAY ** 13) - 1) < 1e-6 and rates[-1] == RATE and not rest
END
