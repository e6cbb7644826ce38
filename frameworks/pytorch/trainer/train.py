# SPDX-License-Identifier: Apache-2.0
"""The training itself."""

import argparse
import contextlib
import json
import math
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel

from data import Dataset  # part
from model import AddedLoss  # part
from plan import AXES, DEVICE, GLOBAL_BATCH, LAYOUT, MICRO_BATCHES, NAME, PRECISION, PREDICTED_STEP_S, PROGRAM_DIGEST, RANK_OF_STAGE, RANKS, RANKS_OF_STAGE, REFUSED, SEQUENCE, STAGES  # part
from split import make_mesh, make_model, make_schedule  # part
from weights import save_weights, set_weights  # part

# body
# Training ----------------------------------------------------------------------------------------------------------------------------


class Clock:
    """Seconds of forwards and backwards by kind and stage, as `mpt-plan diagnose` compares them with the plan."""

    def __init__(self):
        self.spans = []

    @contextlib.contextmanager
    def span(self, kind, stage):
        begin = self.now()
        yield
        self.spans.append((kind, stage, begin, self.now()))

    @staticmethod
    def now():
        if DEVICE.type == "cpu":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    # if pipeline
    def watch(self, stage):
        """Times the calls with which a schedule drives a PipelineStage."""
        def timed(call, kind_of):
            def run(*arguments, **options):
                with self.span(kind_of(options), stage.stage_index):
                    return call(*arguments, **options)
            return run

        stage.forward_one_chunk = timed(stage.forward_one_chunk, lambda _: "forward")
        whole = lambda options: "backward" if options.get("full_backward", True) else "input_gradient"  # noqa: E731
        stage.backward_one_chunk = timed(stage.backward_one_chunk, whole)
        stage.backward_weight_one_chunk = timed(stage.backward_weight_one_chunk, lambda _: "weight_gradient")

    # end
    def take(self):
        """Means by kind and stage, and the sum of all. The work must have ended."""
        times = {}
        for kind, stage, begin, end in self.spans:
            seconds = end - begin if DEVICE.type == "cpu" else begin.elapsed_time(end) / 1e3
            times.setdefault((kind, stage), []).append(seconds)
        self.spans.clear()
        means = [{"kind": kind, "stage": stage, "seconds": sum(t) / len(t)} for (kind, stage), t in times.items()]
        return means, sum(sum(t) for t in times.values())


class Trainer:
    def __init__(self, options):
        self.options, self.mesh, self.clock = options, make_mesh(), Clock()
        pipeline_rank = self.mesh.get_local_rank("pp")
        self.models = {stage: make_model(stage, self.mesh) for stage in range(STAGES) if RANK_OF_STAGE[stage] == pipeline_rank}
        set_weights(self.models, options.init, options.seed)
        self.parameters = [p for model in self.models.values() for p in model.parameters()]
        self.optimizer = torch.optim.AdamW(self.groups(), lr=0.0, betas=(0.9, 0.95), eps=1e-8, fused=True)
        self.data = Dataset(options.data, options.data_format, options.seed)
        self.loss_scale, self.good_steps, self.skipped, self.losses = 65536.0 if PRECISION == "fp16" else 1.0, 0, 0, []
        # if pipeline
        self.schedule = make_schedule(self.models, self.mesh, self.clock, self.loss_of)
        # end

    def groups(self):
        """Matrices decay, biases and norms do not. The tensors of a group lie on one mesh."""
        groups = {}
        for p in self.parameters:
            key = (p.ndim > 1, p.device_mesh if isinstance(p, DTensor) else None)
            groups.setdefault(key, {"params": [], "weight_decay": self.options.weight_decay if key[0] else 0.0})["params"].append(p)
        return list(groups.values())

    def learning_rate(self, step):
        o = self.options
        if step < o.warmup:
            return o.lr * (step + 1) / o.warmup
        progress = min(1.0, (step - o.warmup) / max(1, o.steps - o.warmup))
        return o.min_lr + (o.lr - o.min_lr) * 0.5 * (1 + math.cos(math.pi * progress))

    def loss_of(self, loss, _=None):
        self.losses.append(loss.detach())
        return loss.sum() * (self.loss_scale / MICRO_BATCHES)

    def run_micro_batches(self, tokens, targets):
        # if pipeline
        inputs = [(some,) if 0 in self.models else () for some in tokens]
        self.schedule.step(arg_mbs=inputs, kwarg_mbs=[{"targets": wanted} for wanted in targets], target_mbs=list(targets), return_outputs=False)
        # end
        # if not pipeline
        for some, wanted in zip(tokens, targets):
            with self.clock.span("forward", 0):
                loss = self.loss_of(self.models[0](some, wanted))
            with self.clock.span("backward", 0):
                loss.backward()
        # end

    @torch.no_grad()
    def sum_up(self):
        """Mean loss of all tokens, and norm of all gradients. A gradient that several ranks hold counts once."""
        squares = torch.zeros((), dtype=torch.float64, device=DEVICE)
        for p in self.parameters:
            shards = 1
            if isinstance(p, DTensor):
                if p.grad.placements != p.placements:
                    p.grad = p.grad.redistribute(placements=p.placements)
                shards = math.prod(p.device_mesh.size(i) for i, placement in enumerate(p.placements) if not placement.is_replicate())
            # Fused AdamW reads gradients in the order of memory, whatever their strides are.
            if local(p.grad).stride() != local(p).stride():
                own = local(p.grad).contiguous()
                p.grad = DTensor.from_local(own, p.device_mesh, p.placements, run_check=False, shape=p.shape, stride=p.stride()) if isinstance(p, DTensor) else own
            squares += local(p.grad).double().square().sum() * (shards / RANKS_OF_STAGE)
        loss = torch.stack(self.losses).double().sum() / (MICRO_BATCHES * RANKS_OF_STAGE) if self.losses else squares.new_zeros(())
        sums = torch.stack((loss.reshape(()), squares))
        dist.all_reduce(sums)
        self.losses.clear()
        return sums[0].item(), sums[1].sqrt().item() / self.loss_scale

    @torch.no_grad()
    def update(self, step, loss, norm):
        """AdamW on clipped gradients; a step with NaN or infinity changes nothing."""
        finite = math.isfinite(loss) and math.isfinite(norm)
        if finite:
            clip = self.options.clip
            factor = (clip / norm if 0 < clip < norm else 1.0) / self.loss_scale
            torch._foreach_mul_([local(p.grad) for p in self.parameters], factor)
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate(step)
            self.optimizer.step()
        self.optimizer.zero_grad()
        self.skipped = 0 if finite else self.skipped + 1
        # if fp16
        self.good_steps = self.good_steps + 1 if finite else 0
        if not finite:
            self.loss_scale = max(1.0, self.loss_scale / 2)
        elif self.good_steps == 1000:
            self.loss_scale, self.good_steps = self.loss_scale * 2, 0
        # end
        return finite

    def step(self, step):
        begin = time.perf_counter()
        tokens, targets = self.data.batch(step * GLOBAL_BATCH, self.mesh)
        data_wait = time.perf_counter() - begin
        # if experts
        AddedLoss.scale = self.loss_scale
        # end
        # if tensor
        with loss_parallel():
            self.run_micro_batches(tokens, targets)
        # end
        # if not tensor
        self.run_micro_batches(tokens, targets)
        # end
        loss, norm = self.sum_up()
        finite = self.update(step, loss, norm)
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        row = {"step": step + 1, "loss": loss, "gradient_norm": norm, "learning_rate": self.learning_rate(step), "step_time_s": seconds,
               "tokens_per_s": GLOBAL_BATCH * SEQUENCE / seconds, "data_wait_s": data_wait}
        return row | ({} if finite else {"skipped": True}) | self.measured(seconds, data_wait)

    def measured(self, seconds, data_wait):
        """What each rank did in the step. Its instructions are those of the first replica."""
        means, compute = self.clock.take()
        rank = {"rank": dist.get_rank(), "compute_s": compute, "idle_s": max(0.0, seconds - compute), "data_wait_s": data_wait}
        if DEVICE.type == "cuda":
            rank |= {"memory_bytes": torch.cuda.memory_allocated(), "peak_bytes": torch.cuda.max_memory_allocated()}
        is_first = all(self.mesh.get_local_rank(axis) == 0 for axis in AXES if axis != "pp")
        everyone = [None] * RANKS
        dist.all_gather_object(everyone, (rank, means if is_first else []))
        idle = sum(entry["idle_s"] for entry, _ in everyone) / RANKS
        row = {"bubble_share": idle / seconds, "instructions": [one for _, some in everyone for one in some]}
        return row | ({"ranks": [entry for entry, _ in everyone]} if RANKS <= 64 else {})

    def train(self):
        log = open(self.options.log_file, "w", encoding="utf-8") if self.options.log_file and dist.get_rank() == 0 else None
        if log:
            header = {"format": "mpt-run-log", "version": 1, "model": NAME, "layout": LAYOUT, "program_digest": PROGRAM_DIGEST}
            print(json.dumps(header | {"predicted_step_time_s": PREDICTED_STEP_S}), file=log, flush=True)
        for step in range(self.options.steps):
            row = self.step(step)
            if log:
                finite = {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
                print(json.dumps(finite), file=log, flush=True)
            if dist.get_rank() == 0:
                print(f"step {row['step']}/{self.options.steps}  loss {row['loss']:.4f}  grad norm {row['gradient_norm']:.3f}  "
                      f"{row['step_time_s']:.3f} s per step  {row['tokens_per_s']:,.0f} tokens/s"
                      + ("  SKIPPED: NaN or Inf" if self.skipped else ""), flush=True)
            if self.skipped > 4:
                sys.exit(f"{sys.argv[0]}: {self.skipped} steps in a row had NaN or infinity in their gradients")
        if self.options.save:
            save_weights(self.models, self.mesh, self.options.save)


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", nargs="+", required=True, metavar="FILE",
                        help="as mpt-run reads them: text, .bin with .idx, or tokens; 0.7 a 0.3 b blends")
    parser.add_argument("--data-format", default="auto", choices=["auto", "text", "megatron", "uint16", "uint32"])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate after the warm-up")
    parser.add_argument("--min-lr", type=float, help="learning rate at the last step (cosine decay; default: 0.0001, or --lr if that is lower)")
    parser.add_argument("--warmup", type=int, default=10, help="steps in which the learning rate rises from 0")
    parser.add_argument("--clip", type=float, default=1.0, help="clip the gradient norm to this; 0: no clipping")
    parser.add_argument("--weight-decay", type=float, default=0.1, help="of matrices; biases and norms have none")
    parser.add_argument("--seed", type=int, default=1, help="of the first weights and of the order of the data")
    parser.add_argument("--init", metavar="FOLDER", help="start with the weights of a Hugging Face folder")
    parser.add_argument("--save", metavar="FOLDER", help="write the trained weights as a Hugging Face folder")
    parser.add_argument("--log-file", metavar="FILE", help="a line of JSON per step; mpt-plan diagnose reads it")
    options = parser.parse_args()
    if options.min_lr is None:
        options.min_lr = min(1e-4, options.lr)
    if options.min_lr > options.lr:
        parser.error(f"--min-lr {options.min_lr:g} is above --lr {options.lr:g}")
    # if refused
    sys.exit(f"{sys.argv[0]}: this file cannot train its plan: {REFUSED}")
    # end
    if DEVICE.type == "cuda":
        torch.cuda.set_device(DEVICE)
    dist.init_process_group("cpu:gloo,cuda:nccl" if DEVICE.type == "cuda" else "gloo")
    if dist.get_world_size() != RANKS:
        sys.exit(f"{sys.argv[0]}: started with {dist.get_world_size()} processes; the plan has {RANKS}: torchrun --nproc-per-node")
    Trainer(options).train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
