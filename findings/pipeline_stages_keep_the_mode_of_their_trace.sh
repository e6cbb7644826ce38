#!/usr/bin/env bash
# torch 2.15.0, torch.distributed.pipelining: stages that pipeline() cuts from a model keep training or evaluation of the trace for good.
#
# Expected: stage.eval() and stage.train() switch dropout and batch norm as in each module, or raise, as torch.export's programs do.
# Seen: a model traced while it trains still drops half of its values after stage.eval(). It normalises by the batch, not by its running
#   statistics, and goes on to change these. Traced in eval(), it never drops anything after stage.train(), and its statistics never move.
#   The stage's .training follows each call. schedule.eval() is evaluated like that, too. Nothing warns. The model itself, cut by hand
#   and run by the same schedule, does what its mode says.
# Why it matters: validation losses of a traced pipeline are those of training, noise and all, and evaluation changes what a checkpoint holds.
#   A model that comes in eval(), as from_pretrained of transformers gives it, is fine-tuned without its dropout.
# Usage: ./pipeline_stages_keep_the_mode_of_their_trace.sh (seconds, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6
cat >"$folder/modes.py" <<'END'
import sys

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe, pipeline

assert torch.__version__.startswith("2.15.0")
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
BATCH = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.drop = torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5)

    def forward(self, rows):
        return self.drop(self.norm(self.first(rows)))


def stage_of(traced, training):
    """One stage of a model in this mode: traced by pipeline(), or the model itself."""
    model = Net().train(training)
    if not traced:
        return model, PipelineStage(model, 0, 1, torch.device("cpu"))
    pipe = pipeline(model, (BATCH,))
    return pipe.get_stage_module(0), pipe.build_stage(0, torch.device("cpu"))


for traced in False, True:
    for before in True, False:
        for after in True, False:
            module, stage = stage_of(traced, before)
            module.train(after)
            schedule = ScheduleGPipe(stage, 1)
            buffers = dict(module.named_buffers())
            mean = next(value for name, value in buffers.items() if name.endswith("running_mean"))
            kept = mean.clone()
            run = schedule.step if after else schedule.eval
            with torch.no_grad():
                first, second = run(BATCH), run(BATCH)
            dropped = (first == 0).float().mean().item()
            moved = not torch.equal(mean, kept)
            print(f"{'cut by pipeline()' if traced else 'the model itself'} in {'train' if before else 'eval'}(), then "
                  f"{'train' if after else 'eval'}(): .training {module.training}, {dropped:.0%} of the values dropped, "
                  f"two calls {'agree' if torch.equal(first, second) else 'differ'}, statistics {'move' if moved else 'stay'}", flush=True)
            works = before if traced else after
            assert module.training == after and moved == works and torch.equal(first, second) != works, "the behaviour changed"
            assert 0.4 < dropped < 0.6 if works else dropped == 0, "the behaviour changed"
print("torch", torch.__version__)
dist.destroy_process_group()
END
OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo timeout 200 "$folder/env/bin/python" -W ignore "$folder/modes.py" "$folder/store" \
  2>"$folder/errors" || { tail -40 "$folder/errors"; exit 1; }
