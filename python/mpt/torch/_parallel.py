# SPDX-License-Identifier: Apache-2.0
"""The split model: parallelize() makes it, and its step() trains it."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.pipelining import PipelineStage

from .._door import wrong
from . import _check, _states
from ._context import part_of_sequence
from ._look import look, look_at_weights, undisturbed
from ._loss import LossOf, Weighed, check_batch
from ._parts import Builder, check_model, context_mesh_of, mesh_of, prepare
from ._plan import SCHEDULES, TYPES, checked


def _say(text: str) -> None:
    if text and dist.get_rank() == 0:
        print(f"mpt.torch: {text}", flush=True)


class Parallel:
    """A model as a plan splits it. `parts`: the modules of this rank's stages. `mesh`: axes pp, dp_replicate, dp_shard, tp; dp_shard, or
    without ZeRO dp_replicate, includes the context ranks. `replica`: this rank's data-parallel replica in the plan; the rank takes that
    replica's sequences. `comparison`: the result of the comparison with one process, or why there was none."""

    def __init__(self, model: nn.Module, plan: Any, device: Optional[torch.device] = None, check: bool = True):
        self.plan = checked(plan)
        layout = self.plan["layout"]
        self.device = device or (torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if torch.cuda.is_available() else torch.device("cpu"))
        self.stages = self.plan["schedule"]["rank_of_stage"]
        self.micro_batches = self.plan["workload"]["global_batch"] // (layout["data"] * layout["micro_batch"])
        self.mesh = mesh_of(layout, self.device)
        shards = self.mesh.get_local_rank("dp_replicate") * self.mesh["dp_shard"].size() + self.mesh.get_local_rank("dp_shard")
        self.replica = shards // layout.get("context", 1)
        self.context = context_mesh_of(layout, self.device)
        self._length = 0
        self._schedules: Dict[Any, Any] = {}
        self._weighed: Optional[Weighed] = None
        self._groups = [self.mesh[axis].get_group() for axis in ("dp_replicate", "dp_shard") if self.mesh[axis].size() > 1]
        self.parts: Dict[int, nn.Module] = {}
        trial = self._build(model, check)
        self.comparison = self._compare(trial) if trial is not None and trial.gradients else self.comparison
        _say(self.comparison)

    def _build(self, model: nn.Module, check: bool) -> Optional[_check.Trial]:
        """Makes the parts. Returns the trial to compare, if the model can run in one process."""
        layout = self.plan["layout"]
        own = [stage for stage, rank in enumerate(self.stages) if rank == self.mesh.get_local_rank("pp")]

        def prepared() -> Builder:
            said = prepare(model)
            seen = look(model)
            weights = look_at_weights(model, seen)
            check_model(model, seen, weights, self.plan)
            builder = Builder(model, seen, weights, self.plan, self.mesh, self.context, self.device)
            builder.prepare(own)
            _say(said)
            return builder
        builder = _check.together(prepared)
        self._draws = builder.weights.draws
        self._names = list(model.state_dict())
        trial = _check.make_trial(model, layout, len(self.stages), self.micro_batches, TYPES[layout["precision"]], self._draws)
        against = _check.reason_against(model, trial, self.device) if check else "check=False"
        if not against:
            against = _check.together(lambda: _check.refer(model, trial, self.device))
        self.comparison = f"not compared with one process: {against}" if check else ""
        for stage in own:
            self.parts[stage] = builder.part(stage, lambda: self._length)
        return trial

    def _compare(self, trial: _check.Trial) -> str:
        first = self.replica * trial.micro_batches
        rows = slice(first, first + trial.micro_batches)
        with contextlib.ExitStack() as left:
            for part in self.parts.values():
                left.enter_context(undisturbed(part, training=False if trial.draws else None))
            try:
                loss = self._step(trial.tokens[rows], trial.targets[rows], _check.loss_of, "mean", trial.micro_batches)
            except RuntimeError as error:
                raise wrong("model", f"a step of {trial.micro_batches} micro-batches as the plan splits it, which stops: {error}", "a step as in one process",
                            "plan with other degrees, and please report it") from error
        said = _check.verdict(trial, _check.compare(trial, self.named_parameters()), None if loss is None else float(loss), self.plan["layout"])
        for parameter in self.parameters():
            parameter.grad = None
        self._schedules.clear()
        return said

    @property
    def _is_stage(self) -> bool:
        return len(self.stages) > 1

    @property
    def _has_last(self) -> bool:
        return len(self.stages) - 1 in self.parts

    def parameters(self) -> List[nn.Parameter]:
        return [parameter for part in self.parts.values() for parameter in part.parameters()]

    def named_parameters(self) -> List[Tuple[str, nn.Parameter]]:
        """Parameters by the model's own names."""
        return list(_states.named(self.parts, self._is_stage))

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Scales the gradients so that their norm over all weights of the model is at most `max_norm`. Every process must call it. Returns
        the norm before scaling, equal to that of one process."""
        return _states.clip(self.parameters(), max_norm, norm_type, dist.get_world_size() // self.mesh["pp"].size(), self.device)

    def state_dict(self) -> Dict[str, Any]:
        """This rank's weights by the model's own names, as DTensors: torch.distributed.checkpoint saves them, and loads them under another
        plan."""
        return _states.state_of(self.parts, self._is_stage)

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Loads the result of state_dict(), or the unsplit model's. Every process must call it."""
        _states.load(self.parts, self._is_stage, self._names, state)

    def optimizer_state_dict(self, optimizer: torch.optim.Optimizer) -> Dict[str, Any]:
        """The optimizer's state as state.NAME.KEY and param_groups.NAME.KEY, for torch.distributed.checkpoint as well."""
        return _states.optimizer_state_of(self.parts, self._is_stage, optimizer)

    def load_optimizer_state_dict(self, optimizer: torch.optim.Optimizer, state: Dict[str, Any]) -> None:
        _states.load_optimizer(self.parts, self._is_stage, optimizer, state)

    def _pipeline(self, shape: Any, micro_batches: int) -> Any:
        """PyTorch's schedule, which is for one shape of inputs."""
        if (shape, micro_batches) not in self._schedules:
            stages = [PipelineStage(part, stage, len(self.stages), self.device, group=self.mesh["pp"].get_group()) for stage, part in self.parts.items()]
            name = self.plan["layout"]["schedule"]
            single = name in ("gpipe", "1f1b")

            def weighed(result: Any, targets: torch.Tensor) -> torch.Tensor:
                assert self._weighed is not None
                return self._weighed(result, targets)
            self._schedules[shape, micro_batches] = SCHEDULES[name](stages[0] if single else stages, micro_batches, loss_fn=weighed)
        return self._schedules[shape, micro_batches]

    @contextlib.contextmanager
    def _same_random_numbers(self) -> Iterator[None]:
        """Makes tensor ranks drop the same elements of replicated tensors: all use a seed that the first one draws."""
        if not self._draws or self.mesh["tp"].size() == 1:
            yield
            return
        seed = torch.randint(2**62, (1,)).to(self.device)
        dist.broadcast(seed, group=self.mesh["tp"].get_group(), group_src=0)
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(int(seed.item()))
            yield

    def step(self, tokens: torch.Tensor, targets: torch.Tensor, loss_of: LossOf, loss_is: str = "mean") -> Optional[torch.Tensor]:
        """Gradients of a step from this replica's sequences, [micro-batches x micro-batch, tokens]. Returns the loss of all replicas on
        ranks of the last stage, else None. Context ranks must get the same whole sequences.

        loss_of(logits, targets) is a mean over the targets that are not -100, and so are loss and gradients, over the whole batch. With
        loss_is="sum" it is a sum, which is divided by the count of the batch; with "equal" all micro-batches have equal weight."""
        return self._step(tokens, targets, loss_of, loss_is, self.micro_batches)

    def _parts_of_sequence(self) -> Dict[str, int]:
        layout = self.plan["layout"]
        context, tensor = layout.get("context", 1), layout["tensor"] if layout.get("sequence_parallel") else 1
        pieces = context * (2 if context > 1 and layout.get("context_method", "ring") == "ring" else 1)
        return {f"{context} context ranks": pieces, f"{tensor} tensor ranks that split them": context * tensor}

    def _step(self, tokens: torch.Tensor, targets: torch.Tensor, loss_of: LossOf, loss_is: str, micro_batches: int) -> Optional[torch.Tensor]:
        check_batch(tokens, targets, loss_is, micro_batches, self._parts_of_sequence())
        tokens, targets = tokens.to(self.device), targets.to(self.device)
        if self.context is not None:
            self._length = tokens.shape[1]
            targets = targets.index_select(1, part_of_sequence(self.plan["layout"], self.context.get_local_rank(), self._length).to(self.device))
        if self._has_last:
            self._weighed = Weighed(loss_of, loss_is, targets, micro_batches, self._groups)
        losses: List[torch.Tensor] = []
        with self._same_random_numbers():
            if self._is_stage:
                schedule = self._pipeline(tuple(tokens.shape), micro_batches)
                schedule.step(*([tokens] if 0 in self.parts else []), target=targets if self._has_last else None, losses=losses if self._has_last else None,
                              tokens=tokens)
            else:
                self._accumulate(tokens, targets, micro_batches, losses)
        self._length = 0
        return self._weighed.whole(losses) if self._weighed is not None and self._has_last else None

    def _accumulate(self, tokens: torch.Tensor, targets: torch.Tensor, micro_batches: int, losses: List[torch.Tensor]) -> None:
        assert self._weighed is not None
        (part,) = self.parts.values()
        for number, (some, wanted) in enumerate(zip(tokens.chunk(micro_batches), targets.chunk(micro_batches))):
            part.set_requires_gradient_sync(number == micro_batches - 1 or self.plan["layout"].get("zero", 0) >= 2)  # type: ignore[operator]
            loss = self._weighed(part(some), wanted)
            (loss / micro_batches).backward()
            losses.append(loss.detach())


def parallelize(model: nn.Module, plan: Any, device: Optional[torch.device] = None, check: bool = True) -> Parallel:
    """Splits `model` as `plan` says, an mpt.Plan, the fields of plan.json, or its path. To be called by every process of torchrun,
    with equal weights in each; the model itself is used up. With one stage and no context ranks `parallel.parts[0]` is the model. Of a model on the meta
    device each rank allocates its parts alone, and you set weights and buffers.

    With `check` loss and gradients of a few tokens are compared with those of the model in one process, which costs some passes. It prints
    the comparison, or why there is none: the model has no weights yet, or too many for one process. A difference is an mpt.InputError."""
    return Parallel(model, plan, device, check)
