#!/usr/bin/env bash
# accelerate 1.16.0, datasets 5.2.0, torchdata 0.11.0, torch 2.15.0: save_state writes the loader's states of all ranks to one file, and the last rank wins.
#
# Expected: use_stateful_dataloader=True with save_state and load_state resumes a loader. A state of each rank is kept, or rank 0's.
# Seen, 2 ranks, a stream of 200 samples, saved after 20. If rank 1 writes a second later than rank 0, the resumed run begins at sample 0
#   and reads all 20 again. If rank 0 writes later, it begins at 22, one batch late (see accelerate_skips_streamed_batches_on_resume).
#   The folder holds one dl_state_dict.bin, and a file of random states for each rank.
# Controls: a map-style Dataset, of which both ranks have the same state, resumes at 20 in either order. So does one process.
# Why: each rank saves to the same name. By default rank 0 reads a stream for all ranks, so that the states of the others stay
#   at the start of the data. Which state is in the file depends on which rank was slower.
# Why it matters: a restart reads the data from its beginning again, or does not, by chance. Steps, learning rate and weights go on,
#   so that nothing shows it. The seconds in this script make the order certain; without them it differed from run to run.
# Usage: ./accelerate_keeps_the_loader_state_of_the_slowest_rank.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 accelerate==1.16.0 datasets==5.2.0 \
  torchdata==0.11.0 numpy==2.4.6
cat >"$folder/resume.py" <<'PY'
import importlib.metadata
import os
import socket
import sys
import time

import datasets
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration

ROWS, SHARDS, BATCH, READ = 200, 4, 2, 20


def run(rank, ranks, port, kind, late, first, folder):
    torch.set_num_threads(1)
    if ranks > 1:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))

    def start():
        accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True))
        rows = datasets.Dataset.from_dict({"number": list(range(ROWS))})
        rows = rows if kind == "map" else rows.to_iterable_dataset(num_shards=SHARDS)
        return accelerator, *accelerator.prepare(torch.nn.Linear(1, 1), torch.utils.data.DataLoader(rows, batch_size=BATCH))

    accelerator, _, loader = start()
    before, unbroken = [], []
    for batch in loader:
        (before if len(before) < READ else unbroken).extend(accelerator.gather(batch["number"]).tolist())
        if len(before) == READ and not unbroken:
            time.sleep(rank == late)
            accelerator.save_state(folder)
            accelerator.wait_for_everyone()
    accelerator, _, loader = start()
    accelerator.load_state(folder)
    after = [number for batch in loader for number in accelerator.gather(batch["number"]).tolist()]
    if rank == 0:
        files = sorted(name for name in os.listdir(folder) if name.startswith(("dl_state", "random")))
        print(f"{kind}, {ranks} ranks, rank {late} saves last: the unbroken run goes on with {unbroken[0]}, the resumed one with {after[0]}",
              f"and reads {len(set(before) & set(after))} samples again; files: {', '.join(files)}", flush=True)
    assert unbroken[0] == READ and after[0] == first, "the behaviour changed"
    if ranks > 1:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    print(*(f"{name} {importlib.metadata.version(name)}" for name in ("accelerate", "datasets", "torchdata", "torch")), flush=True)
    assert importlib.metadata.version("accelerate") == "1.16.0" and torch.__version__.startswith("2.15.0")
    cases = (2, "stream", 1, 0), (2, "stream", 0, READ + BATCH), (2, "map", 1, READ), (2, "map", 0, READ), (1, "stream", 0, READ)
    for number, (ranks, kind, late, first) in enumerate(cases):
        torch.multiprocessing.spawn(run, (ranks, free_port(), kind, late, first, f"{sys.argv[1]}/state{number}"), nprocs=ranks)
PY
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/resume.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
