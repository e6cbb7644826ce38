# SPDX-License-Identifier: Apache-2.0
"""A plan applied to your own PyTorch model: device mesh, FSDP2, tensor placements, stages and schedule, recompute.

    parallel = mpt.torch.parallelize(model, plan)               # in each process of torchrun
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-4)
    for tokens, targets in batches:                             # this replica's sequences of a step
        loss = parallel.step(tokens, targets, loss_of)          # loss_of(logits, targets): a mean
        optimizer.step(); optimizer.zero_grad()

The model maps tokens to logits, and keeps its decoder layers in one nn.ModuleList. Which products are split by columns and
which by rows is read from a run of a few tokens: products of one input are columns, and the product behind them is rows.
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
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleDualPipeV, ScheduleGPipe, ScheduleInterleaved1F1B, ScheduleZBVZeroBubble
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

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
    seen = _Seen(name, [], [], [], [[] for _ in layers], {}, {}, ())
    kept: List[torch.Tensor] = []  # so that no storage is used again
    device = next(model.parameters()).device
    tokens = torch.zeros(1, _TOKENS, dtype=torch.int64, device=device)
    state = {"behind": False}
    handles = []

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
    handles.append(layers[-1].register_forward_hook(ended))
    training = model.training
    try:
        with torch.no_grad():
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


def _recompute(layers: nn.ModuleList, stage: int, layout: Dict[str, Any]) -> None:
    """The first layers of a stage, as a plan counts them."""
    listed = layout.get("recomputed_layers") or []
    count = 0 if layout["recompute"] == "none" else min(listed[stage], len(layers)) if listed else len(layers)
    for number in range(count):
        layers[number] = checkpoint_wrapper(layers[number], checkpoint_impl=CheckpointImpl.NO_REENTRANT, preserve_rng_state=False)


def _checked(plan: Any) -> Dict[str, Any]:
    if isinstance(plan, (str, os.PathLike)):
        with open(plan, encoding="utf-8") as file:
            plan = json.load(file)
    fields: Dict[str, Any] = plan if isinstance(plan, dict) else plan.json
    layout = fields["layout"]
    refused = {"context ranks": layout.get("context", 1) > 1, "expert ranks": layout.get("expert", 1) > 1,
               f"precision {layout['precision']}": layout["precision"] not in TYPES, "selective recompute": layout["recompute"] == "selective",
               "an optimizer in the host's memory": bool(layout.get("offload_optimizer")),
               "adapters": (layout.get("training") or {}).get("adapter_rank", 0) > 0,
               f"schedule {layout['schedule']}": layout["pipeline"] > 1 and layout["schedule"] not in SCHEDULES}
    for what, is_there in refused.items():
        if is_there:
            raise wrong("plan", what, "what mpt.torch applies: tensor, pipeline and data ranks, ZeRO, full recompute, fp32 or bf16",
                        'plan with cp=1, ep=1, recompute=["none", "full"], or export the plan: plan.export("pytorch", folder)')
    return fields


class Parallel:
    """A model as a plan splits it. `parts`: the modules of this rank's stages; `mesh`: axes pp, dp_replicate, dp_shard, tp."""

    def __init__(self, model: nn.Module, plan: Any, device: Optional[torch.device] = None):
        self.plan = _checked(plan)
        layout = self.plan["layout"]
        self.device = device or torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) if torch.cuda.is_available() else 0)
        if device is None and not torch.cuda.is_available():
            self.device = torch.device("cpu")
        self.stages = self.plan["schedule"]["rank_of_stage"]
        self.micro_batches = self.plan["workload"]["global_batch"] // (layout["data"] * layout["micro_batch"])
        self.mesh = self._mesh(layout)
        seen = _look(model)
        counts = layout["layers_per_stage"]
        self._check_model(model, seen, counts)
        self.parts: Dict[int, nn.Module] = {}
        for stage in [stage for stage, rank in enumerate(self.stages) if rank == self.mesh.get_local_rank("pp")]:
            self.parts[stage] = self._part(*_stage_of(model, seen, counts, stage), seen, stage, layout)
        self._schedule: Any = None
        self._last = [part for stage, part in self.parts.items() if stage == len(counts) - 1]

    def _mesh(self, layout: Dict[str, Any]) -> DeviceMesh:
        shard = layout.get("shard") or layout["data"]
        shard = shard if layout.get("zero", 0) > 0 else 1
        axes = [("pp", layout["pipeline"]), ("dp_replicate", layout["data"] // shard), ("dp_shard", shard)]
        if layout.get("order") == "data_outermost":
            axes = [axes[1], axes[2], axes[0]]
        axes.append(("tp", layout["tensor"]))
        ranks = math.prod(size for _, size in axes)
        if not dist.is_initialized():
            dist.init_process_group("cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo")
        if dist.get_world_size() != ranks:
            raise wrong("processes", str(dist.get_world_size()), f"the plan's {ranks}", f"torchrun --nproc-per-node, or --nnodes times it, {ranks}")
        return init_device_mesh(self.device.type, tuple(size for _, size in axes), mesh_dim_names=tuple(name for name, _ in axes))

    def _check_model(self, model: nn.Module, seen: _Seen, counts: List[int]) -> None:
        layers = len(model.get_submodule(seen.layers))
        if layers != sum(counts):
            raise wrong("model", f"{layers} layers in {seen.layers}", f"the plan's {sum(counts)}")
        ends = [{id(p) for path in paths for p in model.get_submodule(path).parameters()} for paths in (seen.token_embeddings, seen.after)]
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
        _recompute(layers, stage, layout)
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
        the last stage is, else None. Gradients are means over all replicas."""
        if len(self.stages) > 1:
            if self._schedule is None:
                self._schedule = self._pipeline(loss_of)
            losses: List[torch.Tensor] = []
            self._schedule.step(*([tokens] if 0 in self.parts else []), target=targets if self._last else None, losses=losses if self._last else None)
            return torch.stack(losses).mean() if losses else None
        (part,) = self.parts.values()
        total = torch.zeros((), device=self.device)
        pieces = list(zip(tokens.chunk(self.micro_batches), targets.chunk(self.micro_batches)))
        for number, (some, wanted) in enumerate(pieces):
            part.set_requires_gradient_sync(number == len(pieces) - 1 or self.plan["layout"].get("zero", 0) >= 2)  # type: ignore[operator]
            loss = loss_of(part(some), wanted) / len(pieces)
            loss.backward()
            total += loss.detach()
        return total


def parallelize(model: nn.Module, plan: Any, device: Optional[torch.device] = None) -> Parallel:
    """Splits `model` as `plan` says, an mpt.Plan, the fields of plan.json, or its path. To be called by every process of torchrun,
    with equal weights in each; the model itself is used up. With one stage `parallel.parts[0]` is the model. Of a model on the meta
    device each rank allocates its parts alone, and you set weights and buffers."""
    return Parallel(model, plan, device)
