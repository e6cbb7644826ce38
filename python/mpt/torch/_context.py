# SPDX-License-Identifier: Apache-2.0
"""Context ranks: from the first layer on each holds a part of the sequence, and its loss is for that part."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.nn.attention.bias import causal_lower_right
from torch.utils import _pytree as pytree

from .._door import wrong
from ._look import TOKENS, Attending, Seen, undisturbed


def part_of_sequence(layout: Dict[str, Any], rank: int, length: int) -> torch.Tensor:
    """The tokens of a context rank. In a ring they are two pieces, one from each end, so that all ranks have equal work."""
    ranks = layout["context"]
    pieces = (rank, 2 * ranks - 1 - rank) if layout.get("context_method", "ring") == "ring" else (rank,)
    many = ranks * len(pieces)
    if length % many:
        raise wrong("step", f"sequences of {length} tokens for {ranks} context ranks", f"a multiple of {many}")
    return torch.cat([torch.arange(length // many) + piece * (length // many) for piece in pieces])


def attend_over_context(layout: Dict[str, Any], mesh: DeviceMesh, core: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Causal attention of [batch, heads, tokens of this rank, size] over the tokens of all context ranks."""
    def by_heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
        parts = [DTensor.from_local(x, mesh, [Shard(2)], run_check=False).redistribute(placements=[Shard(1)]).to_local() for x in (q, k, v)]
        return DTensor.from_local(core(*parts, **options), mesh, [Shard(1)], run_check=False).redistribute(placements=[Shard(2)]).to_local()

    def in_ring(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
        length, piece = q.shape[2] * mesh.size(), q.shape[2] // 2
        order = torch.cat([part_of_sequence(layout, rank, length) for rank in range(mesh.size())]).argsort().to(q.device)
        whole = [DTensor.from_local(x, mesh, [Shard(2)], run_check=False).redistribute(placements=[Replicate()])
                 .to_local(grad_placements=[Partial()]).index_select(2, order) for x in (k, v)]
        options.pop("is_causal")
        parts = []
        for half, begin in ((q[:, :, :piece], mesh.get_local_rank()), (q[:, :, piece:], 2 * mesh.size() - 1 - mesh.get_local_rank())):
            end = (begin + 1) * piece
            parts.append(core(half, *(x[:, :, :end] for x in whole), attn_mask=causal_lower_right(piece, end), **options))
        return torch.cat(parts, dim=2)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
        if options.pop("attn_mask", None) is not None or not options.get("is_causal"):
            raise wrong("model", "attention with a mask", "is_causal=True over all tokens of a sequence, without a mask", "plan with cp=1")
        return (in_ring if layout.get("context_method", "ring") == "ring" else by_heads)(q, k, v, **options)
    return attend


def _axes_of_tokens(given: Tuple[Any, Any]) -> List[Optional[int]]:
    """For each input of a layer: the axis that counts tokens, None if it has none."""
    return [value.shape.index(TOKENS) if isinstance(value, torch.Tensor) and TOKENS in value.shape else None for value in pytree.tree_leaves(given)]


def _taken(given: Tuple[Any, Any], axes: List[Optional[int]], length: int, at: torch.Tensor) -> Tuple[Any, Any]:
    leaves, shape = pytree.tree_flatten(given)
    if len(leaves) != len(axes):
        raise wrong("model", f"{len(leaves)} values for a layer in training, and {len(axes)} before", "the same arguments", "plan with cp=1")
    # A value of another length is already a part, from the previous layer.
    return pytree.tree_unflatten([value if axis is None or value.shape[axis] != length else value.index_select(axis, at.to(value.device))
                                  for value, axis in zip(leaves, axes)], shape)


def _check_cores(seen: Seen, number: int, layout: Dict[str, Any]) -> None:
    where = f"{seen.layers}.{number}"
    for (_, k, _), options in seen.cores[number]:
        if options.get("attn_mask") is not None or not options.get("is_causal"):
            raise wrong("model", f"attention with a mask in {where}", "is_causal=True over all tokens of a sequence, without a mask", "plan with cp=1")
        if layout.get("context_method", "ring") != "ring" and k.shape[1] % (layout["context"] * layout["tensor"]):
            raise wrong("plan", f"{layout['context']} context ranks that exchange heads, and {k.shape[1]} heads of keys in {where}", "a divisor",
                        'plan with cp_method="ring"')


def check_context(model: nn.Module, seen: Seen, layout: Dict[str, Any]) -> None:
    """Checks that a layer with a part of the sequence as input makes that part of the queries, keys and values, with the right
    positions."""
    if any(parameter.is_meta for parameter in model.parameters()):
        raise wrong("model", "weights on the meta device, for context ranks", "weights with values, by which it is checked that positions are right", "plan with cp=1")
    at = torch.tensor([1, 2, 5], device=seen.tokens.device)
    for number, layer in enumerate(model.get_submodule(seen.layers)):
        _check_cores(seen, number, layout)
        found: List[List[torch.Tensor]] = []

        def note(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
            found.append([q, k, v])
            return F.scaled_dot_product_attention(q, k, v, **options)
        with torch.no_grad(), undisturbed(layer, training=False), Attending(note):
            arguments, named = _taken(seen.given[number], _axes_of_tokens(seen.given[number]), TOKENS, at)
            layer(*arguments, **named)
        for (whole, _), part in zip(seen.cores[number], found):
            for one, other in zip(whole, part):
                wanted = one.index_select(2, at).float()
                if (wanted - other.float()).norm() > 0.05 * wanted.norm():
                    raise wrong("model", f"positions that {seen.layers}.{number} counts itself, from the start of what it is given",
                                "positions, or what is made of them, that the layer is given", "plan with cp=1")


def split_over_context(layers: nn.ModuleList, seen: Seen, layout: Dict[str, Any], mesh: DeviceMesh, length: Callable[[], int]) -> None:
    def hook(number: int) -> Callable[..., Any]:
        axes = _axes_of_tokens(seen.given[number])

        def take(_: nn.Module, arguments: Any, named: Any) -> Any:
            if not length():
                raise wrong("model", "a run outside of step() on context ranks, which have parts of a sequence", "a step", "to evaluate, parallelize with cp=1")
            return _taken((arguments, named), axes, length(), part_of_sequence(layout, mesh.get_local_rank(), length()))
        return take
    for number, layer in enumerate(layers):
        layer.register_forward_pre_hook(hook(number), with_kwargs=True, prepend=True)  # before tensor ranks take their parts
