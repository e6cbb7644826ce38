# SPDX-License-Identifier: Apache-2.0
"""Recompute as in the plan: of whole layers, of the attention core, or torchtitan's choice of operators."""

from __future__ import annotations

from typing import Any, Dict, List

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from ._plan import core_again, keeps_every_second_product


def core_twice(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
    """The attention core, which runs again in the backward."""
    again = checkpoint(F.scaled_dot_product_attention, q, k, v, use_reentrant=False, preserve_rng_state=options.get("dropout_p", 0.0) > 0, **options)
    assert isinstance(again, torch.Tensor)
    return again


_PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.linear.default}


def _keeps_attention(operator: Any, arguments: Any, named: Any) -> bool:
    """Whether an operator is the attention core, and draws nothing. What is kept does not run again and draws no numbers. Later
    dropouts would draw these instead, and their masks would differ from the forward's (findings/torch_selective_recompute_redraws_dropout.sh)."""
    if "_scaled_dot_product_" not in str(operator) or "backward" in str(operator):
        return False
    given = dict(zip((argument.name for argument in operator._schema.arguments), arguments), **named)
    return not given.get("dropout_p", 0.0)


def _every_second_product() -> Any:
    """Keeps the outputs of attention and of the first, third, ... product."""
    counts = {False: 0, True: 0}  # forward, and again in the backward

    def policy(context: Any, operator: Any, *arguments: Any, **named: Any) -> CheckpointPolicy:
        counts[context.is_recompute] += operator in _PRODUCTS
        keeps = counts[context.is_recompute] % 2 == 1 if operator in _PRODUCTS else _keeps_attention(operator, arguments, named)
        return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE
    return create_selective_checkpoint_contexts(policy)


def recompute(layers: nn.ModuleList, kept: List[int], stage: int, layout: Dict[str, Any]) -> None:
    """Recomputes the first layers of a stage, by the plan's count. `kept`: the numbers of its layers. The random state of the forward is
    always restored: a model may start to draw random numbers at any time, for example after train()."""
    listed = layout.get("recomputed_layers") or []
    count = 0 if layout["recompute"] == "none" or core_again(layout) else min(listed[stage], len(kept)) if listed else len(kept)
    options: Dict[str, Any] = {"checkpoint_impl": CheckpointImpl.NO_REENTRANT, "preserve_rng_state": True}
    if layout["recompute"] == "selective" and keeps_every_second_product(layout):
        options["context_fn"] = _every_second_product
    for number in kept[:count]:
        layers[number] = checkpoint_wrapper(layers[number], **options)
