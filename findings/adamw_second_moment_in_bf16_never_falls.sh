#!/usr/bin/env bash
# torch 2.15.0: the second moment of AdamW with bf16 weights rises and never falls again, with the default beta2 of 0.999.
#
# Expected: bf16 moments are noisy, but follow the gradients. After a phase of large gradients the second moment decays.
# Seen: 100 steps with gradients of 1, then 3,000 with 0.01. In fp32 the second moment falls from 0.095 to 0.0048.
#   In bf16 it stays where it was, to the last bit, so each update is more than 4 times too small.
#   0.999 v is nearer to v than to the next smaller bf16 number. foreach and fused alike. With beta2 = 0.95 it falls.
# Why it matters: torch keeps moments in the type of the weights. A model loaded in bf16 and trained without fp32 masters has these
#   states, and 0.999 is the default of torch and of Trainer. The learning rate of a weight ratchets down at each spike.
#   "Half the memory for the optimizer" needs a beta2 of 0.99 or less, fp32 moments, or stochastic rounding.
# Usage: ./adamw_second_moment_in_bf16_never_falls.sh (seconds, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'END'
import inspect

import torch

print("torch", torch.__version__)
assert torch.__version__.startswith("2.15.0")
assert inspect.signature(torch.optim.AdamW).parameters["betas"].default == (0.9, 0.999)
torch.set_num_threads(1)


def moments(dtype, beta2, **kernel):
    """The second moment after the large gradients, and after the small ones; the last update in learning rates."""
    weight = torch.nn.Parameter(torch.zeros(64, dtype=dtype))
    optimizer = torch.optim.AdamW([weight], lr=1e-4, betas=(0.9, beta2), weight_decay=0.0, **kernel)
    state = optimizer.state[weight]
    seen = []
    for gradient, steps in ((1.0, 100), (0.01, 3000)):
        weight.grad = torch.full_like(weight, gradient)
        for _ in range(steps):
            optimizer.step()
        seen.append(state["exp_avg_sq"].float().max().item())
    assert state["exp_avg_sq"].dtype == dtype
    corrected = seen[1] / (1 - beta2 ** 3100)
    return *seen, state["exp_avg"].float().max().item() / corrected**0.5


for kernel in {"foreach": True}, {"fused": True}:
    for beta2 in 0.999, 0.95:
        _, low, update = moments(torch.float32, beta2, **kernel)
        top16, low16, update16 = moments(torch.bfloat16, beta2, **kernel)
        print(f"{next(iter(kernel))}, beta2 {beta2}: bf16 {top16:.5f} -> {low16:.5f}, fp32 ends at {low:.5f}; "
              f"last update in learning rates: bf16 {update16:.3f}, fp32 {update:.3f}")
        if beta2 == 0.999:
            assert low16 == top16, "bf16 moments fall: the behaviour changed"
            assert 0.004 < low < 0.006 and update > 4 * update16
        else:
            assert low16 < 2e-4 and abs(update16 / update - 1) < 0.1
END
