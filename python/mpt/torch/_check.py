# SPDX-License-Identifier: Apache-2.0
"""The check before the first step: loss and gradients of a few tokens in the split model, compared with the model in one process."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor
from torch.func import functional_call

from .._door import InputError, Problem, wrong
from ._look import some_tokens, tensor_of, undisturbed

_FP32 = 1e-3  # allowed difference of gradients: sums in another order make 1e-6
_TF32 = 2e-2  # if PyTorch may round the inputs of products
_ROUNDINGS = 3  # allowed multiple of the change by rounding in one process, in bf16
_CPU_FLOP = 3e12  # of a comparison without a GPU: some minutes on one core
IGNORED = -100  # a target that does not count, as in cross_entropy

T = TypeVar("T")


def together(act: Callable[[], T]) -> T:
    """An error of one rank ends all of them, with the same message."""
    failed, made = None, None
    try:
        made = act()
    except InputError as error:
        failed = error
    told: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, None if failed is None else (str(failed), [tuple(problem) for problem in failed.problems]))
    if failed is not None:
        raise failed
    for one in told:
        if one is not None:
            raise InputError(one[0], [Problem(*problem) for problem in one[1]])
    return made  # type: ignore[return-value]


def loss_of(result: Any, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(tensor_of(result).flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED)


@dataclasses.dataclass
class Trial:
    """A small batch. Each replica has one micro-batch of one sequence per stage, at least two, or as few as the step has."""

    tokens: torch.Tensor  # [replicas x micro-batches, tokens]
    targets: torch.Tensor  # of unequal count
    micro_batches: int  # of a replica
    kind: torch.dtype  # type in which layers compute
    loss: float = 0.0
    gradients: Dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)
    roundings: Dict[str, float] = dataclasses.field(default_factory=dict)  # relative, of each gradient in one process
    draws: bool = False  # the model draws random numbers in training


def make_trial(model: nn.Module, layout: Dict[str, Any], stages: int, micro_batches: int, kind: torch.dtype, draws: bool) -> Trial:
    many = 2 * layout.get("context", 1) * layout["tensor"]
    count = min(micro_batches, max(stages, 2))
    rows = some_tokens(model, layout["data"] * count, many * math.ceil(8 / many) + 1, seed=2)
    targets = rows[:, 1:].clone()
    for number, row in enumerate(targets):
        row[: number % 3] = IGNORED
    return Trial(rows[:, :-1].contiguous(), targets, count, kind, draws=draws)


def reason_against(model: nn.Module, trial: Trial, device: torch.device) -> str:
    """Why the model cannot be run in one process. Empty if it can."""
    weights = sum(parameter.numel() for parameter in model.parameters())
    if any(parameter.is_meta for parameter in model.parameters()):
        return "its weights are on the meta device"
    passes = 1 if trial.kind == torch.float32 else 2
    if device.type != "cuda" and 6 * weights * trial.tokens.numel() * passes > _CPU_FLOP:
        return f"without a GPU its {weights / 1e9:.1f}G weights would take minutes"
    needed = 4 * weights * (passes + (device.type == "cuda"))
    free = _free_bytes(device)
    return f"it would need {needed / 1e9:.0f} GB beside its weights, of {free / 1e9:.0f} GB that are free" if needed > free / 2 else ""


def _free_bytes(device: torch.device) -> float:
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    try:
        with open("/proc/meminfo", encoding="utf-8") as file:
            free = next(float(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return free / int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size()))


def _run(model: nn.Module, trial: Trial, kind: torch.dtype, device: torch.device) -> Tuple[float, Dict[str, torch.Tensor]]:
    """Loss and gradients of the trial, micro-batch after micro-batch, with the weights that FSDP gathers."""
    weights = dict(model.named_parameters())
    total = (trial.targets != IGNORED).sum().item()
    sums = {name: torch.zeros_like(weight, dtype=torch.float32) for name, weight in weights.items() if weight.requires_grad}
    loss = 0.0
    for tokens, targets in zip(trial.tokens.split(1), trial.targets.split(1)):
        some = loss_of(functional_call(model, {name: weight.to(kind) for name, weight in weights.items()}, (tokens.to(device),)), targets.to(device))
        some = some * (targets != IGNORED).sum().item() / total
        for (name, total_of), gradient in zip(sums.items(), torch.autograd.grad(some, [weights[name] for name in sums], allow_unused=True)):
            if gradient is not None:
                total_of += gradient
        loss += some.item()
    return loss, sums


def refer(model: nn.Module, trial: Trial, device: torch.device) -> str:
    """Puts loss and gradients of one process into the trial. Returns why it could not."""
    home, reason = next(model.parameters()).device, ""
    model.to(device)
    try:
        with undisturbed(model, training=False if trial.draws else None), torch.enable_grad():
            trial.loss, trial.gradients = _run(model, trial, torch.float32, device)
            if trial.kind != torch.float32:
                loss, rounded = _run(model, trial, trial.kind, device)
                trial.roundings = {name: _off(rounded[name], whole, _floor(trial, name)) for name, whole in trial.gradients.items()}
                trial.roundings[""] = abs(loss - trial.loss) / abs(trial.loss)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:  # its result has no logits, or memory ran out
        reason = f"cross entropy of its result stops, {type(error).__name__}: {error}"
    model.to(home)
    told: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, (reason, trial.loss))
    losses = [loss for _, loss in told]
    reason = next((one for one, _ in told if one), "")
    if reason:
        trial.gradients = {}
    elif max(losses) - min(losses) > 1e-4 * abs(trial.loss):
        raise wrong("model", f"weights that differ between processes: losses of {min(losses):.5f} to {max(losses):.5f} for the same tokens",
                    "equal weights in each", "call torch.manual_seed before the model is made, or load one checkpoint")
    return reason


def _floor(trial: Trial, name: str) -> float:
    """A hundredth of the norm that a weight's gradient would have if it were like the others: gradients that are zero up to rounding are
    not compared."""
    norm = math.sqrt(sum(float(one.norm()) ** 2 for one in trial.gradients.values()))
    return 1e-2 * norm * math.sqrt(trial.gradients[name].numel() / sum(one.numel() for one in trial.gradients.values()))


def _off(gradient: Optional[torch.Tensor], wanted: torch.Tensor, floor: float) -> float:
    difference = wanted if gradient is None else gradient.to(wanted.device).float() - wanted
    off = float(difference.norm()) / max(float(wanted.norm()), floor, 1e-30)
    return off if math.isfinite(off) else math.inf


def _allowed(trial: Trial, name: str) -> float:
    exact = _FP32 if torch.get_float32_matmul_precision() == "highest" or not torch.cuda.is_available() else _TF32
    return exact + _ROUNDINGS * trial.roundings.get(name, 0.0)


@dataclasses.dataclass
class Compared:
    """The comparisons of one rank."""

    names: List[str]
    worst: float = 0.0  # the largest difference of a gradient, as a share of the allowed one
    name: str = ""
    off: float = 0.0


def compare(trial: Trial, weights: List[Tuple[str, nn.Parameter]]) -> Compared:
    """The gradients of this rank's weights. All ranks of its mesh must call this."""
    mine = Compared([])
    for name, weight in weights:
        if name not in trial.gradients:  # frozen, or another name of a weight
            continue
        gradient = weight.grad.full_tensor() if isinstance(weight.grad, DTensor) else weight.grad
        off = _off(gradient, trial.gradients[name], _floor(trial, name))
        mine.names.append(name)
        if off / _allowed(trial, name) >= mine.worst:
            mine.worst, mine.name, mine.off = off / _allowed(trial, name), name, off
    return mine


def verdict(trial: Trial, mine: Compared, loss: Optional[float], layout: Dict[str, Any]) -> str:
    """The statement about a comparison, the same on all ranks. Raises if a gradient or the loss is off."""
    told: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, (mine, loss))
    worst = max((one for one, _ in told), key=lambda one: one.worst)
    names = {name for one, _ in told for name in one.names}
    losses = [one for _, one in told if one is not None]
    loss_allowed = _allowed(trial, "") * abs(trial.loss)
    if worst.worst > 1 or not max(abs(one - trial.loss) for one in losses) <= loss_allowed:
        raise wrong("model", f"the gradient of {worst.name} {100 * worst.off:.2g}% off that of one process, the worst of {len(names)}, and a loss of "
                    f"{max(losses):.5f} instead of {trial.loss:.5f}", f"both equal but for rounding, {100 * _allowed(trial, worst.name):.2g}%", _remedy(layout))
    missing = sorted(set(trial.gradients) - names)
    if missing:
        raise wrong("model", f"{len(missing)} weights that no rank has, as {missing[0]}", "each weight on a rank", _remedy(layout))
    rounding = f", where rounding to {str(trial.kind)[6:]} makes {trial.roundings[worst.name]:.0e}" if trial.roundings else ""
    without = ", without dropout and other random numbers" if trial.draws else ""
    return f"compared the loss and {len(names)} gradients with one process: equal to {worst.off:.0e}{rounding}{without}"


def _remedy(layout: Dict[str, Any]) -> str:
    split = ", ".join(f"{name} {layout[name]}" for name in ("tensor", "pipeline", "data", "context") if layout.get(name, 1) > 1) or "one rank"
    return (f"this model trains wrong by {split}, ZeRO {layout.get('zero', 0)}, recompute {layout['recompute']}: plan with other degrees, and please report it; "
            "check=False trains it all the same")
