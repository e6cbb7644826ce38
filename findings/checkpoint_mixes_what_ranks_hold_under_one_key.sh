#!/usr/bin/env bash
# torch 2.15.0: of what each rank saves under the same key torch.distributed.checkpoint keeps one rank's, and for each key another rank's.
#
# Expected: dcp.save writes a file for each rank, so dcp.load gives each rank its own values back. Or it keeps those of rank 0.
# Seen, 4 ranks with numbers, tensors and the state of a random generator: all ranks come back with the same values, and these are no rank's
#   state. The generator's state is rank 0's, the position in the data rank 1's, the count of tokens rank 2's, the list of files rank 3's.
#   A value that is no DTensor is taken for a copy of the same value. One rank writes it, the one that has least to write so far.
#   dcp.save compares no values and warns of nothing.
# Why it matters: after a resume all data ranks draw one dropout mask and continue at one position in the data, with counts of other ranks.
#   The same happens to experts and tensor shares that are plain tensors. Put the rank into the key.
# Usage: ./checkpoint_mixes_what_ranks_hold_under_one_key.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6
cat >"$folder/keys.py" <<'END'
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

assert torch.__version__.startswith("2.15.0")
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()


def state(owner):
    return {"generator": torch.Generator().manual_seed(owner).get_state(), "position": 100 + owner,
            "tokens": torch.tensor([1000.0 + owner]), "files": [f"part-{owner}"]}


def gathered(value):
    values = [None] * ranks
    dist.all_gather_object(values, value)
    return values


def mask():
    return torch.nn.functional.dropout(torch.ones(16), 0.5).tolist()


mine = state(rank)
torch.set_rng_state(mine["generator"])
before = gathered(mask())
dcp.save(mine, checkpoint_id=sys.argv[1])
loaded = state(99)
dcp.load(loaded, checkpoint_id=sys.argv[1])
torch.set_rng_state(loaded["generator"])
after = gathered(mask())
owners = {key: next(owner for owner in range(ranks) if torch.equal(torch.as_tensor(state(owner)[key]), torch.as_tensor(value)))
          for key, value in loaded.items() if key != "files"}
owners["files"] = next(owner for owner in range(ranks) if state(owner)["files"] == loaded["files"])
everyone = gathered(owners)
files = gathered(sorted(name for name in os.listdir(sys.argv[1]) if name.endswith(".distcp")))
if rank == 0:
    print(f"torch {torch.__version__}, {ranks} ranks, {len(files[0])} files")
    for place, seen in enumerate(everyone):
        print(f"rank {place} gets", ", ".join(f"{key} of rank {owner}" for key, owner in seen.items()))
    print(f"dropout masks: {len(set(map(tuple, before)))} different ones before, {len(set(map(tuple, after)))} after")
assert len(files[0]) == ranks and all(seen == everyone[0] for seen in everyone) and len(set(owners.values())) > 1, "the behaviour changed"
assert len(set(map(tuple, before))) == ranks and len(set(map(tuple, after))) == 1, "the behaviour changed"
dist.barrier()
dist.destroy_process_group()
END
OMP_NUM_THREADS=1 timeout 200 "$folder/env/bin/python" -W ignore -m torch.distributed.run --standalone --nproc-per-node 4 "$folder/keys.py" \
  "$folder/checkpoint" 2>"$folder/errors" || { tail -40 "$folder/errors"; exit 1; }
