#!/usr/bin/env bash
# deepspeed 0.19.8, torch 2.15.0: with curriculum learning the length of DeepSpeed's loader is that of all ranks together.
#
# Expected: len(loader) of the loader that deepspeed.initialize returns is the number of batches that this rank gets, as without curriculum.
# Seen, 96 samples, 2 a rank, 2 epochs. Curriculum: len(loader) is 96 on one rank, on two and on four, and each rank gets 97, 49 and 25.
#   A WarmupDecayLR over len(loader) steps ends at 0.00, at 0.51 and at 0.77 of its rate.
# Control: the same loader without curriculum has a length of 48, 24 and 12 for one epoch, and each rank gets as many.
# Why: the curriculum's sampler counts the samples of all ranks, and hands out to each rank its part of a batch. The loader divides
#   this count by the batch of one rank.
# Why it matters: len(loader) is what one plans a schedule, evaluations and a bar of progress with. On 8 ranks a decay ends near 7/8 of
#   its rate, and an evaluation at each tenth of len(loader) runs once. Nothing is said.
# Usage: ./deepspeed_curriculum_loader_counts_the_batches_of_all_ranks.sh (about two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 deepspeed==0.19.8
cat >"$folder/length.py" <<'END'
import logging
import os
import sys

import deepspeed
import torch
import torch.distributed as dist

logging.disable(logging.WARNING)
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and deepspeed.__version__ == "0.19.8"
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # so that nothing is compiled
deepspeed.init_distributed("gloo")
ranks, SAMPLES, MICRO, EPOCHS, RATE = dist.get_world_size(), 96, 2, 2, 1e-3
data = [torch.full((8,), float(number)) for number in range(SAMPLES)]


def start(curriculum, schedule=None):
    torch.manual_seed(0)
    config = {"train_micro_batch_size_per_gpu": MICRO, "optimizer": {"type": "AdamW", "params": {"lr": RATE, "torch_adam": True}}}
    if curriculum:
        # The order of the data is left to the metric of length: texts are cut to the difficulty, as for the documentation's "seqlen".
        metric = {"index_to_sample_path": "", "index_to_metric_path": "", "difficulty_type": "value", "clustering_type": "single_cluster",
                  "min_difficulty": 8, "max_difficulty": 64, "schedule_type": "fixed_linear",
                  "schedule_config": {"total_curriculum_step": 20, "difficulty_step": 8}}
        learning = {"enabled": True, "data_cluster_path": f"{sys.argv[1]}/{ranks}-{schedule}", "curriculum_metrics": {"seqlen": metric}}
        config["data_efficiency"] = {"enabled": True, "seed": 1, "data_sampling": {
            "enabled": True, "num_epochs": EPOCHS, "num_workers": 0, "curriculum_learning": learning}}
    if schedule:
        config["scheduler"] = {"type": "WarmupDecayLR", "params": {"total_num_steps": schedule, "warmup_max_lr": RATE, "warmup_num_steps": 2}}
    model = torch.nn.Linear(8, 1)
    engine, _, loader, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), training_data=data, config=config)
    return engine, loader


def batches(engine, loader):
    number = 0
    for inputs in loader:
        engine.backward(engine(inputs).square().mean())
        engine.step()
        number += 1
    return number


engine, loader = start(False)
plain = len(loader), batches(engine, loader)
length = len(start(True)[1])
engine, loader = start(True, length)
got = batches(engine, loader)
rate = engine.get_lr()[0] / RATE
if dist.get_rank() == 0:
    print(f"seen: {ranks} ranks, without curriculum: len(loader) {plain[0]}, batches of a rank {plain[1]}; with it, {EPOCHS} epochs: "
          f"len(loader) {length}, batches of a rank {got}, a decay over len(loader) steps ends at {rate:.2f} of its rate", flush=True)
assert plain == (SAMPLES // MICRO // ranks,) * 2
assert length == EPOCHS * SAMPLES // MICRO and abs(got - length / ranks) <= 1, "the behaviour changed"
assert abs(rate - (1 - 1 / ranks)) < 0.03
dist.barrier()
os._exit(0)
END
"$folder/env/bin/python" -c "import importlib.metadata as m; print('torch', m.version('torch'), 'deepspeed', m.version('deepspeed'))"
for ranks in 1 2 4; do
  DS_ACCELERATOR=cpu CUDA_VISIBLE_DEVICES="" OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo timeout 300 "$folder/env/bin/python" -W ignore \
    -m torch.distributed.run --standalone --nproc-per-node "$ranks" "$folder/length.py" "$folder/clusters" >"$folder/said" 2>"$folder/errors" ||
    { cat "$folder/said"; tail -40 "$folder/errors"; exit 1; }
  grep -o 'seen: .*' "$folder/said" | cut -c7-
done
