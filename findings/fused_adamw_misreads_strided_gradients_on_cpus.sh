#!/usr/bin/env bash
# torch 2.15.0: fused AdamW on CPUs reads a gradient in the order of memory. With other strides than its weight's it updates wrong elements.
#
# Expected: a gradient of the weight's shape gives the same update whatever its strides are, with fused=True as without.
# Seen, a weight of 4 x 6, and a gradient with swapped rows and columns in memory. Without fused all elements are right. With fused=True each
#   element gets another one's update, by up to 0.11 at a learning rate of 0.1. Nothing is said. A contiguous gradient is right both ways.
# Why it matters: gradients have other strides where autograd gets them from a transposed product, or where a framework scatters views of a buffer.
#   Trainers ask for the fused one by default. A model then trains, to a worse loss.
# Usage: ./fused_adamw_misreads_strided_gradients_on_cpus.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.3.5
cat >"$folder/run.py" <<'END'
import torch

RATE = 0.1
assert torch.__version__.startswith("2.15.0")
torch.manual_seed(0)
rows = torch.randn(4, 6)


def updated(gradient, fused):
    weight = torch.nn.Parameter(torch.zeros(4, 6))
    weight.grad = gradient
    torch.optim.AdamW([weight], lr=RATE, weight_decay=0.0, eps=1.0, fused=fused).step()
    return weight.detach()


swapped = rows.t().contiguous().t()
assert torch.equal(rows, swapped) and rows.stride() != swapped.stride()
right = updated(rows, False)
for name, gradient in (("in order", rows), ("columns first", swapped)):
    for fused in (False, True):
        print(f"{name}, strides {gradient.stride()}, fused={fused}: off by up to {float((updated(gradient, fused) - right).abs().max()):.3f}")
assert torch.allclose(updated(swapped, False), right) and torch.allclose(updated(rows, True), right)
assert float((updated(swapped, True) - right).abs().max()) > 0.5 * RATE
END
"$folder/env/bin/python" "$folder/run.py"
