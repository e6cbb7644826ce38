#!/usr/bin/env bash
# deepspeed 0.19.8, torch 2.15.0: ZeRO 1 and 2 all-reduce gradients, with reduce_scatter on too, and ZeRO 2 does so in each micro-batch.
#
# Expected: with "reduce_scatter": true, the default, each rank gets the sum of its part alone: a reduce-scatter, (n-1)/n of the gradient's bytes.
#   So with one micro-batch ZeRO 2 moves as much as plain data parallelism. The documentation says so of this key, too.
# Seen, 4 ranks, bf16: ZeRO 1 and 2 all-reduce all 2 bytes of each gradient, once for ZeRO 1, in each of 4 micro-batches for ZeRO 2: 8 bytes.
#   No reduce-scatter runs. "reduce_scatter": false moves the same bytes by the same operation. ZeRO 3 alone runs reduce-scatters.
#   use_multi_rank_bucket_allreduce, on by default, packs the parts of all ranks into one all-reduce; each rank keeps its own and drops the rest.
#   Without it each part is reduced to its rank: half the traffic, in as many operations as a bucket has owners.
# Why it matters: gradients of ZeRO 2 take twice the time on the links that a plan by reduce-scatters gives them, in each micro-batch. With 4
#   micro-batches it moves 4 times the gradient bytes of ZeRO 1.
# Usage: ./deepspeed_zero2_all_reduces_gradients.sh (about two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 deepspeed==0.19.8
cat >"$folder/gradients.py" <<'END'
import os

import torch
import torch.distributed as dist

seen = {}


def counted(name):
    real = getattr(dist, name)

    def call(*arguments, **named):
        values = [value for value in [*arguments, *named.values()] if isinstance(value, torch.Tensor)]
        sizes = [value.numel() * value.element_size() for value in values if value.is_floating_point()]
        if sizes:
            calls, size = seen.get(name, (0, 0))
            seen[name] = calls + 1, size + max(sizes)  # the input of a reduce-scatter is the larger one
        return real(*arguments, **named)

    setattr(dist, name, call)


for operation in "all_reduce", "reduce", "reduce_scatter_tensor":
    counted(operation)
import deepspeed  # noqa: E402, takes the operations above

torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and deepspeed.__version__ == "0.19.8"
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # so that nothing is compiled
deepspeed.init_distributed("gloo")
WIDTH, LAYERS = 64, 8
WEIGHTS = LAYERS * WIDTH * WIDTH


def run(micro_batches, zero):
    """Operations and bytes for each weight in the second step, without the few bytes of norms and flags."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)])
    engine = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters()), config={
        "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": micro_batches, "bf16": {"enabled": True},
        "zero_optimization": zero, "zero_allow_untested_optimizer": True})[0]
    for _ in range(2):
        seen.clear()
        for _ in range(micro_batches):
            engine.backward(engine(torch.randn(4, WIDTH, dtype=torch.bfloat16)).float().square().mean())
            engine.step()
    result = {name: round(size / WEIGHTS, 2) for name, (_, size) in seen.items() if size > WEIGHTS / 8}
    if dist.get_rank() == 0:
        print(f"seen: {zero}, {micro_batches} micro-batches: bytes for each weight {result}", flush=True)
    engine.destroy()
    return result


for micro_batches in 1, 4:
    assert run(micro_batches, {"stage": 1}) == {"all_reduce": 2.0}, "the behaviour changed"
    for switch in {}, {"reduce_scatter": True}, {"reduce_scatter": False}:
        assert run(micro_batches, {"stage": 2, **switch}) == {"all_reduce": 2.0 * micro_batches}, "the behaviour changed"
assert run(4, {"stage": 2, "use_multi_rank_bucket_allreduce": False}) == {"reduce": 8.0}, "the behaviour changed"
assert run(4, {"stage": 3, "stage3_param_persistence_threshold": 0}) == {"reduce_scatter_tensor": 8.0}, "the behaviour changed"
if dist.get_rank() == 0:
    print(f"seen: torch {torch.__version__}, deepspeed {deepspeed.__version__}", flush=True)
dist.barrier()
os._exit(0)
END
DS_ACCELERATOR=cpu CUDA_VISIBLE_DEVICES="" OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo timeout 200 "$folder/env/bin/python" -W ignore \
  -m torch.distributed.run --standalone --nproc-per-node 4 "$folder/gradients.py" >"$folder/said" 2>"$folder/errors" ||
  { tail -40 "$folder/errors"; exit 1; }
grep -o 'seen: .*' "$folder/said" | cut -c7-
