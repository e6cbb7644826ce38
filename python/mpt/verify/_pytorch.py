# SPDX-License-Identifier: Apache-2.0
"""Plans for PyTorch: the functions of the file that MPT exports, mpt_train.py."""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
import tempfile
import types
from typing import Any, Dict, Iterator, List
from unittest import mock

import torch

import mpt

from .._door import InputError, wrong
from ._rank import LOWER_RIGHT, MOST_MICRO_BATCHES, Watch, measure

GROUPS = {"pp": "pipeline", "dp_replicate": "replicas", "dp_shard": "shards", "shard": "shards", "cp": "context", "tp": "tensor"}


def load(path: str) -> Any:
    module: Any = types.ModuleType("mpt_train")
    exec(compile(pathlib.Path(path).read_text(encoding="utf-8"), path, "exec"), module.__dict__)
    module.DEVICE = torch.device("cpu")
    return module


def configured(plan: Any, folder: str, name: str) -> Any:
    """The model's configuration. Of a model on the hub it is written, so that nothing is fetched."""
    from transformers import AutoConfig
    if not os.path.isfile(os.path.join(folder, name)):
        name = "config.json"
        with contextlib.suppress(InputError):
            unnamed = {**plan.json["model"], "hub_id": ""}
            mpt.estimate(unnamed, "dgx-h100:1", 1, framework="transformers-ddp", gpus=1, dp=1, micro_batch=1).export("transformers-ddp", folder, force=True)
    if os.path.isfile(os.path.join(folder, name)):
        return AutoConfig.from_pretrained(os.path.join(folder, name))
    raise wrong("model", f"{plan.model.name}, whose config.json MPT does not write", "a model of the file", "plan again with --model config.json")


class Trained:
    """The file's Trainer without data, with weights that have no values."""

    def __init__(self, file: Any):
        self.file, self.mesh, file.causal_lower_right = file, file.make_mesh(), lambda *_: LOWER_RIGHT
        self.stages = [stage for stage, rank in enumerate(file.RANK_OF_STAGE) if rank == self.mesh.get_local_rank("pp")]
        file.DEVICE = torch.device("meta")
        self.models = {stage: file.make_model(stage, self.mesh) for stage in self.stages}
        file.DEVICE = torch.device("cpu")
        self.micro_batches = file.MICRO_BATCHES if file.STAGES > 1 else min(file.MICRO_BATCHES, MOST_MICRO_BATCHES)
        self.repeated = file.MICRO_BATCHES - self.micro_batches
        self.names = {self.mesh[axis].get_group().group_name: name for axis, name in GROUPS.items()}

    def allocate(self) -> None:
        trainer = self.trainer = object.__new__(self.file.Trainer)
        for model in self.models.values():
            model.to_empty(device=self.file.DEVICE)
            self.file.tie(model)
        trainer.options = types.SimpleNamespace(weight_decay=0.1, clip=1.0, warmup=10, steps=100, lr=1e-3, min_lr=1e-4)
        trainer.mesh, trainer.models, trainer.clock = self.mesh, self.models, self.file.Clock()
        trainer.parameters = self.parameters = [parameter for model in self.models.values() for parameter in model.parameters()]
        trainer.optimizer = self.optimizer = torch.optim.AdamW(trainer.groups(), lr=0.0, betas=(0.9, 0.95), eps=1e-8, fused=True)
        trainer.loss_scale, trainer.good_steps, trainer.skipped, trainer.losses = 1.0, 0, 0, []

    def forward_and_backward(self, watch: Watch) -> None:
        file, trainer = self.file, self.trainer

        @contextlib.contextmanager
        def span(kind: str, stage: int) -> Iterator[None]:
            with watch.forward(stage) if kind == "forward" else contextlib.nullcontext():
                yield
            if kind == "backward":
                watch.marks.append(watch.counting.calls.copy())

        trainer.clock.span = span
        if file.STAGES > 1:
            trainer.schedule = file.make_schedule(self.models, self.mesh, trainer.clock, trainer.loss_of)
        tokens = [torch.zeros(file.MICRO_BATCH, file.SEQUENCE // file.AXIS["cp"], dtype=torch.int64) for _ in range(self.micro_batches)]
        with file.loss_parallel() if file.AXIS["tp"] > 1 else contextlib.nullcontext():
            trainer.run_micro_batches(tokens, tokens)

    def update(self) -> None:
        with mock.patch.object(torch.Tensor, "item", lambda _: 1.0):  # no value is known
            self.trainer.update(0, *self.trainer.sum_up())


def measured(plan: Any) -> List[Dict[str, Any]]:
    """A rank of each pipeline rank."""
    on_gpus = plan.cluster.device.kind == "gpu"
    if plan.layout.context > 1 and plan.layout.context_method == "ring" and not on_gpus:
        raise wrong("plan", "context ranks in a ring; MPT cannot verify them on CPU ranks yet", "GPUs", "plan again with --cp-method all_to_all")
    with tempfile.TemporaryDirectory() as folder:
        plan.export("pytorch", folder)
        path = folder + "/mpt_train.py"
        first = load(path)
        apart = math.prod(first.MESH[first.AXES.index("pp") + 1:])
        return [measure(rank * apart, first.RANKS, on_gpus, lambda: Trained(load(path))) for rank in range(first.AXIS["pp"])]
