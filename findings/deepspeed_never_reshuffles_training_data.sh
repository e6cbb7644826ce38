#!/usr/bin/env bash
# deepspeed 0.19.8, torch 2.15.0: the loader that DeepSpeed makes of training_data has one order for all epochs, in a pipeline the data set's.
#
# Expected: deepspeed.initialize(training_data=...) shuffles, and in another order in each epoch. A run that resumes goes on where it was.
# Seen, 16 samples, two data ranks: three epochs of the loader that initialize() returns have the same order, and each rank the same
#   half of the samples. A pipeline reads 0, 2, 4, ... and 1, 3, 5, ... without any shuffling, in each epoch.
#   After load_checkpoint a pipeline at step 6 starts again with sample 0: all of the next 4 batches were read before.
#   The sampler's set_epoch is never called; that of a pipeline is made without shuffling. loader.data_sampler.set_epoch(epoch) cures the first.
# Why it matters: a sorted data set is trained sorted in a pipeline. Equal batches in each epoch train worse than shuffled ones. A pipeline
#   that resumes often reads the start of its data again and again, and never the end.
# Usage: ./deepspeed_never_reshuffles_training_data.sh (about two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 deepspeed==0.19.8
cat >"$folder/order.py" <<'END'
import os
import sys

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.pipe import PipelineModule

torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and deepspeed.__version__ == "0.19.8"
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # so that nothing is compiled
deepspeed.init_distributed("gloo")
rank = dist.get_rank()
SAMPLES = [(torch.full((4,), float(number)), torch.tensor(0.0)) for number in range(16)]
CONFIG = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True}


class Layer(torch.nn.Linear):
    read: list = []

    def forward(self, rows):
        self.read.extend(int(row[0]) for row in rows)
        return super().forward(rows)


def start(model):
    return deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1e-6), training_data=SAMPLES, config=CONFIG)


def pipeline():
    Layer.read.clear()
    return start(PipelineModule([Layer(4, 1)], num_stages=1, loss_fn=lambda output, target: output.mean()))[0]


def of_all(value):
    values = [None] * 2
    dist.all_gather_object(values, list(value))
    return values


loader = start(torch.nn.Linear(4, 1))[2]
epochs = [[int(rows[0, 0]) for rows, _ in loader] for _ in range(3)]
loader.data_sampler.set_epoch(1)
cured = [int(rows[0, 0]) for rows, _ in loader]
plain = of_all(epochs)
engine = pipeline()
for _ in range(6):
    engine.train_batch()
engine.save_checkpoint(sys.argv[1], tag="saved")
for _ in range(10):
    engine.train_batch()
through = of_all(Layer.read)
engine = pipeline()
engine.load_checkpoint(sys.argv[1], tag="saved")
steps = engine.global_steps
for _ in range(4):
    engine.train_batch()
resumed = of_all(Layer.read)
if rank == 0:
    print(f"seen: torch {torch.__version__}, deepspeed {deepspeed.__version__}")
    for place in range(2):
        print(f"seen: rank {place}: epochs {plain[place]}")
        print(f"seen: rank {place}: pipeline, 16 batches {through[place]}; resumed at step {steps} {resumed[place]}")
    print(f"seen: after set_epoch(1) on rank 0 {cured}", flush=True)
for place in range(2):
    assert plain[place][0] == plain[place][1] == plain[place][2] and plain[place][0] != sorted(plain[place][0]), "the behaviour changed"
    assert through[place] == 2 * list(range(place, 16, 2)) and resumed[place] == list(range(place, 8, 2)), "the behaviour changed"
assert steps == 6 and cured != epochs[0], "the behaviour changed"
dist.barrier()
os._exit(0)
END
DS_ACCELERATOR=cpu CUDA_VISIBLE_DEVICES="" OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo timeout 200 "$folder/env/bin/python" -W ignore \
  -m torch.distributed.run --standalone --nproc-per-node 2 "$folder/order.py" "$folder/checkpoint" >"$folder/said" 2>"$folder/errors" ||
  { tail -40 "$folder/errors"; exit 1; }
grep -o 'seen: .*' "$folder/said" | cut -c7-
