# SPDX-License-Identifier: Apache-2.0
"""The structure of a model, found by a run of a few tokens: its layers, products, attention cores, embeddings and head."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from .._door import wrong

TOKENS = 7  # of the run that finds the structure: a length that no head count or width is likely to have


@dataclasses.dataclass
class Product:
    """A matrix that every token passes, with its input."""

    path: str
    module: nn.Linear
    given: torch.Tensor


@dataclasses.dataclass
class Seen:
    """The results of the run of a few tokens."""

    layers: str  # name of the list of decoder layers
    tokens: torch.Tensor
    products: List[List[Product]]  # of each layer, in order
    given: List[Tuple[Any, Any]]  # to each layer: arguments and named ones
    made: List[Any]  # by each layer
    cores: List[List[Tuple[List[torch.Tensor], Dict[str, Any]]]]  # of each layer: queries, keys, values, and options of attention
    token_embeddings: List[str] = dataclasses.field(default_factory=list)
    after: List[str] = dataclasses.field(default_factory=list)  # modules with weights that run after the last layer
    blocks: Dict[str, List[Any]] = dataclasses.field(default_factory=dict)  # storages of the inputs of each child of a layer
    norms: Dict[str, Tuple[int, ...]] = dataclasses.field(default_factory=dict)  # shapes of the inputs of a layer's other modules with weights
    hidden: Tuple[int, ...] = ()  # of a layer's output
    result: Any = None  # of the model
    place: Union[int, str] = 0  # the hidden state's position or name among a layer's inputs
    apart: List[int] = dataclasses.field(default_factory=list)  # layers that do not get the previous layer's output


class Attending(TorchFunctionMode):
    """Replaces F.scaled_dot_product_attention by another function. The mode is off inside that function."""

    def __init__(self, attend: Callable[..., torch.Tensor]):
        super().__init__()
        self.attend = attend

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        named = named or {}
        if function is not F.scaled_dot_product_attention:
            return function(*arguments, **named)
        options = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), arguments), **named)
        return self.attend(options.pop("query"), options.pop("key"), options.pop("value"), **options)


def attend_by(layer: nn.Module, attend: Callable[..., torch.Tensor]) -> None:
    forward = layer.forward

    def attending(*arguments: Any, **named: Any) -> Any:
        with Attending(attend):
            return forward(*arguments, **named)
    layer.forward = attending  # type: ignore[method-assign]


def storage(tensor: torch.Tensor) -> Any:
    return tensor.untyped_storage()._cdata


def tensor_of(result: Any) -> torch.Tensor:
    """The first tensor of a model's or a layer's result."""
    if isinstance(result, torch.Tensor):
        return result
    if getattr(result, "logits", None) is not None:
        return result.logits
    return tensor_of(next(iter(result.values())) if isinstance(result, dict) else result[0])


def at(place: Union[int, str], arguments: Any, named: Any) -> torch.Tensor:
    """The hidden state among a layer's inputs."""
    return arguments[place] if isinstance(place, int) else named[place]


@contextlib.contextmanager
def undisturbed(model: nn.Module, training: Optional[bool] = None) -> Iterator[None]:
    """Inside, all modules train or none does, or each keeps its mode. Afterwards modes, buffers and random numbers are restored."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        try:
            if training is not None:
                model.train(training)
            yield
        finally:
            for module, mode in modes:
                module.training = mode
            with torch.no_grad():
                for buffer, was in buffers:
                    buffer.copy_(was)


def layer_list(model: nn.Module) -> Tuple[str, nn.ModuleList]:
    lists = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.ModuleList) and len(module) > 0]
    lists = [one for one in lists if not any(one[0].startswith(other + ".") for other, _ in lists if other != one[0])]
    if not lists:
        raise wrong("model", "no nn.ModuleList", "a model that keeps its decoder layers in one")
    return max(lists, key=lambda one: sum(p.numel() for p in one[1].parameters()))


def some_tokens(model: nn.Module, sequences: int, length: int, seed: int = 1) -> torch.Tensor:
    """Tokens that every token embedding has, except padding, which has a zero vector. Tokens of a sequence differ if there are enough."""
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding) and module.num_embeddings > 2 * TOKENS]
    known = min((table.num_embeddings for table in tables), default=TOKENS)
    padding = {table.padding_idx for table in tables}
    usable = torch.tensor([token for token in range(min(known, 4096)) if token not in padding])
    draw = torch.Generator().manual_seed(seed)
    rows = [torch.cat([torch.randperm(len(usable), generator=draw) for _ in range(-(-length // len(usable)))])[:length] for _ in range(sequences)]
    return usable[torch.stack(rows)]


class _Watch:
    """Hooks that note inputs and outputs in `seen`."""

    def __init__(self, seen: Seen, layers: nn.ModuleList):
        self.seen, self.layers = seen, layers
        self.behind = False
        self.layer_now: List[int] = []
        self.kept: List[torch.Tensor] = []  # keeps tensors alive, so that no storage is reused

    def core(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
        if self.layer_now:
            self.seen.cores[self.layer_now[-1]].append(([q, k, v], options))
        return F.scaled_dot_product_attention(q, k, v, **options)

    def enter(self, number: int) -> Callable[..., None]:
        def hook(_: nn.Module, arguments: Any, named: Any) -> None:
            self.layer_now[:] = [number]
            self.seen.given[number] = (arguments, named)
        return hook

    def leave(self, number: int) -> Callable[..., None]:
        def hook(_: nn.Module, __: Any, result: Any) -> None:
            self.seen.made[number] = result
            self.behind = number == len(self.layers) - 1
            self.seen.hidden = tuple(tensor_of(result).shape)
        return hook

    def module(self, path: str) -> Callable[..., None]:
        seen, name = self.seen, self.seen.layers
        inside = path.startswith(name + ".")

        def hook(module: nn.Module, arguments: Any, named: Any, result: Any) -> None:
            given = [value for value in (*arguments, *named.values()) if isinstance(value, torch.Tensor)]
            self.kept.extend(given)
            if inside and path.count(".") == name.count(".") + 2:
                seen.blocks[path] = [storage(value) for value in given]
            if not any(True for _ in module.parameters(recurse=False)) or not given:
                return
            if isinstance(module, nn.Embedding) and not inside:
                if storage(given[0]) == storage(seen.tokens):
                    seen.token_embeddings.append(path)
            elif inside and isinstance(module, nn.Linear):
                seen.products[int(path[len(name) + 1 :].split(".")[0])].append(Product(path, module, given[0]))
            elif inside and not any(True for _ in module.children()):
                seen.norms[path] = tuple(given[0].shape)
            elif self.behind:
                seen.after.append(path)
        return hook


def look(model: nn.Module) -> Seen:
    name, layers = layer_list(model)
    if len(set(layers)) < len(layers):
        raise wrong("model", f"a layer that stands twice in {name}", "layers of their own", "a copy of the layer for each place, if weights may differ")
    seen = Seen(name, some_tokens(model, 1, TOKENS).to(next(model.parameters()).device), [[] for _ in layers], [((), {}) for _ in layers],
                [None for _ in layers], [[] for _ in layers])
    watch = _Watch(seen, layers)
    handles = [module.register_forward_hook(watch.module(path), with_kwargs=True) for path, module in model.named_modules()]
    for number, layer in enumerate(layers):
        handles.append(layer.register_forward_pre_hook(watch.enter(number), with_kwargs=True))
        handles.append(layer.register_forward_hook(watch.leave(number)))
    try:
        with torch.no_grad(), undisturbed(model, training=False), Attending(watch.core):
            seen.result = model(seen.tokens)
    except (TypeError, ValueError) as error:
        raise wrong("model", f"a run of tokens alone, which stops: {error}", "a model that maps tokens to logits",
                    "wrap it in a module whose forward(tokens) makes the other arguments") from error
    finally:
        for handle in handles:
            handle.remove()
    _follow_hidden(seen)
    return seen


def _same(one: Any, other: torch.Tensor) -> bool:
    return isinstance(one, torch.Tensor) and (one is other or not one.is_meta and one.data_ptr() == other.data_ptr() and one.shape == other.shape)


def _follow_hidden(seen: Seen) -> None:
    """Finds the layer argument that is the hidden state: the previous layer's output."""
    missing = [number for number, made in enumerate(seen.made) if made is None]
    if missing:
        raise wrong("model", f"{seen.layers}.{missing[0]}, which a run of {TOKENS} tokens does not call", "a run that calls every layer")
    places: List[Any] = []
    for made, (arguments, named) in zip(seen.made, seen.given[1:]):
        found = [place for place, value in (*enumerate(arguments), *named.items()) if _same(value, tensor_of(made))]
        places.append(found[0] if found else None)
    arguments, named = seen.given[0]
    first = [place for place, value in (*enumerate(arguments), *named.items()) if isinstance(value, torch.Tensor) and value.is_floating_point()]
    known = [place for place in places if place is not None] or first[:1]
    if not known:
        raise wrong("model", f"{seen.layers}.0, which is given no hidden state", "layers that are given one")
    seen.place = known[0]
    seen.apart = [number for number, place in enumerate(places, 1) if place != seen.place]


@dataclasses.dataclass
class Weights:
    """The places in a run that use weights outside the layers, and other findings of a run in training. Weights are given by name."""

    before: List[str]  # used to make the first layer's hidden state
    behind: List[str]  # used to make the result from the last layer's output
    within: List[str]  # used by a layer, but not its own
    beside: List[str]  # further results that have a gradient
    draws: bool  # whether random numbers are drawn


def reached(tensors: List[torch.Tensor]) -> Dict[int, torch.Tensor]:
    """The tensors to which the gradient of `tensors` flows, by id."""
    found = {id(tensor): tensor for tensor in tensors if tensor.grad_fn is None and tensor.requires_grad}
    left, visited = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None], set()
    while left:
        node = left.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found[id(variable)] = variable
        left.extend(function for function, _ in node.next_functions)
    return found


def _tensors(values: Any) -> List[torch.Tensor]:
    return [value for value in pytree.tree_leaves(values) if isinstance(value, torch.Tensor)]


def _cut(hidden: torch.Tensor) -> torch.Tensor:
    """The same value, at the start of a new graph."""
    return hidden.detach().requires_grad_().clone()


def _random_state(device: torch.device) -> List[torch.Tensor]:
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


class _Graph:
    """Hooks that cut the graph before each layer and after the last one, and note the weights that each piece uses."""

    def __init__(self, model: nn.Module, seen: Seen):
        self.seen, self.layers = seen, model.get_submodule(seen.layers)
        self.names = {id(parameter): name for name, parameter in model.named_parameters()}
        self.own = [{id(parameter) for parameter in layer.parameters()} for layer in self.layers]
        self.before: List[str] = []
        self.within: List[str] = []

    def named(self, tensors: List[torch.Tensor], without: Any = ()) -> List[str]:
        return [self.names[one] for one in reached(tensors) if one in self.names and one not in without]

    def enter(self, number: int) -> Callable[..., Any]:
        def hook(_: nn.Module, arguments: Any, named: Any) -> Any:
            hidden = at(self.seen.place, arguments, named)
            if number == 0:
                self.before = self.named([hidden])
            else:
                self.within += self.named([hidden], self.own[number - 1])
            self.within += self.named([value for value in _tensors((arguments, named)) if value is not hidden])
            put = {self.seen.place: _cut(hidden)}
            return tuple(put.get(place, value) for place, value in enumerate(arguments)), {**named, **{key: put[key] for key in named if key in put}}
        return hook

    def leave(self, number: int) -> Callable[..., Any]:
        def hook(_: nn.Module, __: Any, ___: Any, result: Any) -> Any:
            self.within += self.named(_tensors(result), self.own[number])
            if number < len(self.layers) - 1:
                return None
            whole = tensor_of(result)
            return pytree.tree_map(lambda value: _cut(value) if value is whole else value, result)
        return hook


def look_at_weights(model: nn.Module, seen: Seen) -> Weights:
    graph = _Graph(model, seen)
    handles = []
    for number, layer in enumerate(graph.layers):
        handles.append(layer.register_forward_pre_hook(graph.enter(number), with_kwargs=True))
        handles.append(layer.register_forward_hook(graph.leave(number), with_kwargs=True))
    frozen = [parameter for parameter in model.parameters() if parameter.is_floating_point() and not parameter.requires_grad]
    try:
        for parameter in frozen:
            parameter.requires_grad_(True)
        with torch.enable_grad(), undisturbed(model, training=True):
            before = _random_state(seen.tokens.device)
            result = model(seen.tokens)
            drawn = any(not torch.equal(*states) for states in zip(before, _random_state(seen.tokens.device)))
        first = tensor_of(result)
        named = list(result.items()) if isinstance(result, dict) else [(str(place), value) for place, value in enumerate(result)] if isinstance(result, tuple) else []
        beside = [key for key, value in named if any(one is not first and one.requires_grad for one in _tensors(value))]
        return Weights(graph.before, graph.named([first]), sorted(set(graph.within)), beside, drawn or seen.tokens.is_meta)
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)
        for handle in handles:
            handle.remove()
