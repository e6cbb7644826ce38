#!/usr/bin/env bash
# accelerate 1.15.0 (transformers 5.24.0, torch 2.15.0): a prepared scheduler runs ahead of the batches by the number of tensor ranks.
#
# Expected: a prepared scheduler steps once for each process and update, since a prepared loader has as many times fewer batches. Over an
#   epoch of 8 batches it makes 8 steps on any number of ranks, so that warm-up and decay keep their place in the data.
# Seen, two processes: as two data ranks the loader gives 4 batches to each and the schedule stands at 8. With
#   ParallelismConfig(tp_size=2) both get all 8 batches, and the schedule stands at 16. A linear decay over the epoch is at 0
#   after 4 of 8 batches, and the last half trains with a rate of 0.
# Why: the scheduler multiplies by all processes. The loader divides by data ranks alone.
# Why it matters: nothing raises. With 8 tensor ranks warm-up takes an eighth of its steps and a cosine ends after an eighth of the run.
#   Accelerator(step_scheduler_with_optimizer=False) makes one step for each call (read, not run).
# Usage: ./accelerate_steps_schedules_for_tensor_ranks.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 accelerate==1.15.0 transformers==5.24.0
cat >"$folder/rates.py" <<'END'
import accelerate
import torch
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType, ParallelismConfig

torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and accelerate.__version__ == "1.15.0"
BATCHES = 8
seen = {}
for name, sizes in {"2 data ranks": None, "2 tensor ranks": ParallelismConfig(tp_size=2)}.items():
    AcceleratorState._reset_state(True)
    PartialState(cpu=True)._shared_state["distributed_type"] = DistributedType.MULTI_GPU  # accelerate refuses sizes on CPU ranks
    accelerator = accelerate.Accelerator(cpu=True, parallelism_config=sizes)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / BATCHES))
    loader = torch.utils.data.DataLoader(torch.arange(2.0 * BATCHES), batch_size=2)
    optimizer, schedule, loader = accelerator.prepare(optimizer, schedule, loader)
    rates = []
    for batch in loader:
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    seen[name] = (len(rates), schedule.scheduler.last_epoch, rates)
    if accelerator.is_main_process:
        print(f"{name}: {len(rates)} batches for each, schedule at {schedule.scheduler.last_epoch}; rates", *rates)
assert seen == {"2 data ranks": (4, 8, [1.0, 0.75, 0.5, 0.25]), "2 tensor ranks": (8, 16, [1.0, 0.75, 0.5, 0.25, 0.0, 0.0, 0.0, 0.0])}
torch.distributed.destroy_process_group()
END
timeout 300 "$folder/env/bin/python" -W ignore -m torch.distributed.run --standalone --nproc-per-node 2 "$folder/rates.py" \
  2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
