# SPDX-License-Identifier: Apache-2.0
"""Gradient norm and checkpoints of a split model, under the whole model's names."""

from __future__ import annotations

import math
import re
from typing import Any, Dict, Iterator, List, Tuple

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

from .._door import wrong

_WRAPPERS = re.compile(r"(_checkpoint_wrapped_module|_orig_mod)\.")


def own_name(name: str, is_stage: bool) -> str:
    """A tensor's name in the model, from its name in a part."""
    name = _WRAPPERS.sub("", name)
    return name[len("model.") :] if is_stage else name


def named(parts: Dict[int, nn.Module], is_stage: bool) -> Iterator[Tuple[str, nn.Parameter]]:
    for part in parts.values():
        for name, parameter in part.named_parameters():
            yield own_name(name, is_stage), parameter


def clip(parameters: List[nn.Parameter], max_norm: float, norm_type: float, ranks_of_stage: int, device: torch.device) -> torch.Tensor:
    """Scales the gradients of all ranks by one factor. `ranks_of_stage`: the number of ranks of a stage. Returns the norm before
    scaling."""
    total = torch.zeros((), dtype=torch.float32, device=device)
    pieces: List[torch.Tensor] = []
    for gradient in [parameter.grad for parameter in parameters if parameter.grad is not None]:
        piece, shares = gradient, 1
        if isinstance(gradient, DTensor):
            piece = gradient.to_local()
            shares = math.prod(size for size, placement in zip(gradient.device_mesh.shape, gradient.placements) if placement != Replicate())
        pieces.append(piece)
        if math.isinf(norm_type):
            total = torch.maximum(total, piece.abs().max().float() if piece.numel() else total)
        else:  # each element is on ranks_of_stage / shares ranks
            total = total + torch.linalg.vector_norm(piece, norm_type, dtype=torch.float32) ** norm_type * shares / ranks_of_stage
    dist.all_reduce(total, op=dist.ReduceOp.MAX if math.isinf(norm_type) else dist.ReduceOp.SUM)
    norm = total if math.isinf(norm_type) else total ** (1 / norm_type)
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for piece in pieces:
        piece.mul_(factor.to(piece.dtype))
    return norm


def state_of(parts: Dict[int, nn.Module], is_stage: bool) -> Dict[str, Any]:
    return {own_name(name, is_stage): value for part in parts.values() for name, value in part.state_dict().items()}


def _put(target: torch.Tensor, value: torch.Tensor) -> None:
    if isinstance(target, DTensor) and not isinstance(value, DTensor):
        value = distribute_tensor(value.to(target.to_local().device, target.dtype), target.device_mesh, target.placements, src_data_rank=None)
    target.copy_(value)


def load(parts: Dict[int, nn.Module], is_stage: bool, names: List[str], state: Dict[str, Any]) -> None:
    """`names`: those of the whole model's weights."""
    own = state_of(parts, is_stage)
    unknown, missing = sorted(set(state) - set(names) - set(own)), sorted(set(own) - set(state))
    if unknown or missing:
        said = [f"{what} {', '.join(some[:3])}" + (f" and {len(some) - 3} more" if len(some) > 3 else "")
                for what, some in (("no", missing), ("unknown", unknown)) if some]
        raise wrong("state", "; ".join(said), "the model's own names", "as parallel.state_dict() or the unsplit model's state_dict() has them")
    bad = [name for name, value in own.items() if tuple(value.shape) != tuple(state[name].shape)]
    if bad:
        raise wrong("state", f"{bad[0]} of {tuple(state[bad[0]].shape)}", f"{tuple(own[bad[0]].shape)}")
    with torch.no_grad():
        for name, value in own.items():
            if value is not state[name]:
                _put(value, state[name])


def _container(parts: Dict[int, nn.Module]) -> nn.Module:
    return nn.ModuleDict({str(stage): part for stage, part in parts.items()})


_OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)


def optimizer_state_of(parts: Dict[int, nn.Module], is_stage: bool, optimizer: Any) -> Dict[str, Any]:
    prefix = r"^(state|param_groups)\.\d+\." + (r"model\." if is_stage else "")
    fresh = not optimizer.state
    state = get_optimizer_state_dict(_container(parts), optimizer, options=_OPTIONS)
    if fresh:  # PyTorch made it by a step without gradients, which it counts (findings/asking_for_optimizer_state_counts_a_step.sh)
        for key in state:
            if key.endswith(".step"):
                state[key].zero_()
        optimizer.state.clear()
    return {re.sub(prefix, r"\1.", key): value for key, value in state.items()}


def load_optimizer(parts: Dict[int, nn.Module], is_stage: bool, optimizer: Any, state: Dict[str, Any]) -> None:
    places = {own_name(name, is_stage): f"{stage}." + ("model." if is_stage else "") for stage, part in parts.items() for name, _ in part.named_parameters()}
    own: Dict[str, Any] = {}
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"] if parameter.requires_grad}
    left = {own_name(name, is_stage): parameter for part in parts.values() for name, parameter in part.named_parameters() if id(parameter) in held}
    kinds = {key.rpartition(".")[2] for key in state if key.startswith("state.")}
    for key, value in state.items():
        kind, _, rest = key.partition(".")
        name = rest.rpartition(".")[0]
        if name in places:
            own[f"{kind}.{places[name]}{rest}"] = value
            if kind == "state":
                left.pop(name, None)
    if kinds and left and not any(key.startswith("state.") for key in own):
        raise wrong("state", f"no state of {next(iter(left))}", "the model's own names", "as parallel.optimizer_state_dict() has them")
    for name, parameter in left.items():  # without gradients a weight has no state yet, which is asked for
        own.update({f"state.{places[name]}{name}.{kind}": torch.zeros([]) if kind == "step" else torch.zeros_like(parameter) for kind in kinds})
    set_optimizer_state_dict(_container(parts), optimizer, own, options=_OPTIONS)
