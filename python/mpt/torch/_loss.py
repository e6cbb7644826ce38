# SPDX-License-Identifier: Apache-2.0
"""The objective: the share of each rank's micro-batches in the loss of the whole batch."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

import torch
import torch.distributed as dist

from .._door import wrong
from ._check import IGNORED

LossOf = Callable[[Any, torch.Tensor], torch.Tensor]
MEANINGS = ("mean", "sum", "equal")


def sum_over(value: torch.Tensor, groups: List[Any]) -> torch.Tensor:
    for group in groups:
        dist.all_reduce(value, group=group)
    return value


def _counted(targets: torch.Tensor) -> torch.Tensor:
    """The number of targets that count: those that are not -100. If targets are not token ids, all count."""
    whole = targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool
    return torch.tensor(targets.numel(), device=targets.device) if whole else (targets != IGNORED).sum()


class Weighed:
    """loss_of, times its share of the batch and `scale`: FSDP takes the mean over ranks, and a schedule the mean over micro-batches.

    meaning "mean": loss_of is a mean over targets that count, so a micro-batch's share is its share of these targets; "sum": loss_of is a
    sum, to be divided by the count of the batch; "equal": all micro-batches have the same share."""

    def __init__(self, loss_of: LossOf, meaning: str, targets: torch.Tensor, micro_batches: int, groups: List[Any]):
        self.loss_of, self.meaning, self.groups = loss_of, meaning, groups
        self.scale = micro_batches
        for group in groups:
            self.scale *= dist.get_world_size(group)
        self.total = sum_over(_counted(targets).float(), groups).clamp(min=1) if meaning != "equal" else None

    def __call__(self, result: Any, targets: torch.Tensor) -> torch.Tensor:
        if self.total is None:
            return self.loss_of(result, targets)
        if self.meaning == "sum":
            return self.loss_of(result, targets) / self.total * self.scale
        count = _counted(targets)
        if not targets.is_floating_point() and targets.numel() > 0:  # the mean over no target is NaN: use one target with factor 0
            first = torch.zeros_like(targets, dtype=torch.bool)
            first.view(-1)[0] = True
            targets = torch.where(first & (count == 0), torch.zeros_like(targets), targets)
        return self.loss_of(result, targets) * (count / self.total * self.scale)

    def whole(self, losses: List[torch.Tensor]) -> torch.Tensor:
        """The loss of all replicas, from the calls on this rank."""
        return sum_over(torch.stack([loss.detach().float() for loss in losses]).sum() / self.scale, self.groups)


def check_batch(tokens: Any, targets: Any, meaning: str, micro_batches: int, parts_of_sequence: Dict[str, int]) -> None:
    """Refuses a batch that cannot be split evenly. `parts_of_sequence`: the number of parts, and the feature that needs them."""
    if meaning not in MEANINGS:
        raise wrong("step", f"loss_is={meaning!r}", " or ".join(repr(one) for one in MEANINGS))
    if not torch.is_grad_enabled():
        raise wrong("step", "torch.no_grad()", "gradients", "call step outside of it")
    for name, value in (("tokens", tokens), ("targets", targets)):
        if not isinstance(value, torch.Tensor) or value.dim() < 2:
            raise wrong("step", f"{name} that are {f'a tensor {tuple(value.shape)}' if isinstance(value, torch.Tensor) else type(value).__name__}",
                        "a tensor [sequences, tokens]", 'of a dictionary of transformers batch["input_ids"], and batch["labels"] moved on by one token')
        if value.shape[0] % micro_batches or value.shape[0] == 0:
            raise wrong("step", f"{value.shape[0]} sequences in {name}", f"a multiple of the plan's {micro_batches} micro-batches of this replica",
                        "DataLoader(drop_last=True), or more sequences whose targets are all -100")
    for what, parts in parts_of_sequence.items():
        if tokens.shape[1] % parts:
            raise wrong("step", f"sequences of {tokens.shape[1]} tokens for {what}", f"a multiple of {parts}", "pad with targets of -100")
