#!/usr/bin/env bash
# torch 2.15.0, torch.distributed.pipelining: gradients accumulated over several schedule.step() calls forget the earlier batches.
#
# Expected: four step() calls before one optimizer step add up to the gradient of four batches, as four backward() calls do.
# Seen: with 8 micro-batches the batches count 1/512, 1/64, 1/8 and 1: four equal batches give 1.143 gradients, not 4.
#   Each step() divides p.grad by the number of micro-batches (scale_grads=True, the default), and with it what was there before.
#   scale_grads=False adds up as expected. No warning; the loss that step() returns is right.
# Why it matters: a pipeline whose activations do not fit all micro-batches accumulates over step() calls. Its global batch is then
#   the last call's in all but name: the same GPU hours for gradients four times as noisy.
# Usage: ./pipeline_accumulation_forgets_earlier_batches.sh (seconds, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - "$folder/store" <<'END'
import sys

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

print("torch", torch.__version__)
assert torch.__version__.startswith("2.15.0")
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
MICRO_BATCHES, CALLS = 8, 4
mean_squares = torch.nn.functional.mse_loss


def ratio(schedule_class, **options):
    """Accumulated gradient after CALLS equal batches, in gradients of one batch; and the losses of the last call."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    batch, target = torch.randn(16, 4), torch.randn(16, 4)
    one = torch.autograd.grad(mean_squares(model(batch), target), model.weight)[0]
    stage = PipelineStage(model, 0, 1, torch.device("cpu"))
    schedule = schedule_class(stage, MICRO_BATCHES, loss_fn=mean_squares, **options)
    for _ in range(CALLS):
        losses = []
        schedule.step(batch, target=target, losses=losses)
    assert torch.allclose(torch.stack(losses).mean(), mean_squares(model(batch), target))
    return (model.weight.grad.norm() / one.norm()).item()


forgetting = sum(MICRO_BATCHES**-age for age in range(CALLS))
for schedule_class in ScheduleGPipe, Schedule1F1B:
    scaled = ratio(schedule_class)
    plain = ratio(schedule_class, scale_grads=False) / MICRO_BATCHES
    print(f"{schedule_class.__name__}: {CALLS} calls give {scaled:.4f} gradients of one call (expected {CALLS}); "
          f"scale_grads=False, divided at the end: {plain:.4f}")
    assert abs(scaled - forgetting) < 1e-3 and abs(plain - CALLS) < 1e-3
dist.destroy_process_group()
END
