#!/usr/bin/env bash
# deepspeed 0.19.8, torch 2.15.0: TiledFusedLogitsLoss scales the gradient of the hidden states, and never that of the head's weights.
#
# Expected: a loss computed in tiles has the gradients of the usual loss. A later division or factor holds for all weights.
# Seen, two ranks, one step of SGD; the head's update as a multiple of the one with the usual loss:
#   Four micro-batches give 4 times, with each of ZeRO 0 to 3. "sum" divided by the 16 tokens gives 16 times, both together 64 times.
#   fp16 with a loss scale of 4,096 gives 1/4,096: the head stands still. The losses and the updates of the layer before it are right.
#   One micro-batch with "mean" in fp32 is right. sequence_tiled_compute is right in all cases run (fp32).
# Why: the forward runs each tile's backward with a gradient of 1, for the head, too. The backward scales the gradient of the input alone.
# Why it matters: its docstring recommends "sum" and a mean outside where labels are masked. DeepSpeed divides the loss by micro-batches.
#   In both cases the head gets many times its gradient against the other layers. The loss of the step shows no mistake.
# Usage: ./deepspeed_tiled_loss_leaves_the_head_unscaled.sh (about two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 deepspeed==0.19.8
cat >"$folder/tiles.py" <<'END'
import os

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.runtime.sequence_parallel.ulysses_sp import TiledFusedLogitsLoss, sequence_tiled_compute

torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and deepspeed.__version__ == "0.19.8"
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # so that nothing is compiled
deepspeed.init_distributed("gloo")
rank = dist.get_rank()
print("seen: torch", torch.__version__, "deepspeed", deepspeed.__version__) if rank == 0 else None
WORDS, WIDTH, TILES, FP16 = 32, 16, 4, {"fp16": {"enabled": True, "loss_scale": 4096.0}}


class Model(torch.nn.Module):
    def __init__(self, way, reduction):
        super().__init__()
        torch.manual_seed(0)
        self.way, self.reduction = way, reduction
        self.layer, self.lm_head = torch.nn.Linear(WIDTH, WIDTH, bias=False), torch.nn.Linear(WIDTH, WORDS, bias=False)

    def tile(self, hidden, labels):
        return torch.nn.functional.cross_entropy(self.lm_head(hidden).view(-1, WORDS).float(), labels.reshape(-1), reduction=self.reduction)

    def forward(self, tokens, labels):
        hidden, head = torch.tanh(self.layer(tokens)), [self.lm_head.weight]
        if self.way == "usual":
            loss = self.tile(hidden, labels)
        elif self.way == "fused":
            loss = TiledFusedLogitsLoss.apply(Model.tile, self, hidden, labels, None, TILES, head, self.reduction)
        else:
            loss = sequence_tiled_compute(self.tile, 8, TILES, {"hidden": hidden, "labels": labels}, {}, "hidden", head, 0, self.reduction)
        return loss / labels.numel() if self.reduction == "sum" else loss


def updates(way, stage, micro_batches, reduction, more):
    """The norms of the updates of the layer and of the head in one training step, and the last loss."""
    engine = deepspeed.initialize(model=Model(way, reduction), config={
        "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": micro_batches, "zero_optimization": {"stage": stage},
        "optimizer": {"type": "SGD", "params": {"lr": 1.0}}, "zero_allow_untested_optimizer": True, "gradient_clipping": 0.0, **more})[0]
    read = deepspeed.utils.safe_get_full_fp32_param if stage else torch.Tensor.detach
    before = [read(weight).clone() for weight in engine.module.parameters()]
    draw = torch.Generator().manual_seed(rank)
    for _ in range(micro_batches):
        tokens, labels = torch.randn(2, 8, WIDTH, generator=draw), torch.randint(0, WORDS, (2, 8), generator=draw)
        loss = engine(tokens.half() if more else tokens, labels)
        engine.backward(loss)
        engine.step()
    return [(old - read(weight)).norm().item() for old, weight in zip(before, engine.module.parameters())], loss.item()


for stage, micro_batches, reduction, more, factor in (
        (0, 1, "mean", {}, 1), (0, 4, "mean", {}, 4), (1, 4, "mean", {}, 4), (2, 4, "mean", {}, 4),
        (3, 4, "mean", {}, 4), (2, 1, "sum", {}, 16), (2, 4, "sum", {}, 64), (2, 1, "mean", FP16, 1 / 4096)):
    usual, loss = updates("usual", stage, micro_batches, reduction, more)
    for way, wanted in [("fused", factor)] + [("general", 1)] * (not more):
        tiled, tiled_loss = updates(way, stage, micro_batches, reduction, more)
        layer, head = (a / b for a, b in zip(tiled, usual))
        if rank == 0:
            print(f"seen: ZeRO {stage}, {micro_batches} micro-batches, {reduction}{', fp16' if more else ''}, {way}: loss {tiled_loss:.4f} "
                  f"(usual {loss:.4f}), update of the layer {layer:.3f} times the usual one, of the head {head:.5g} times", flush=True)
        assert abs(tiled_loss - loss) < 2e-3 and abs(layer - 1) < 1e-2 and abs(head / wanted - 1) < 1e-2, "the behaviour changed"
dist.barrier()
os._exit(0)
END
DS_ACCELERATOR=cpu CUDA_VISIBLE_DEVICES="" OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo timeout 200 "$folder/env/bin/python" -W ignore \
  -m torch.distributed.run --standalone --nproc-per-node 2 "$folder/tiles.py" >"$folder/said" 2>"$folder/errors" ||
  { tail "$folder/errors"; exit 1; }
grep -o 'seen: .*' "$folder/said" | cut -c7-
