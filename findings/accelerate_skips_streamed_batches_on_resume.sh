#!/usr/bin/env bash
# accelerate 1.16.0, datasets 5.2.0, torchdata 0.11.0, torch 2.15.0: a stream that resumes on several ranks leaves out one batch for each rank but one.
#
# Expected: use_stateful_dataloader=True makes a prepared loader with state_dict and load_state_dict, which goes on at the next batch.
# Seen, 200 samples in 4 shards, batches of 2, saved after 5 steps. The resumed run never reads 2 samples on 2 ranks and 6 on 4 ranks,
#   with 2 workers, too. These are (ranks - 1) batches at each resume. Nothing warns, and the rest comes in order.
# Controls: one process resumes exactly. So do dispatch_batches=False, a map-style Dataset, and the same samples as an IterableDataset
#   without a state_dict, all on 2 ranks.
# Each rank keeps its own state here, since save_state lets all ranks write one file.
# Why: by default rank 0 reads a stream for all ranks, one batch for each rank in a step, and one step ahead. The state that it keeps is
#   taken before the last of these reads, so (ranks - 1) batches too late. Accelerate subtracts these from the loader's counters.
#   Streams of datasets keep a state, too. It is not put back, and it decides.
# Why it matters: by this rule 64 ranks lose 63 batches at each restart. The samples are in no checkpoint and in no later step of the epoch.
# Usage: ./accelerate_skips_streamed_batches_on_resume.sh (two minutes, and the download of PyTorch)
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

import datasets
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration

ROWS, SHARDS, BATCH, STEPS = 200, 4, 2, 5


class Plain(torch.utils.data.IterableDataset):
    """The same samples without a state of their own."""

    def __iter__(self):
        return iter([{"number": number} for number in range(ROWS)])


def samples(kind):
    rows = datasets.Dataset.from_dict({"number": list(range(ROWS))})
    return Plain() if kind == "plain" else rows if kind == "map" else rows.to_iterable_dataset(num_shards=SHARDS)


def run(rank, ranks, port, kind, workers, dispatch, lost):
    torch.set_num_threads(1)
    if ranks > 1:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    settings = DataLoaderConfiguration(use_stateful_dataloader=True, dispatch_batches=dispatch)

    def start():
        accelerator = Accelerator(cpu=True, dataloader_config=settings)
        model = torch.nn.Linear(1, 1)
        loader = torch.utils.data.DataLoader(samples(kind), batch_size=BATCH, num_workers=workers)
        return accelerator, *accelerator.prepare(model, loader)

    accelerator, _, loader = start()
    before, unbroken = [], []
    for step, batch in enumerate(loader):
        (before if step < STEPS else unbroken).extend(accelerator.gather(batch["number"]).tolist())
        if step == STEPS - 1:
            state = loader.state_dict()
    assert sorted(before + unbroken) == list(range(ROWS))
    accelerator, _, loader = start()
    loader.load_state_dict(state)
    after = [number for batch in loader for number in accelerator.gather(batch["number"]).tolist()]
    missing = sorted(set(range(ROWS)) - set(before) - set(after))
    if rank == 0:
        print(f"{kind}, {ranks} ranks, {workers} workers, dispatch_batches={dispatch}: the unbroken run goes on with {unbroken[:4]},",
              f"the resumed one with {after[:4]}; never read: {missing}", flush=True)
    assert len(missing) == lost, "the behaviour changed"
    assert (after == unbroken) == (lost == 0)
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
    cases = (("stream", 2, 0, None, 2), ("stream", 4, 0, None, 6), ("stream", 2, 2, None, 2), ("stream", 1, 0, None, 0),
             ("stream", 2, 0, False, 0), ("map", 2, 0, None, 0), ("plain", 2, 0, None, 0))
    for kind, ranks, workers, dispatch, lost in cases:
        arguments = ranks, free_port(), kind, workers, dispatch, lost
        torch.multiprocessing.spawn(run, arguments, nprocs=ranks)
PY
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/resume.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
