#!/usr/bin/env bash
# torch 2.15.0: mse_loss, smooth_l1_loss, huber_loss and binary_cross_entropy of sharded DTensors give gradients larger by the number of ranks.
#
# Expected: an operator on DTensors gives what it gives on whole tensors in one process. The value does, and so must the gradient.
# Seen, a model whose last layer is ColwiseParallel and leaves its output split, reduction="mean" (the default). The loss is that of one
#   process. The gradient of all weights is 2.00 times as large on 2 ranks and 4.00 times on 4, for each of the four losses.
#   It is the same with a batch that is split, by Shard(0), and plain weights. Where shards are uneven (3 rows on 2 ranks) the value is wrong, too: 0.88 times.
#   Controls: 1.00 with reduction="sum" over the count, with square().mean(), with l1_loss and binary_cross_entropy_with_logits, and on DTensors that are Replicate().
# Why: the backward of these losses is one operator, which DTensor runs on each shard as it runs any elementwise one.
#   It divides by the number of elements that it sees, which is the shard's. The forward's partial means are put right by their average.
# Why it matters: value losses of reward or critic heads, and regression and diffusion models, use these. With a second loss beside it the weight
#   between both depends on the number of ranks. Clipping cuts more, and SGD and weight decay meet another step. The logged loss is right.
# Usage: ./dtensor_mse_gradients_grow_with_ranks.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6
cat >"$folder/losses.py" <<'END'
import os
import socket
import sys

import torch
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

ROWS, WIDTH = 16, 8
LOSSES = {"mse_loss": functional.mse_loss, "smooth_l1_loss": functional.smooth_l1_loss, "huber_loss": functional.huber_loss,
          "mse_loss, sum over count": lambda a, b: functional.mse_loss(a, b, reduction="sum") / (a.shape[0] * a.shape[1]),
          "square().mean()": lambda a, b: (a - b).square().mean(), "l1_loss": functional.l1_loss}
LOSSES["binary_cross_entropy"] = lambda a, b: functional.binary_cross_entropy(a.sigmoid(), b.sigmoid())
LOSSES["binary_cross_entropy_with_logits"] = lambda a, b: functional.binary_cross_entropy_with_logits(a, b.sigmoid())
WRONG = ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy")


def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(3)))


def flat(tensors):
    return torch.cat([(t.full_tensor() if hasattr(t, "full_tensor") else t).flatten() for t in tensors])


def run(rank, ranks, port):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (ranks,))
    draws = torch.Generator().manual_seed(1)
    samples, targets = (torch.randn(ROWS, WIDTH, generator=draws) for _ in range(2))
    targets *= torch.linspace(2, 0.2, ROWS)[:, None]  # errors of several sizes, as a run has
    for name, loss in LOSSES.items():
        alone = build()
        value = loss(alone(samples), targets)
        value.backward()
        right, lines = flat(weight.grad for weight in alone.parameters()), []
        for layout in ([Shard(1)], [Replicate()]):  # the tensor ranks' output, split or whole
            split = build()
            last = ColwiseParallel(output_layouts=layout[0], use_local_output=False)
            parallelize_module(split, mesh, {"0": ColwiseParallel(), "1": RowwiseParallel(), "2": last})
            result = split(samples)
            assert list(result.placements) == layout
            seen = loss(result, distribute_tensor(targets, mesh, layout))
            seen.backward()
            grads = flat(weight.grad for weight in split.parameters())
            lines.append((seen.full_tensor().item(), (grads.norm() / right.norm()).item()))
            assert (grads / grads.norm() - right / right.norm()).norm() < 1e-4
        rows = distribute_tensor(samples, mesh, [Shard(0)]).requires_grad_()  # a batch that is split
        loss(rows, distribute_tensor(targets, mesh, [Shard(0)])).backward()
        whole = samples.clone().requires_grad_()
        loss(whole, targets).backward()
        batch = (rows.grad.full_tensor().norm() / whole.grad.norm()).item()
        (split_value, factor), (_, replicated) = lines
        odd = [distribute_tensor(t[: 2 * ranks - 1], mesh, [Shard(0)]) for t in (samples, targets)]  # the last rank has fewer
        uneven = loss(*odd).full_tensor().item() / loss(samples[: 2 * ranks - 1], targets[: 2 * ranks - 1]).item()
        if rank == 0:
            print(f"{ranks} ranks, {name}: loss {split_value:.4f} ({value.item():.4f} in one process), gradient x {factor:.2f} from a split output,",
                  f"x {replicated:.2f} from a whole one, x {batch:.2f} for a split batch; value of uneven shards x {uneven:.2f}", flush=True)
        assert abs(split_value - value.item()) < 1e-5 and abs(replicated - 1) < 1e-4
        wanted = ranks if name in WRONG else 1
        assert abs(factor - wanted) < 1e-3 and abs(batch - wanted) < 1e-3, "the behaviour changed"
        assert abs(uneven - 1) > 0.005 if name in WRONG else name.endswith("logits") or abs(uneven - 1) < 1e-4
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    print("torch", torch.__version__, flush=True)
    assert torch.__version__.startswith("2.15.0")
    for ranks in (2, 4):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        torch.multiprocessing.spawn(run, args=(ranks, port), nprocs=ranks)
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/losses.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
