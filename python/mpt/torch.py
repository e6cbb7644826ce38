# SPDX-License-Identifier: Apache-2.0
"""A plan applied to your own PyTorch model: device mesh, FSDP2, tensor placements, context ranks, stages and schedule, recompute.

    parallel = mpt.torch.parallelize(model, plan)               # in each process of torchrun
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-4)
    for tokens, targets in batches:                             # sequences of parallel.replica in a step
        loss = parallel.step(tokens, targets, loss_of)          # loss_of(logits, targets): a mean
        optimizer.step(); optimizer.zero_grad()

The model maps tokens to logits, and keeps its decoder layers in one nn.ModuleList. Which products are split by columns and
which by rows is read from a run of a few tokens: products of one input are columns, and the product behind them is rows.
Context ranks and selective recompute take the place of the layers' scaled_dot_product_attention.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import os
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleDualPipeV, ScheduleGPipe, ScheduleInterleaved1F1B, ScheduleZBVZeroBubble
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.nn.attention.bias import causal_lower_right
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from ._door import wrong

SCHEDULES: Dict[str, Any] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B,
                             "zb-v": ScheduleZBVZeroBubble, "dualpipe-v": ScheduleDualPipeV}
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_TOKENS = 7  # of the run that shows the structure: a length that no head count or width is likely to have


@dataclasses.dataclass
class _Seen:
    """What the run of a few tokens shows."""

    layers: str  # name of the list of decoder layers
    token_embeddings: List[str]
    other_embeddings: List[str]  # of positions and the like, which are added
    after: List[str]  # modules with weights that run after the last layer
    products: List[List[Tuple[str, nn.Linear, Any]]]  # of each layer, in order, with the storage of their input
    blocks: Dict[str, List[Any]]  # storages of the inputs of each child of a layer
    norms: Dict[str, Tuple[int, ...]]  # shapes of the inputs of a layer's other modules with weights
    hidden: Tuple[int, ...]  # of a layer's output
    given: List[Tuple[Any, Any]]  # to each layer: arguments and named ones
    cores: List[List[Tuple[List[torch.Tensor], Dict[str, Any]]]]  # of each layer: queries, keys, values, and options of attention


class _Attending(TorchFunctionMode):
    """Another function in the place of F.scaled_dot_product_attention. Inside of it the mode is off."""

    def __init__(self, attend: Callable[..., torch.Tensor]):
        super().__init__()
        self.attend = attend

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        named = named or {}
        if function is not F.scaled_dot_product_attention:
            return function(*arguments, **named)
        options = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), arguments), **named)
        return self.attend(options.pop("query"), options.pop("key"), options.pop("value"), **options)


def _attend_by(layer: nn.Module, attend: Callable[..., torch.Tensor]) -> None:
    forward = layer.forward

    def attending(*arguments: Any, **named: Any) -> Any:
        with _Attending(attend):
            return forward(*arguments, **named)
    layer.forward = attending  # type: ignore[method-assign]


def _storage(tensor: torch.Tensor) -> Any:
    return tensor.untyped_storage()._cdata


def _layer_list(model: nn.Module) -> Tuple[str, nn.ModuleList]:
    lists = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.ModuleList) and len(module) > 0]
    lists = [one for one in lists if not any(one[0].startswith(other + ".") for other, _ in lists if other != one[0])]
    if not lists:
        raise wrong("model", "no nn.ModuleList", "a model that keeps its decoder layers in one")
    return max(lists, key=lambda one: sum(p.numel() for p in one[1].parameters()))


def _look(model: nn.Module) -> _Seen:
    name, layers = _layer_list(model)
    seen = _Seen(name, [], [], [], [[] for _ in layers], {}, {}, (), [((), {}) for _ in layers], [[] for _ in layers])
    kept: List[torch.Tensor] = []  # so that no storage is used again
    device = next(model.parameters()).device
    tokens = torch.zeros(1, _TOKENS, dtype=torch.int64, device=device)
    state = {"behind": False}
    layer_now: List[int] = []
    handles = []

    def note_core(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
        if layer_now:
            seen.cores[layer_now[-1]].append(([q, k, v], options))
        return F.scaled_dot_product_attention(q, k, v, **options)

    def enter(number: int) -> Callable[..., None]:
        def hook(_: nn.Module, arguments: Any, named: Any) -> None:
            layer_now[:] = [number]
            seen.given[number] = (arguments, named)
        return hook

    def watch(path: str, module: nn.Module) -> None:
        def hook(_: nn.Module, arguments: Any, named: Any, result: Any) -> None:
            given = [value for value in (*arguments, *named.values()) if isinstance(value, torch.Tensor)]
            kept.extend(given)
            inside = path.startswith(name + ".")
            if inside and path.count(".") == name.count(".") + 2:
                seen.blocks[path] = [_storage(value) for value in given]
            if not any(True for _ in module.parameters(recurse=False)) or not given:
                return
            if isinstance(module, nn.Embedding):
                (seen.token_embeddings if _storage(given[0]) == _storage(tokens) else seen.other_embeddings).append(path)
            elif inside and isinstance(module, nn.Linear):
                seen.products[int(path[len(name) + 1 :].split(".")[0])].append((path, module, _storage(given[0])))
            elif inside:
                seen.norms[path] = tuple(given[0].shape)
            elif state["behind"]:
                seen.after.append(path)
        handles.append(module.register_forward_hook(hook, with_kwargs=True))

    def ended(_: nn.Module, __: Any, result: Any) -> None:
        state["behind"] = True
        seen.hidden = tuple(_tensor(result).shape)
    for path, module in model.named_modules():
        watch(path, module)
    for number, layer in enumerate(layers):
        handles.append(layer.register_forward_pre_hook(enter(number), with_kwargs=True))
    handles.append(layers[-1].register_forward_hook(ended))
    training = model.training
    try:
        with torch.no_grad(), _Attending(note_core):
            model.eval()(tokens)
    finally:
        model.train(training)
        for handle in handles:
            handle.remove()
    return seen


def _tensor(result: Any) -> torch.Tensor:
    """The first tensor of what a model or a layer returns."""
    if isinstance(result, torch.Tensor):
        return result
    if getattr(result, "logits", None) is not None:
        return result.logits
    return _tensor(next(iter(result.values())) if isinstance(result, dict) else result[0])


@dataclasses.dataclass
class _Pair:
    """Products of one input, and the one behind them."""

    block: str  # the child of the layer that holds them
    columns: List[str]
    rows: str


def _pairs(products: List[Tuple[str, nn.Linear, Any]], layers: str, tensor: int) -> List[_Pair]:
    pairs: List[_Pair] = []
    left = list(products)
    while left:
        group = [left.pop(0)]
        while left and left[0][2] == group[0][2]:
            group.append(left.pop(0))
        behind = left.pop(0) if left else None
        first = group[0][1]
        if behind is None or behind[1].out_features != first.in_features or behind[1].in_features not in {one.out_features for _, one, _ in group}:
            wide = f"{group[0][0]} of {first.in_features} to {first.out_features}" + ("" if behind is None else
                                                                                      f", then {behind[0]} of {behind[1].in_features} to {behind[1].out_features}")
            raise wrong("model", wide, "products of one input whose width the next product takes back to the model's",
                        "one matrix for queries, keys and values, and routed experts, are not split: plan with tp=1")
        for path, module, _ in [*group, behind]:
            if (module.in_features if module is behind[1] else module.out_features) % tensor:
                raise wrong("plan", f"tensor degree {tensor} for {path} of {module.in_features} to {module.out_features}", "a divisor")
        block = ".".join(behind[0].split(".")[: layers.count(".") + 3])
        pairs.append(_Pair(block, [path for path, _, _ in group], behind[0]))
    return pairs


def _gather_input(module: nn.Module, at: List[int], mesh: DeviceMesh) -> None:
    """Those of a module's tensors, counted over positions and then names, come in parts of the sequence and are made whole."""
    def whole(value: torch.Tensor) -> torch.Tensor:
        return DTensor.from_local(value, mesh, [Shard(1)], run_check=False).redistribute(placements=[Replicate()]).to_local()

    def hook(_: nn.Module, arguments: Any, named: Any) -> Any:
        number = -1
        changed: List[Any] = []
        for value in (*arguments, *named.values()):
            number += isinstance(value, torch.Tensor)
            changed.append(whole(value) if isinstance(value, torch.Tensor) and number in at else value)
        return tuple(changed[: len(arguments)]), dict(zip(named, changed[len(arguments) :]))
    module.register_forward_pre_hook(hook, with_kwargs=True)


def _spread_sequence(first: nn.Module, last: nn.Module, mesh: DeviceMesh) -> None:
    """From the first layer to the last one a rank holds a part of the sequence."""
    def begin(_: nn.Module, arguments: Any) -> Any:
        x = DTensor.from_local(arguments[0], mesh, [Replicate()], run_check=False).redistribute(placements=[Shard(1)])
        return (x.to_local(), *arguments[1:])

    def end(_: nn.Module, __: Any, result: Any) -> Any:
        x = DTensor.from_local(_tensor(result), mesh, [Shard(1)], run_check=False).redistribute(placements=[Replicate()]).to_local()
        return x if isinstance(result, torch.Tensor) else (x, *result[1:])
    first.register_forward_pre_hook(begin)
    last.register_forward_hook(end)


def _split_over_tensor_ranks(model: nn.Module, seen: _Seen, kept: List[int], mesh: DeviceMesh, sequence: bool) -> None:
    styles: Dict[str, Any] = {}
    numbered = {number: str(place) for place, number in enumerate(kept)}

    def here(path: str) -> Optional[str]:
        """The path in this stage, whose layers are counted anew."""
        number, _, rest = path[len(seen.layers) + 1 :].partition(".")
        return f"{seen.layers}.{numbered[int(number)]}.{rest}" if int(number) in numbered else None
    for number in kept:
        products = seen.products[number]
        inputs = {path: storage for path, _, storage in products}
        layer = f"{seen.layers}.{numbered[number]}"
        for name, parameter in model.get_submodule(layer).named_parameters():
            if parameter.ndim > 1 and f"{seen.layers}.{number}.{name.rpartition('.')[0]}" not in inputs:
                raise wrong("model", f"{layer}.{name} outside of an nn.Linear that every token passes", "matrices in nn.Linear", "plan with tp=1")
        for pair in _pairs(products, seen.layers, mesh.size()):
            styles.update({here(path): ColwiseParallel() for path in pair.columns})
            styles[here(pair.rows)] = RowwiseParallel(output_layouts=Shard(1) if sequence else Replicate())
            if sequence:
                given = seen.blocks.get(pair.block, [])
                at = [place for place, storage in enumerate(given) if storage == inputs[pair.columns[0]]]
                if not at:
                    raise wrong("model", f"{pair.columns[0]}, whose input is made within its block", "an input that its block is given",
                                "plan with sp=False")
                _gather_input(model.get_submodule(here(pair.block) or ""), at, mesh)
    for path, shape in seen.norms.items():
        at_heads = [axis for axis, size in enumerate(shape[1:-1], 1) if size != _TOKENS]
        if here(path) is None:
            continue
        if len(shape) == len(seen.hidden) + 1 and len(at_heads) == 1:  # of each head: ranks have parts of its gradient
            styles[here(path)] = SequenceParallel(sequence_dim=at_heads[0], use_local_output=True)
        elif sequence and shape == seen.hidden:
            styles[here(path)] = SequenceParallel(use_local_output=True)
    for path in seen.token_embeddings:
        if isinstance(model.get_submodule(path), nn.Embedding):  # else it is another stage's
            styles[path] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate())
    heads = [path for path in seen.after if isinstance(model.get_submodule(path), nn.Linear)]
    styles.update({path: ColwiseParallel(output_layouts=Replicate()) for path in heads})
    present = {path for path, _ in model.named_modules()}
    parallelize_module(model, mesh, {path: style for path, style in styles.items() if path in present})
    layers = model.get_submodule(seen.layers)
    if sequence and len(layers) > 0:
        _spread_sequence(layers[0], layers[-1], mesh)


class _Passed(nn.Module):
    """In the place of a module of another stage: what came in goes on."""

    def forward(self, x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        return x


class _Nothing(nn.Module):
    """In the place of embeddings that another stage has added."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        return torch.zeros(*x.shape, self.width, device=x.device)


class _Stage(nn.Module):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _tensor(self.model(x))


def _clone(module: nn.Module, replaced: Dict[int, nn.Module]) -> nn.Module:
    """A tree of its own with the same parameters."""
    if id(module) not in replaced:
        new = copy.copy(module)
        new.__dict__.update(_parameters=dict(module._parameters), _buffers=dict(module._buffers), _modules={})
        replaced[id(module)] = new
        new._modules.update({name: None if child is None else _clone(child, replaced) for name, child in module._modules.items()})
    return replaced[id(module)]


def _stage_of(model: nn.Module, seen: _Seen, counts: List[int], stage: int) -> Tuple[nn.Module, List[int]]:
    """The modules of a stage, and the numbers of its layers."""
    first = sum(counts[:stage])
    kept = list(range(first, first + counts[stage]))
    if len(counts) == 1:
        return model, kept
    replaced: Dict[int, nn.Module] = {}
    for path in seen.after if stage < len(counts) - 1 else ():
        replaced[id(model.get_submodule(path))] = _Passed()
    for path in seen.token_embeddings if stage > 0 else ():
        replaced[id(model.get_submodule(path))] = _Passed()
    for path in seen.other_embeddings if stage > 0 else ():
        replaced[id(model.get_submodule(path))] = _Nothing(model.get_submodule(path).embedding_dim)
    layers = model.get_submodule(seen.layers)
    replaced[id(layers)] = nn.ModuleList([_clone(layers[number], replaced) for number in kept])
    return _clone(model, replaced), kept


# Context ranks: from the first layer on each holds a part of the sequence, and its loss is of that part.

def _part_of_sequence(layout: Dict[str, Any], rank: int, length: int) -> torch.Tensor:
    """The tokens of a context rank. In a ring they are two pieces, one from either end: then all ranks have as much to do."""
    ranks = layout["context"]
    pieces = (rank, 2 * ranks - 1 - rank) if layout.get("context_method", "ring") == "ring" else (rank,)
    many = ranks * len(pieces)
    if length % many:
        raise wrong("step", f"sequences of {length} tokens for {ranks} context ranks", f"a multiple of {many}")
    return torch.cat([torch.arange(length // many) + piece * (length // many) for piece in pieces])


def _attend_over_context(layout: Dict[str, Any], mesh: DeviceMesh, core: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Causal attention of [batch, heads, tokens of this rank, size] over the tokens of all context ranks."""
    def by_heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
        parts = [DTensor.from_local(x, mesh, [Shard(2)], run_check=False).redistribute(placements=[Shard(1)]).to_local() for x in (q, k, v)]
        y = DTensor.from_local(core(*parts, **options), mesh, [Shard(1)], run_check=False)
        return y.redistribute(placements=[Shard(2)]).to_local()

    def in_ring(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
        length, piece = q.shape[2] * mesh.size(), q.shape[2] // 2
        order = torch.cat([_part_of_sequence(layout, rank, length) for rank in range(mesh.size())]).argsort().to(q.device)
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
    """Of what a layer is given: the axis that counts tokens, None where none does."""
    return [value.shape.index(_TOKENS) if isinstance(value, torch.Tensor) and _TOKENS in value.shape else None for value in pytree.tree_leaves(given)]


def _taken(given: Tuple[Any, Any], axes: List[Optional[int]], length: int, at: torch.Tensor) -> Tuple[Any, Any]:
    leaves, shape = pytree.tree_flatten(given)
    if len(leaves) != len(axes):
        raise wrong("model", f"{len(leaves)} values for a layer in training, and {len(axes)} before", "the same arguments", "plan with cp=1")
    # What has another length is a part already, as the layer before has given it.
    return pytree.tree_unflatten([value if axis is None or value.shape[axis] != length else value.index_select(axis, at.to(value.device))
                                  for value, axis in zip(leaves, axes)], shape)


def _check_context(model: nn.Module, seen: _Seen, layout: Dict[str, Any]) -> None:
    """Layers given a part of the sequence must make of it that part of the queries, keys and values, whose positions count."""
    if any(parameter.is_meta for parameter in model.parameters()):
        raise wrong("model", "weights on the meta device, for context ranks", "weights with values, by which it is checked that positions are right", "plan with cp=1")
    at = torch.tensor([1, 2, 5])
    training = model.training
    model.eval()
    for number, layer in enumerate(model.get_submodule(seen.layers)):
        where = f"{seen.layers}.{number}"
        for (q, k, _), options in seen.cores[number]:
            if options.get("attn_mask") is not None or not options.get("is_causal"):
                raise wrong("model", f"attention with a mask in {where}", "is_causal=True over all tokens of a sequence, without a mask", "plan with cp=1")
            if layout.get("context_method", "ring") != "ring" and k.shape[1] % (layout["context"] * layout["tensor"]):
                raise wrong("plan", f"{layout['context']} context ranks that exchange heads, and {k.shape[1]} heads of keys in {where}", "a divisor",
                            'plan with cp_method="ring"')
        found: List[List[torch.Tensor]] = []

        def note(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
            found.append([q, k, v])
            return F.scaled_dot_product_attention(q, k, v, **options)
        with torch.no_grad(), _Attending(note):
            arguments, named = _taken(seen.given[number], _axes_of_tokens(seen.given[number]), _TOKENS, at.to(next(model.parameters()).device))
            layer(*arguments, **named)
        for (whole, _), part in zip(seen.cores[number], found):
            for one, other in zip(whole, part):
                wanted = one.index_select(2, at.to(one.device)).float()
                if (wanted - other.float()).norm() > 0.05 * wanted.norm():
                    raise wrong("model", f"positions that {where} counts itself, from the start of what it is given",
                                "positions, or what is made of them, that the layer is given", "plan with cp=1")
    model.train(training)


def _split_over_context(layers: nn.ModuleList, seen: _Seen, layout: Dict[str, Any], mesh: DeviceMesh, length: Callable[[], int]) -> None:
    def hook(number: int) -> Callable[..., Any]:
        axes = _axes_of_tokens(seen.given[number])

        def take(_: nn.Module, arguments: Any, named: Any) -> Any:
            return _taken((arguments, named), axes, length(), _part_of_sequence(layout, mesh.get_local_rank(), length()))
        return take
    for number, layer in enumerate(layers):
        layer.register_forward_pre_hook(hook(number), with_kwargs=True, prepend=True)  # before tensor ranks take their parts


# Recompute

def _core_again(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
    again = checkpoint(F.scaled_dot_product_attention, q, k, v, use_reentrant=False, preserve_rng_state=options.get("dropout_p", 0.0) > 0, **options)
    assert isinstance(again, torch.Tensor)
    return again


_PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.linear.default}


def _every_second_product() -> Any:
    """Attention's output and those of the first, third, ... product are kept."""
    counts = {False: 0, True: 0}  # forward, and again in backward

    def policy(context: Any, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        counts[context.is_recompute] += operator in _PRODUCTS
        keeps = counts[context.is_recompute] % 2 == 1 if operator in _PRODUCTS else "_scaled_dot_product_" in str(operator) and "backward" not in str(operator)
        return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE
    return create_selective_checkpoint_contexts(policy)


def _keeps_every_second_product(layout: Dict[str, Any]) -> bool:
    return bool(layout.get("execution", {}).get("keeps_every_second_product"))


def _recompute(layers: nn.ModuleList, stage: int, layout: Dict[str, Any]) -> None:
    """The first layers of a stage, as a plan counts them."""
    listed = layout.get("recomputed_layers") or []
    count = 0 if layout["recompute"] == "none" else min(listed[stage], len(layers)) if listed else len(layers)
    options: Dict[str, Any] = {"checkpoint_impl": CheckpointImpl.NO_REENTRANT, "preserve_rng_state": False}
    if layout["recompute"] == "selective":
        if not _keeps_every_second_product(layout):
            return  # _core_again does
        options["context_fn"] = _every_second_product
    for number in range(count):
        layers[number] = checkpoint_wrapper(layers[number], **options)


def _checked(plan: Any) -> Dict[str, Any]:
    if isinstance(plan, (str, os.PathLike)):
        with open(plan, encoding="utf-8") as file:
            plan = json.load(file)
    fields: Dict[str, Any] = plan if isinstance(plan, dict) else plan.json
    layout = fields["layout"]
    exported = 'export the plan: plan.export("pytorch", folder)'
    modules = sorted(name for name, on in (layout.get("selective") or {"core": True}).items() if on and name != "core")
    if not (layout.get("selective") or {}).get("core", True):
        modules.append("no attention core")
    sharded = layout.get("zero", 0) > 0 and (layout.get("shard") or layout["data"] * layout.get("context", 1)) % layout.get("context", 1) != 0
    refused = {"context ranks beside pipeline stages": (layout.get("context", 1) > 1 and layout["pipeline"] > 1, "plan with pp=1 or cp=1"),
               "states shared out over a part of the context ranks": (sharded, "plan with cp=1"),
               "expert ranks": (layout.get("expert", 1) > 1, "plan with ep=1"),
               f"precision {layout['precision']}": (layout["precision"] not in TYPES, 'plan with precision="bf16"'),
               f"selective recompute of {', '.join(modules)}": (layout["recompute"] == "selective" and bool(modules) and not _keeps_every_second_product(layout),
                                                              'plan with recompute_modules=["core_attn"]'),
               "an optimizer in the host's memory": (bool(layout.get("offload_optimizer")), 'plan with offload=False'),
               "adapters": ((layout.get("training") or {}).get("adapter_rank", 0) > 0, "plan without lora"),
               f"schedule {layout['schedule']}": (layout["pipeline"] > 1 and layout["schedule"] not in SCHEDULES,
                                                  f"plan with schedule={sorted(SCHEDULES)}")}
    for what, (is_there, remedy) in refused.items():
        if is_there:
            raise wrong("plan", what, "what mpt.torch applies: tensor, context, pipeline and data ranks, ZeRO, recompute, fp32 or bf16",
                        f"{remedy}, or {exported}")
    return fields


class Parallel:
    """A model as a plan splits it. `parts`: the modules of this rank's stages; `mesh`: axes pp, dp_replicate, dp_shard, tp, of which
    dp_shard, or without ZeRO dp_replicate, has the context ranks, too; `replica`: which of the plan's data-parallel replicas this rank
    is of, and takes the sequences of."""

    def __init__(self, model: nn.Module, plan: Any, device: Optional[torch.device] = None):
        self.plan = _checked(plan)
        layout = self.plan["layout"]
        self.device = device or torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) if torch.cuda.is_available() else 0)
        if device is None and not torch.cuda.is_available():
            self.device = torch.device("cpu")
        self.stages = self.plan["schedule"]["rank_of_stage"]
        self.micro_batches = self.plan["workload"]["global_batch"] // (layout["data"] * layout["micro_batch"])
        self.mesh = self._mesh(layout)
        shards = self.mesh.get_local_rank("dp_replicate") * self.mesh["dp_shard"].size() + self.mesh.get_local_rank("dp_shard")
        self.replica = shards // layout.get("context", 1)
        self.context = self._context_mesh(layout)
        self._length = 0
        seen = _look(model)
        counts = layout["layers_per_stage"]
        self._check_model(model, seen, counts)
        self.parts: Dict[int, nn.Module] = {}
        for stage in [stage for stage, rank in enumerate(self.stages) if rank == self.mesh.get_local_rank("pp")]:
            self.parts[stage] = self._part(*_stage_of(model, seen, counts, stage), seen, stage, layout)
        self._schedule: Any = None
        self._last = [part for stage, part in self.parts.items() if stage == len(counts) - 1]

    def _mesh(self, layout: Dict[str, Any]) -> DeviceMesh:
        replicas = layout["data"] * layout.get("context", 1)
        shard = (layout.get("shard") or replicas) if layout.get("zero", 0) > 0 else 1
        axes = [("pp", layout["pipeline"]), ("dp_replicate", replicas // shard), ("dp_shard", shard)]
        if layout.get("order") == "data_outermost":
            axes = [axes[1], axes[2], axes[0]]
        axes.append(("tp", layout["tensor"]))
        ranks = math.prod(size for _, size in axes)
        if not dist.is_initialized():
            dist.init_process_group("cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo")
        if dist.get_world_size() != ranks:
            raise wrong("processes", str(dist.get_world_size()), f"the plan's {ranks}", f"torchrun --nproc-per-node, or --nnodes times it, {ranks}")
        return init_device_mesh(self.device.type, tuple(size for _, size in axes), mesh_dim_names=tuple(name for name, _ in axes))

    def _context_mesh(self, layout: Dict[str, Any]) -> Optional[DeviceMesh]:
        """Beside the other mesh, whose axes of data hold these ranks: FSDP wants its axes and that of tensor ranks in one mesh."""
        ranks = layout.get("context", 1)
        if ranks == 1:
            return None
        mesh = init_device_mesh(self.device.type, (layout["data"], ranks, layout["tensor"]), mesh_dim_names=("dp", "cp", "tp"))
        return mesh["cp"]

    def _check_model(self, model: nn.Module, seen: _Seen, counts: List[int]) -> None:
        layers = len(model.get_submodule(seen.layers))
        if layers != sum(counts):
            raise wrong("model", f"{layers} layers in {seen.layers}", f"the plan's {sum(counts)}")
        ends = [{id(p) for path in paths for p in model.get_submodule(path).parameters()} for paths in (seen.token_embeddings, seen.after)]
        layout = self.plan["layout"]
        replaces = self.context is not None or layout["recompute"] == "selective" and not _keeps_every_second_product(layout)
        if replaces and not all(seen.cores):
            raise wrong("model", f"{seen.layers}.{seen.cores.index([])} without torch.nn.functional.scaled_dot_product_attention",
                        "attention by that function, which context ranks and selective recompute replace",
                        'of transformers attn_implementation="sdpa"; or plan with cp=1, recompute=["none", "full"]')
        if self.context is not None:
            _check_context(model, seen, layout)
        if len(counts) > 1 and ends[0] & ends[1]:
            raise wrong("model", "an embedding and a head with one weight, on two stages", "a weight of each",
                        "their gradients would have to be summed over stages: plan with pp=1")

    def _part(self, model: nn.Module, kept: List[int], seen: _Seen, stage: int, layout: Dict[str, Any]) -> nn.Module:
        tied = [path for path, module in model.named_modules(remove_duplicate=False) for name, p in module.named_parameters(recurse=False)
                if name == "weight" and path in seen.after and any(p is q for at in seen.token_embeddings for q in model.get_submodule(at).parameters())]
        if layout["tensor"] > 1:
            _split_over_tensor_ranks(model, seen, kept, self.mesh["tp"], bool(layout.get("sequence_parallel")))
        for path in tied:  # splitting makes two weights of one
            model.get_submodule(path).weight = model.get_submodule(seen.token_embeddings[0]).weight
        layers = model.get_submodule(seen.layers)
        core = _core_again if layout["recompute"] == "selective" and not _keeps_every_second_product(layout) else F.scaled_dot_product_attention
        attend = core if self.context is None else _attend_over_context(layout, self.context, core)
        for layer in layers if attend is not F.scaled_dot_product_attention else ():
            _attend_by(layer, attend)
        _recompute(layers, stage, layout)
        if self.context is not None:
            _split_over_context(layers, seen, layout, self.context, lambda: self._length)
        kind = TYPES[layout["precision"]]
        options: Dict[str, Any] = {"mesh": self.mesh["dp_replicate", "dp_shard"], "reshard_after_forward": layout.get("zero", 0) == 3,
                                   "mp_policy": MixedPrecisionPolicy(param_dtype=kind, reduce_dtype=torch.float32)}
        on_meta = any(parameter.is_meta for parameter in model.parameters())
        if not on_meta:
            model.to(self.device)
        for layer in layers:
            fully_shard(layer, **options)
        whole = _Stage(model) if len(self.stages) > 1 else model
        fully_shard(whole, **options)
        return whole.to_empty(device=self.device) if on_meta else whole

    def parameters(self) -> List[nn.Parameter]:
        return [parameter for part in self.parts.values() for parameter in part.parameters()]

    def _pipeline(self, loss_of: Callable[[Any, torch.Tensor], torch.Tensor]) -> Any:
        stages = [PipelineStage(part, stage, len(self.stages), self.device, group=self.mesh["pp"].get_group()) for stage, part in self.parts.items()]
        name = self.plan["layout"]["schedule"]
        single = name in ("gpipe", "1f1b")
        return SCHEDULES[name](stages[0] if single else stages, self.micro_batches, loss_fn=loss_of)

    def step(self, tokens: torch.Tensor, targets: torch.Tensor, loss_of: Callable[[Any, torch.Tensor], torch.Tensor]) -> Optional[torch.Tensor]:
        """Gradients of a step from this replica's sequences, [micro-batches x micro-batch, tokens]. Returns their mean loss where
        the last stage is, else None. Gradients are means over all replicas. Context ranks are given the same sequences, whole."""
        if len(self.stages) > 1:
            if self._schedule is None:
                self._schedule = self._pipeline(loss_of)
            losses: List[torch.Tensor] = []
            self._schedule.step(*([tokens] if 0 in self.parts else []), target=targets if self._last else None, losses=losses if self._last else None)
            return torch.stack(losses).mean() if losses else None
        (part,) = self.parts.values()
        if self.context is not None:
            self._length = tokens.shape[1]
            targets = targets.index_select(1, _part_of_sequence(self.plan["layout"], self.context.get_local_rank(), self._length).to(targets.device))
        total = torch.zeros((), device=self.device)
        pieces = list(zip(tokens.chunk(self.micro_batches), targets.chunk(self.micro_batches)))
        for number, (some, wanted) in enumerate(pieces):
            part.set_requires_gradient_sync(number == len(pieces) - 1 or self.plan["layout"].get("zero", 0) >= 2)  # type: ignore[operator]
            loss = loss_of(part(some), wanted) / len(pieces)
            loss.backward()
            total += loss.detach()
        if self.context is not None:
            dist.all_reduce(total, group=self.context.get_group())
            total /= self.context.size()
        return total


def parallelize(model: nn.Module, plan: Any, device: Optional[torch.device] = None) -> Parallel:
    """Splits `model` as `plan` says, an mpt.Plan, the fields of plan.json, or its path. To be called by every process of torchrun,
    with equal weights in each; the model itself is used up. With one stage `parallel.parts[0]` is the model. Of a model on the meta
    device each rank allocates its parts alone, and you set weights and buffers."""
    return Parallel(model, plan, device)
