#!/usr/bin/env bash
# deepspeed 0.19.8, torch 2.15.0: the stages of a PipelineModule of LayerSpecs start with the same weights, where one process has different ones.
#
# Expected: layers of one kind start with different random weights, on several stages as on one. All ranks set one seed,
#   as data parallelism asks for and DeepSpeed's own example does with set_random_seed.
# Seen, 4 equal linear layers. On one stage no two layers agree. On two stages layer 2 is layer 0 and layer 3 is layer 1 to the last bit.
#   Their dropout masks of the first micro-batch are the same, too.
# Controls: with seed_layers=True, which is off unless asked for, no two layers agree. With layers that each rank builds before it makes the
#   PipelineModule none agree either; dropout masks do. One process builds four different layers.
# Why: a stage builds its own layers alone, each from the state of the random generator that the layers before it in this stage left. All
#   stages begin with the state that the one seed gave.
# Why it matters: whole stages start as copies of each other, except where one draws something else first, as the first draws an embedding.
#   The start depends on the number of stages: runs with another number are other runs from the first step. Nothing warns.
# Usage: ./deepspeed_pipeline_stages_start_with_equal_weights.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 deepspeed==0.19.8
cat >"$folder/stages.py" <<'END'
import logging

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.pipe import LayerSpec, PipelineModule
from deepspeed.runtime.utils import set_random_seed

logging.disable(logging.WARNING)
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and deepspeed.__version__ == "0.19.8"
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # so that nothing is compiled
deepspeed.init_distributed("gloo", verbose=False)
rank = dist.get_rank()
SEED, WIDTH, LAYERS = 1234, 16, 4


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x):
        self.kept = self.dropout(torch.ones(8, WIDTH)) > 0
        return x + torch.relu(self.linear(x)) * self.kept


def start(built, **options):
    """Each layer's first weights in the order of the model, and the dropout masks of a first micro-batch."""
    set_random_seed(SEED)
    layers = [Layer() if built else LayerSpec(Layer) for _ in range(LAYERS)]
    model = PipelineModule(layers, num_stages=2, loss_fn=torch.nn.functional.mse_loss, partition_method="uniform", **options).train()
    engine = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.0), config={
        "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 1})[0]
    weights = [layer.linear.weight.detach().clone() for layer in model.modules() if isinstance(layer, Layer)]
    data = iter([(torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(0)), torch.zeros(8, WIDTH))])
    engine.train_batch(data)
    masks = [layer.kept for layer in model.modules() if isinstance(layer, Layer)]
    stages = [None, None]
    dist.all_gather_object(stages, (weights, masks))
    return stages[0][0] + stages[1][0], stages[0][1] + stages[1][1]


def equal(tensors):
    return [(a, b) for a in range(LAYERS) for b in range(a + 1, LAYERS) if torch.equal(tensors[a], tensors[b])]


for name, built, options, pairs in (("LayerSpec", False, {}, [(0, 2), (1, 3)]), ("LayerSpec, seed_layers=True", False, {"seed_layers": True}, []),
                                    ("layers built on each rank", True, {}, [])):
    weights, masks = start(built, **options)
    if rank == 0:
        print(f"seen: {name}, two stages: equal weights in layers {equal(weights)}, equal dropout masks in layers {equal(masks)}", flush=True)
    assert equal(weights) == pairs, "the behaviour changed"
    assert built or options or equal(masks) == pairs, "the behaviour changed"
set_random_seed(SEED)
alone = [Layer().linear.weight for _ in range(LAYERS)]
assert equal(alone) == []
if rank == 0:
    print(f"seen: one process, no pipeline: equal weights in layers {equal(alone)}", flush=True)
    print(f"seen: torch {torch.__version__}, deepspeed {deepspeed.__version__}", flush=True)
dist.barrier()
END
DS_ACCELERATOR=cpu CUDA_VISIBLE_DEVICES="" OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo timeout 400 "$folder/env/bin/python" -W ignore \
  -m torch.distributed.run --standalone --nproc-per-node 2 "$folder/stages.py" >"$folder/said" 2>"$folder/errors" ||
  { tail -40 "$folder/errors"; exit 1; }
grep -o 'seen: .*' "$folder/said" | cut -c7-
