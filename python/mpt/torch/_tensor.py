# SPDX-License-Identifier: Apache-2.0
"""Tensor ranks: products of one input by columns, the following product by rows, and the sequence split between them if the plan says
so."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

from .._door import wrong
from ._look import TOKENS, Product, Seen, reached, storage, tensor_of, undisturbed


@dataclasses.dataclass
class _Pair:
    """Products of one input, and the product that follows them."""

    block: str  # the child of the layer that holds them
    columns: List[Product]
    rows: Product


def _pairs(products: List[Product], layers: str, ranks: int) -> List[_Pair]:
    pairs: List[_Pair] = []
    left = list(products)
    while left:
        group = [left.pop(0)]
        while left and storage(left[0].given) == storage(group[0].given):
            group.append(left.pop(0))
        behind = left.pop(0) if left else None
        first = group[0].module
        if behind is None or behind.module.out_features != first.in_features or behind.module.in_features not in {one.module.out_features for one in group}:
            wide = f"{group[0].path} of {first.in_features} to {first.out_features}" + (
                "" if behind is None else f", then {behind.path} of {behind.module.in_features} to {behind.module.out_features}")
            raise wrong("model", wide, "products of one input whose width the next product takes back to the model's",
                        "one matrix for queries, keys and values, and routed experts, are not split: plan with tp=1")
        for one in [*group, behind]:
            if (one.module.in_features if one is behind else one.module.out_features) % ranks:
                raise wrong("plan", f"tensor degree {ranks} for {one.path} of {one.module.in_features} to {one.module.out_features}", "a divisor")
        pairs.append(_Pair(".".join(behind.path.split(".")[: layers.count(".") + 3]), group, behind))
    return pairs


def _check_matrices(layer: nn.Module, where: str, products: List[Product]) -> None:
    paths = {one.path for one in products}
    for name, parameter in layer.named_parameters():
        if parameter.ndim > 1 and f"{where}.{name.rpartition('.')[0]}" not in paths:
            raise wrong("model", f"{where}.{name} outside of an nn.Linear that every token passes", "matrices in nn.Linear", "plan with tp=1")


class _Part:
    """Hooks that run a layer as on one tensor rank, without the others: columns give that rank's part, and rows check it."""

    def __init__(self, layer: nn.Module, pairs: List[_Pair], rank: int, ranks: int):
        self.rank, self.ranks = rank, ranks
        self.names = {id(parameter): name for name, parameter in layer.named_parameters()}
        self.between: List[str] = []
        self.wrong = ""
        self.handles = [one.module.register_forward_hook(self.columns) for pair in pairs for one in pair.columns]
        self.handles += [pair.rows.module.register_forward_pre_hook(self.rows(pair.rows)) for pair in pairs]

    def columns(self, _: nn.Module, __: Any, made: torch.Tensor) -> torch.Tensor:
        return made.chunk(self.ranks, -1)[self.rank].detach().requires_grad_().clone()

    def rows(self, product: Product) -> Any:
        def hook(_: nn.Module, arguments: Any) -> Any:
            wanted = product.given.chunk(self.ranks, -1)[self.rank]
            if arguments[0].shape != wanted.shape or not wanted.is_meta and (arguments[0] - wanted).norm() > 1e-4 * wanted.norm():
                self.wrong = self.wrong or product.path
            self.between += [self.names[one] for one in reached([arguments[0]]) if one in self.names]
            return (product.given, *arguments[1:])
        return hook


def between(model: nn.Module, seen: Seen, rank: int, ranks: int) -> List[List[str]]:
    """For each layer the weights between columns and rows: a tensor rank has a part of their gradient. Refuses a layer that does not make
    its part of the heads from its part of the columns."""
    found: List[List[str]] = []
    for number, layer in enumerate(model.get_submodule(seen.layers)):
        where, remedy = f"{seen.layers}.{number}", "plan with tp=1"
        _check_matrices(layer, where, seen.products[number])
        part = _Part(layer, _pairs(seen.products[number], seen.layers, ranks), rank, ranks)
        expected = "attention that takes its number of heads from the width of its inputs, and norms of each head"
        try:
            arguments, named = seen.given[number]
            with torch.enable_grad(), undisturbed(layer, training=False):
                layer(*arguments, **named)
        except Exception as error:
            raise wrong("model", f"{where}, which stops with a part of the heads: {error}", expected, remedy) from error
        finally:
            for handle in part.handles:
                handle.remove()
        if part.wrong:
            raise wrong("model", f"{part.wrong}, which is not given its part of the heads where {where} has a part of the columns", expected, remedy)
        found.append(sorted(set(part.between)))
    return found


class _Summed(torch.autograd.Function):
    """A weight with a gradient that is summed over the tensor ranks."""

    @staticmethod
    def forward(context: Any, weight: torch.Tensor, group: Any) -> torch.Tensor:  # type: ignore[override]
        context.group = group
        return weight.view_as(weight)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        gradient = gradient.contiguous().clone()
        dist.all_reduce(gradient, group=context.group)
        return gradient, None


def _sum_gradients(owner: nn.Module, names: List[str], group: Any) -> None:
    """Replaces the owner's weights by their _Summed versions while the owner runs."""
    held: List[Dict[str, Any]] = []

    def begin(module: nn.Module, *_: Any) -> None:
        held.append({name: module._parameters[name] for name in names})
        module._parameters.update({name: _Summed.apply(weight, group) for name, weight in held[-1].items()})

    def end(module: nn.Module, *_: Any) -> None:
        module._parameters.update(held.pop())
    owner.register_forward_pre_hook(begin)
    owner.register_forward_hook(end, always_call=True)


def _redistributed(x: torch.Tensor, mesh: DeviceMesh, held: Placement, wanted: Placement) -> torch.Tensor:
    return DTensor.from_local(x, mesh, [held], run_check=False).redistribute(placements=[wanted]).to_local()


def _gather_input(module: nn.Module, at: List[int], mesh: DeviceMesh) -> None:
    """Gathers some of a module's input tensors from their sequence parts. They are counted over positions and then names."""
    def hook(_: nn.Module, arguments: Any, named: Any) -> Any:
        number = -1
        changed: List[Any] = []
        for value in (*arguments, *named.values()):
            number += isinstance(value, torch.Tensor)
            changed.append(_redistributed(value, mesh, Shard(1), Replicate()) if isinstance(value, torch.Tensor) and number in at else value)
        return tuple(changed[: len(arguments)]), dict(zip(named, changed[len(arguments) :]))
    module.register_forward_pre_hook(hook, with_kwargs=True)


def _spread_sequence(first: nn.Module, last: nn.Module, seen: Seen, mesh: DeviceMesh) -> None:
    """From the first layer to the last one, a rank holds only a part of the sequence."""
    def begin(_: nn.Module, arguments: Any, named: Any) -> Any:
        def part(x: torch.Tensor) -> torch.Tensor:
            return _redistributed(x, mesh, Replicate(), Shard(1))
        return (tuple(part(value) if place == seen.place else value for place, value in enumerate(arguments)),
                {key: part(value) if key == seen.place else value for key, value in named.items()})

    def end(_: nn.Module, __: Any, result: Any) -> Any:
        x = _redistributed(tensor_of(result), mesh, Shard(1), Replicate())
        return x if isinstance(result, torch.Tensor) else (x, *result[1:])
    first.register_forward_pre_hook(begin, with_kwargs=True)
    last.register_forward_hook(end)


class _Split:
    """The tensor placements of a stage's modules."""

    def __init__(self, model: nn.Module, seen: Seen, mesh: DeviceMesh, sequence: bool):
        self.model, self.seen, self.mesh, self.sequence = model, seen, mesh, sequence
        self.styles: Dict[str, Any] = {}

    def products(self, number: int) -> None:
        for pair in _pairs(self.seen.products[number], self.seen.layers, self.mesh.size()):
            self.styles.update({one.path: ColwiseParallel() for one in pair.columns})
            self.styles[pair.rows.path] = RowwiseParallel(output_layouts=Shard(1) if self.sequence else Replicate())
            if self.sequence:
                given = self.seen.blocks.get(pair.block, [])
                places = [place for place, one in enumerate(given) if one == storage(pair.columns[0].given)]
                if not places:
                    raise wrong("model", f"{pair.columns[0].path}, whose input is made within its block", "an input that its block is given",
                                "plan with sp=False")
                _gather_input(self.model.get_submodule(pair.block), places, self.mesh)

    def norms(self, number: int) -> None:
        for path, shape in self.seen.norms.items():
            if not path.startswith(f"{self.seen.layers}.{number}."):
                continue
            at_heads = [axis for axis, size in enumerate(shape[1:-1], 1) if size != TOKENS]
            if len(shape) == len(self.seen.hidden) + 1 and len(at_heads) == 1:  # per head: ranks have parts of its gradient
                self.styles[path] = SequenceParallel(sequence_dim=at_heads[0], use_local_output=True)
            elif self.sequence and shape == self.seen.hidden:
                self.styles[path] = SequenceParallel(use_local_output=True)

    def others(self, number: int, parts: List[str]) -> None:
        """Weights of which a rank has a part of the gradient: those between columns and rows, and the layer's other weights if the layer
        has a part of the sequence."""
        layer = self.model.get_submodule(f"{self.seen.layers}.{number}")
        owners: Dict[str, List[str]] = {}
        for name, _ in layer.named_parameters():
            path, _, last = name.rpartition(".")
            if f"{self.seen.layers}.{number}.{path}" in self.styles:
                continue
            if name in parts or self.sequence and path == "":
                owners.setdefault(path, []).append(last)
            elif self.sequence:
                raise wrong("model", f"{self.seen.layers}.{number}.{name} in a block that has the whole sequence", "weights of products and norms", "plan with sp=False")
        for path, names in owners.items():
            _sum_gradients(layer.get_submodule(path), names, self.mesh.get_group())


def split_over_tensor_ranks(model: nn.Module, seen: Seen, kept: List[int], parts: List[List[str]], mesh: DeviceMesh, sequence: bool) -> None:
    """`parts`: for each layer, the weights between columns and rows."""
    split = _Split(model, seen, mesh, sequence)
    for number in kept:
        split.products(number)
        split.norms(number)
        split.others(number, parts[number])
    for path in seen.token_embeddings:
        if isinstance(model.get_submodule(path), nn.Embedding):  # else it belongs to another stage
            split.styles[path] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate())
    heads = [path for path in seen.after if isinstance(model.get_submodule(path), nn.Linear)]
    split.styles.update({path: ColwiseParallel(output_layouts=Replicate()) for path in heads})
    parallelize_module(model, mesh, split.styles)
    if sequence and kept:
        layers = model.get_submodule(seen.layers)
        _spread_sequence(layers[kept[0]], layers[kept[-1]], seen, mesh)
