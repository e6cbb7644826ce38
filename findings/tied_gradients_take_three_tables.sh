#!/usr/bin/env bash
# torch 2.15.0: the backward of tied embeddings holds three gradients of the table at once, not two.
#
# Expected: the head's gradient waits for the embedding's, and autograd adds one to the other in place, as it does for other weights that are used
#   twice: two gradients of the table at most.
# Seen, a table of 1,000 x 256: F.linear's gradient of its weight is a transposed view, which autograd never adds to in place. The sum of both is
#   a third tensor (aten::add). A weight that is used twice by x @ w has two gradients (aten::add_).
# Why it matters: Llama 3.2 1B, Qwen3 4B and Gemma have tied tables of 0.5 to 2 GiB in 16 bits. When FSDP gathers the table, its weights and three
#   gradients are there at the end of the backward. With short sequences this is the peak of the step.
# Usage: ./tied_gradients_take_three_tables.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy
cat >"$folder/tied.py" <<'END'
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

WORDS, HIDDEN = 1000, 256
assert torch.__version__.startswith("2.15.0")
table, tokens = torch.zeros(WORDS, HIDDEN, requires_grad=True), torch.arange(8)


def most_gradients(loss):
    """Tensors as large as the table that live at once in the backward, and how their sum is made."""
    now, most, size = 0, 0, 4 * WORDS * HIDDEN
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        loss.backward()
    for event in sorted((one for one in seen.profiler.kineto_results.events() if one.name() == "[memory]"), key=lambda one: one.start_ns()):
        now += event.nbytes() if abs(event.nbytes()) >= size else 0
        most = max(most, now // size)
    table.grad = None
    return most, [one.name for one in seen.events() if one.name in ("aten::add", "aten::add_")]


tied = most_gradients(F.linear(F.embedding(tokens, table), table).sum())
twice = most_gradients((torch.ones(8, WORDS) @ table).sum() + (torch.ones(4, WORDS) @ table).sum())
print(f"embedding and head: {tied[0]} gradients at once, summed by {tied[1]}")
print(f"two products x @ w: {twice[0]} gradients at once, summed by {twice[1]}")
assert tied == (3, ["aten::add"]) and twice == (2, ["aten::add_"]), (tied, twice)
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/tied.py" 2>/dev/null
