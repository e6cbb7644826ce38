#!/usr/bin/env bash
# accelerate 1.16.0, torch 2.15.0: save_state, load_state and skip_first_batches resume an epoch in another order than it was begun in.
#
# Expected: the three calls are the documented way to resume in the middle of an epoch. The seedable sampler makes the order repeatable,
#   so that the run reads the rest of the epoch, and then the next epoch.
# Seen, 64 samples, batches of 4, saved after 4 steps of the third epoch. One process: of the 48 samples that follow, 14 were read before
#   in this epoch and 14 are never read; with use_seedable_sampler=True 13 and 13. Two ranks: 14 and 17 of 32.
#   With the seedable sampler the resumed epoch and the one after it both have the order of the first epoch.
# Controls: with set_epoch(epoch) on the prepared loader in each epoch, before skip_first_batches, the seedable sampler gives the samples
#   of the unbroken run in the same order, on one and two ranks. With it a run saved in its first epoch resumes that epoch exactly.
# Why: the prepared loader counts epochs itself, and starts at 0 in a new process. Each pass sets the sampler to this count, over the
#   epoch that load_state brought back. The plain sampler draws its order when a pass begins, from a generator that is by then further on.
# Why it matters: a quarter to a half of the rest of the epoch is read twice, and as much never. With the seedable sampler only runs
#   resumed after their first epoch show it, and nothing warns. Trainer is not affected, for it calls set_epoch.
# Usage: ./accelerate_resumes_in_the_order_of_the_first_epoch.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 accelerate==1.16.0 numpy==2.4.6
cat >"$folder/order.py" <<'PY'
import importlib.metadata
import os
import socket
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed

ROWS, BATCH, STEPS, EPOCHS = 64, 4, 4, 4


def run(rank, ranks, port, seedable, epochs_set, saved, expected, folder):
    torch.set_num_threads(1)
    if ranks > 1:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))

    def start():
        set_seed(0)
        accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=seedable))
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = torch.utils.data.DataLoader(list(range(ROWS)), batch_size=BATCH, shuffle=True)
        return accelerator, *accelerator.prepare(model, optimizer, loader)

    def read(accelerator, loader):
        for batch in loader:
            yield accelerator.gather(batch).tolist()

    accelerator, _, _, loader = start()
    unbroken = []
    for epoch in range(EPOCHS):
        if epochs_set:
            loader.set_epoch(epoch)
        unbroken.append([])
        for step, batch in enumerate(read(accelerator, loader)):
            unbroken[-1].append(batch)
            if epoch == saved and step == STEPS - 1:
                accelerator.save_state(folder)
    assert all(sorted(sum(epoch, [])) == list(range(ROWS)) for epoch in unbroken)
    assert all(unbroken[0] != epoch for epoch in unbroken[1:])

    accelerator, _, _, loader = start()
    accelerator.load_state(folder)
    resumed = []
    for epoch in (saved, saved + 1):
        if epochs_set:
            loader.set_epoch(epoch)
        resumed.append(list(read(accelerator, accelerator.skip_first_batches(loader, STEPS) if epoch == saved else loader)))

    before, after = set(sum(unbroken[saved][:STEPS], [])), set(sum(resumed[0], []))
    again, never = len(before & after), ROWS - len(before | after)
    places = [epoch + 1 for epoch in range(EPOCHS) if unbroken[epoch][STEPS:] == resumed[0]]
    following = [epoch + 1 for epoch in range(EPOCHS) if unbroken[epoch] == resumed[1]]
    if rank == 0:
        print(f"{ranks} ranks, {'seedable' if seedable else 'plain'} sampler, saved in epoch {saved + 1}{', set_epoch called' if epochs_set else ''}:",
              f"of {len(after)} samples {again} were read before, {never} are never read; in the order of epoch {places or 'none'},"
              f" the next pass in that of {following or 'none'}", flush=True)
    assert (again, never) == (expected, expected), "the behaviour changed"
    if seedable:
        right = epochs_set or saved == 0
        assert places == ([saved + 1] if right else [1])
        assert following == ([saved + 2] if epochs_set else [1])
    if ranks > 1:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    print("accelerate", importlib.metadata.version("accelerate"), "torch", torch.__version__, flush=True)
    assert importlib.metadata.version("accelerate") == "1.16.0" and torch.__version__.startswith("2.15.0")
    cases = ((1, False, False, 2, 14), (1, True, False, 2, 13), (2, False, False, 2, 14), (2, True, False, 2, 17),
             (1, True, True, 2, 0), (2, True, True, 2, 0), (1, True, False, 0, 0))
    for number, (ranks, seedable, epochs_set, saved, expected) in enumerate(cases):
        arguments = ranks, free_port(), seedable, epochs_set, saved, expected, f"{sys.argv[1]}/state{number}"
        torch.multiprocessing.spawn(run, arguments, nprocs=ranks)
PY
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/order.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
