#!/usr/bin/env bash
# torch 2.15.0, torch.optim.swa_utils: the moving average of a bf16 model stays at the weights of its first update.
#
# Expected: AveragedModel with get_ema_multi_avg_fn() (decay 0.999, the default) follows the weights: 63 % of the way in 1,000 updates.
# Seen: in bf16 not one of 262,144 elements moves, although every weight grew by half. In fp32 63 %, as expected.
#   The average keeps the type of the model. A step of 0.001 times the distance rounds away unless the weight more than
#   triples. Decay 0.9999 is the same.
# Why it matters: evaluation and the released checkpoint use the average. For a model in bf16 it is the model at the first update;
#   a fine-tuning run that ships its average ships the base model. Nothing warns, and loss curves of the trained weights look right.
#   The average has to be a copy in fp32.
# Usage: ./ema_of_bf16_weights_never_moves.sh (seconds, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'END'
import inspect

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

print("torch", torch.__version__)
assert torch.__version__.startswith("2.15.0")
assert inspect.signature(get_ema_multi_avg_fn).parameters["decay"].default == 0.999
torch.set_num_threads(1)


def followed(dtype, decay):
    """Share of the way that the average went, and share of elements that never moved."""
    torch.manual_seed(0)
    model = torch.nn.Linear(512, 512, bias=False).to(dtype)
    torch.nn.init.normal_(model.weight, std=0.02)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
    average.update_parameters(model)
    start = model.weight.detach().float().clone()
    with torch.no_grad():
        model.weight.mul_(1.5)
    for _ in range(1000):
        average.update_parameters(model)
    assert average.module.weight.dtype == dtype
    way, moved = model.weight.detach().float() - start, average.module.weight.detach().float() - start
    return (moved.norm() / way.norm()).item(), (moved == 0).float().mean().item()


share, still = followed(torch.float32, 0.999)
print(f"fp32, decay 0.999: {share:.3f} of the way, {still:.4f} of the elements unmoved")
assert abs(share - 0.632) < 0.01 and still < 1e-3
for decay in 0.999, 0.9999:
    share, still = followed(torch.bfloat16, decay)
    print(f"bf16, decay {decay}: {share:.3f} of the way, {still:.4f} of the elements unmoved")
    assert share == 0.0 and still == 1.0, "the average of bf16 weights moves: the behaviour changed"
END
