# SPDX-License-Identifier: Apache-2.0
"""The stages of a pipeline. Each is the model with its own layers only. An empty layer before them returns the stage's input, and an empty
layer after them takes their output. So modules before the layers and after the head do not run twice. Weights keep their names."""

from __future__ import annotations

import copy
from typing import Any, Callable, Dict, List

import torch
import torch.nn as nn
from torch.utils import _pytree as pytree

from .._door import wrong
from ._look import TOKENS, Seen, Weights, at, tensor_of, undisturbed


class _Reached(Exception):
    """Raised with the hidden state after the stage's last layer."""

    def __init__(self, hidden: torch.Tensor):
        super().__init__()
        self.hidden = hidden


class Stage(nn.Module):
    """Maps tokens, or the previous stage's hidden state, to the hidden state after its layers, or to logits. Each stage gets the tokens, of
    which models make masks."""

    def __init__(self, model: nn.Module, received: List[torch.Tensor], is_first: bool):
        super().__init__()
        self.model = model
        self.received, self.is_first = received, is_first

    def forward(self, x: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        if not self.is_first:
            self.received[:] = [x]
        try:
            made = tensor_of(self.model(tokens))
        except _Reached as reached:
            made = reached.hidden
        self.received.clear()
        return made.clone() if made._is_view() else made  # a split backward detaches it in place, which views forbid


class Zeros(nn.Module):
    """Replaces a module that only the first stage uses. Returns zeros in the shape of its result, because nothing reads them."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.like = [_on_meta(module)]  # in a list, so that its weights do not become the stage's
        self.kind = next(p.dtype for p in module.parameters(recurse=False))

    def forward(self, *arguments: Any, **named: Any) -> Any:
        device = next(value.device for value in pytree.tree_leaves((arguments, named)) if isinstance(value, torch.Tensor))
        arguments, named = pytree.tree_map(lambda value: value.to("meta") if isinstance(value, torch.Tensor) else value, (arguments, named))
        with torch.no_grad():
            made = self.like[0](*arguments, **named)
        return pytree.tree_map(lambda value: torch.zeros_like(value, device=device, dtype=self.kind if value.is_floating_point() else value.dtype)
                               if isinstance(value, torch.Tensor) else value, made)


class _Elsewhere(nn.Module):
    """Replaces a module that only the last stage runs."""


def _copied(module: nn.Module) -> nn.Module:
    """A copy with separate hooks, and without children."""
    new = copy.copy(module)
    new.__dict__.update({key: copy.copy(module.__dict__[key]) for key in nn.Module().__dict__}, _modules={})
    return new


def _on_meta(module: nn.Module) -> nn.Module:
    new = _copied(module)
    for name, parameter in module._parameters.items():
        new._parameters[name] = None if parameter is None else nn.Parameter(torch.empty_like(parameter, device="meta"), False)
    new._buffers.update({name: None if b is None else torch.empty_like(b, device="meta") for name, b in module._buffers.items()})
    new._modules.update({name: None if child is None else _on_meta(child) for name, child in module._modules.items()})
    return new


def _clone(module: nn.Module, replaced: Dict[int, nn.Module]) -> nn.Module:
    """A separate tree of modules with the same parameters."""
    if id(module) not in replaced:
        new = replaced[id(module)] = _copied(module)
        new._modules.update({name: None if child is None else _clone(child, replaced) for name, child in module._modules.items()})
    return replaced[id(module)]


def _empty_layer(layer: nn.Module, seen: Seen, made: Any, act: Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:
    """Replaces a layer of another stage, with its attributes. `made`: the layer's output."""
    new = copy.copy(layer)
    new.__dict__.update(nn.Module().__dict__, training=layer.training)

    def forward(*arguments: Any, **named: Any) -> Any:
        hidden = act(at(seen.place, arguments, named))
        return hidden if isinstance(made, torch.Tensor) else type(made)((hidden, *[None] * (len(made) - 1)))
    new.forward = forward  # type: ignore[method-assign]
    return new


def _leave(hidden: torch.Tensor) -> torch.Tensor:
    raise _Reached(hidden)


def check_stages(model: nn.Module, seen: Seen, weights: Weights, counts: List[int]) -> None:
    """Refuses models with parts that a stage alone cannot have."""
    one = "plan with pp=1"
    shared = sorted(set(weights.before) & set(weights.behind))
    if shared:
        raise wrong("model", f"{shared[0]}, which what stands before the layers and what stands behind them share, on two stages", "a weight of each",
                    f"their gradients would have to be summed over stages: {one}")
    if weights.within:
        raise wrong("model", f"{weights.within[0]}, which layers use and which is not theirs, on several stages", "weights of layers in the layers", one)
    if weights.beside:
        raise wrong("model", f"a result beside the logits, {', '.join(weights.beside)}, that layers of several stages make",
                    "a loss of logits, which alone come to the last stage", f"{one}; or without it, of transformers output_router_logits=False")
    if counts[-1] == 0:
        raise wrong("plan", "a last stage without layers", "a layer in it", "plan with another layout of stages")
    for number in (sum(counts[:stage]) for stage in range(1, len(counts))):
        if number in seen.apart:
            raise wrong("model", f"{seen.layers}.{number}, which is not given what {seen.layers}.{number - 1} made",
                        "no arithmetic between layers where stages part", one)
    if seen.hidden[:2] != (1, TOKENS) or not all(isinstance(made, (torch.Tensor, tuple, list)) for made in seen.made):
        raise wrong("model", f"layers that make {seen.hidden} of {TOKENS} tokens", "a tensor [sequences, tokens, width], or a tuple that begins with it", one)


def _without(model: nn.Module, names: List[str], replace: Callable[[nn.Module], nn.Module], ancestors: List[str], replaced: Dict[int, nn.Module]) -> List[str]:
    """Replaces the modules that hold weights of these names. Returns the names of weights held by modules that contain the layers."""
    left = []
    for name in names:
        path = name.rpartition(".")[0]
        module = model.get_submodule(path)
        if path in ancestors:
            left.append(name)
        elif id(module) not in replaced:
            replaced[id(module)] = replace(module)
    return left


def stage_of(model: nn.Module, seen: Seen, weights: Weights, counts: List[int], stage: int) -> nn.Module:
    """The module of a stage. One stage is the model."""
    first = sum(counts[:stage])
    kept = list(range(first, first + counts[stage]))
    if len(counts) == 1:
        return model
    layers = model.get_submodule(seen.layers)
    names = [name for name, _ in model.named_parameters() if not name.startswith(seen.layers + ".")]
    words = seen.layers.split(".")
    ancestors = [".".join(words[:count]) for count in range(len(words))]
    replaced: Dict[int, nn.Module] = {}
    zeros = _without(model, [name for name in names if name not in weights.behind], Zeros, ancestors, replaced) if stage > 0 else []
    gone = _without(model, weights.behind, lambda _: _Elsewhere(), ancestors, replaced) if stage < len(counts) - 1 else []
    received: List[torch.Tensor] = []
    for number, layer in enumerate(layers):
        if number not in kept:
            act = (lambda _: received[0]) if number == first - 1 else _leave if number == first + counts[stage] else (lambda hidden: hidden)
            replaced[id(layer)] = _empty_layer(layer, seen, seen.made[number], act)
    part = _clone(model, replaced)
    for name in [*zeros, *gone]:
        path, _, last = name.rpartition(".")
        owner = part.get_submodule(path)
        parameter = owner._parameters.pop(last)
        owner.register_buffer(last, torch.zeros_like(parameter, requires_grad=False), persistent=False)
    return Stage(part, received, stage == 0)


def check_stage(part: nn.Module, seen: Seen, counts: List[int], stage: int) -> None:
    """Checks that a stage with the input of its first layer in the model gives the model's output at that point."""
    first, end = sum(counts[:stage]), sum(counts[: stage + 1])
    given = seen.tokens if stage == 0 else at(seen.place, *seen.given[first])
    wanted = tensor_of(seen.result) if stage == len(counts) - 1 else at(seen.place, *seen.given[end])
    try:
        with torch.no_grad(), undisturbed(part, training=False):
            made = part(given, seen.tokens)
    except Exception as error:
        raise wrong("model", f"stage {stage} alone, which stops: {type(error).__name__}: {error}", "a model whose stages run alone", "plan with pp=1") from error
    if made.shape != wanted.shape or not made.is_meta and (made - wanted).norm() > 1e-4 * wanted.norm():
        raise wrong("model", f"stage {stage} alone, which makes something else than the model does there",
                    "layers that need no more of what stands before them than the hidden state", "plan with pp=1")
