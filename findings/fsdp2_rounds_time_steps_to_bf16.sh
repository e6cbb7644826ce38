#!/usr/bin/env bash
# torch 2.15.0: FSDP2's mixed precision rounds each fp32 input of a model to bf16, the time steps of a diffusion model too.
#
# Expected: param_dtype=torch.bfloat16 makes weights and products bf16, as autocast does. What a model computes from its inputs in fp32, an
#   embedding of the time step, stays in fp32.
# Seen, time steps 0 to 999 as floats, of which the model computes 64 sines and cosines: under FSDP2 the model gets 507 distinct steps, under
#   autocast 1,000. From step 512 on the embedding is wrong by 28 % of its size. Times from 0 to 0.999, as flow matching draws them, that the
#   model multiplies by 1,000: 507 distinct ones as well, and 27 %.
#   fully_shard casts all floating-point arguments of each unit: cast_forward_inputs is on by default. Off, all is as with autocast. Integers stay.
# Why it matters: a model fine-tuned under FSDP2 learns noise levels that are not those of its samples, and generation without FSDP2 meets
#   embeddings that training never showed. Float positions, coordinates and targets of a regression are rounded alike. No warning.
# Usage: ./fsdp2_rounds_time_steps_to_bf16.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0
cat >"$folder/times.py" <<'END'
import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

assert torch.__version__.startswith("2.15.0")
torch.set_num_threads(1)
dist.init_process_group("gloo")


class Denoiser(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor, self.project = factor, torch.nn.Linear(128, 8)

    def forward(self, times):
        rates = torch.exp(-torch.log(torch.tensor(10000.0)) * torch.arange(64) / 64)
        angles = self.factor * times.float()[:, None] * rates
        self.waves = torch.cat([angles.cos(), angles.sin()], dim=1)
        return self.project(self.waves.to(self.project.weight.dtype))


def waves(times, factor, policy=None, autocast=False):
    torch.manual_seed(0)
    model = Denoiser(factor)
    if policy:
        fully_shard(model, mp_policy=policy)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        assert model(times).dtype == (torch.bfloat16 if policy or autocast else torch.float32)
    return model.waves


default = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
kept = MixedPrecisionPolicy(param_dtype=torch.bfloat16, cast_forward_inputs=False)
cases = {"steps 0 to 999": (torch.arange(1000.0), 1.0), "times 0 to 0.999": (torch.arange(1000) / 1000, 1000.0),
         "integer steps": (torch.arange(1000), 1.0)}
for name, (times, factor) in cases.items():
    true = waves(times, factor)
    ways = {"autocast": waves(times, factor, autocast=True), "FSDP2": waves(times, factor, default),
            "FSDP2 without casts": waves(times, factor, kept)}
    for way, seen in ways.items():
        distinct = torch.unique(seen, dim=0).shape[0]
        error = ((seen - true).norm() / true.norm()).item()
        late = ((seen - true)[512:].norm() / true[512:].norm()).item()
        if dist.get_rank() == 0:
            print(f"{name}, {way}: {distinct} distinct embeddings, error {error:.1%}, of the last 488 {late:.1%}", flush=True)
        if way == "FSDP2" and name != "integer steps":
            assert distinct == 507 and 0.25 < late < 0.31, "the behaviour changed"
        else:
            assert distinct == 1000 and error == 0, "the behaviour changed"
if dist.get_rank() == 0:
    print("torch", torch.__version__)
dist.barrier()
dist.destroy_process_group()
END
OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo timeout 200 "$folder/env/bin/python" -W ignore -m torch.distributed.run --standalone --nproc-per-node 2 \
  "$folder/times.py" 2>"$folder/errors" || { tail -40 "$folder/errors"; exit 1; }
