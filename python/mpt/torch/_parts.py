# SPDX-License-Identifier: Apache-2.0
"""A rank's place in the meshes, the model features that a plan does not allow, and the module of a stage with all of the plan applied."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard

from .._door import wrong
from ._context import attend_over_context, check_context, split_over_context
from ._look import Seen, Weights, attend_by
from ._plan import TYPES, core_again
from ._recompute import core_twice, recompute
from ._stages import Zeros, check_stage, check_stages, stage_of
from ._tensor import between, split_over_tensor_ranks


def mesh_of(layout: Dict[str, Any], device: torch.device) -> DeviceMesh:
    replicas = layout["data"] * layout.get("context", 1)
    shard = (layout.get("shard") or replicas) if layout.get("zero", 0) > 0 else 1
    axes = [("pp", layout["pipeline"]), ("dp_replicate", replicas // shard), ("dp_shard", shard)]
    if layout.get("order") == "data_outermost":
        axes = [axes[1], axes[2], axes[0]]
    axes.append(("tp", layout["tensor"]))
    ranks = math.prod(size for _, size in axes)
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    if dist.get_world_size() != ranks:
        raise wrong("processes", str(dist.get_world_size()), f"the plan's {ranks}", f"torchrun --nproc-per-node, or --nnodes times it, {ranks}")
    return init_device_mesh(device.type, tuple(size for _, size in axes), mesh_dim_names=tuple(name for name, _ in axes))


def context_mesh_of(layout: Dict[str, Any], device: torch.device) -> Optional[DeviceMesh]:
    """A separate mesh, with context ranks that are in the other mesh's data axes: FSDP needs its axes and the tensor ranks' in one mesh."""
    ranks = layout.get("context", 1)
    if ranks == 1:
        return None
    return init_device_mesh(device.type, (layout["data"], ranks, layout["tensor"]), mesh_dim_names=("dp", "cp", "tp"))["cp"]


def prepare(model: nn.Module) -> str:
    """Converts a model to the plan's form: weights in fp32, and no cache of keys and values. Returns a message about it."""
    if hasattr(model, "_orig_mod") or any(module._compiled_call_impl is not None for module in model.modules()):
        raise wrong("model", "one that torch.compile has compiled", "the model as it is", "compile the layers afterwards: for layer in part.LAYERS: layer.compile()")
    for module in model.modules():
        if getattr(getattr(module, "config", None), "use_cache", False):
            module.config.use_cache = False  # type: ignore[union-attr]
    scalars = [name for name, parameter in model.named_parameters() if parameter.dim() == 0]
    if scalars:
        raise wrong("model", f"{scalars[0]}, a weight without an axis, which fully_shard does not take", "weights of one element in the shape [1]")
    narrow = [parameter for parameter in model.parameters() if parameter.is_floating_point() and parameter.dtype != torch.float32]
    kinds = sorted({str(parameter.dtype)[6:] for parameter in narrow})
    for parameter in narrow:
        parameter.data = parameter.data.float()
    return f"{len(narrow)} weights of {' and '.join(kinds)} are kept in float32, as plans price them" if narrow else ""


def check_model(model: nn.Module, seen: Seen, weights: Optional[Weights], plan: Dict[str, Any]) -> None:
    layout = plan["layout"]
    counts = layout["layers_per_stage"]
    layers = len(model.get_submodule(seen.layers))
    if layers != sum(counts):
        raise wrong("model", f"{layers} layers in {seen.layers}", f"the plan's {sum(counts)}", "plan with this model")
    width = (plan.get("model") or {}).get("hidden", seen.hidden[-1])
    if width != seen.hidden[-1]:
        raise wrong("model", f"a width of {seen.hidden[-1]} in {seen.layers}", f"the plan's {width}", "plan with this model")
    context = layout.get("context", 1) > 1
    if (context or core_again(layout)) and not all(seen.cores):
        raise wrong("model", f"{seen.layers}.{seen.cores.index([])} without torch.nn.functional.scaled_dot_product_attention",
                    "attention by that function, which context ranks and selective recompute replace",
                    'of transformers attn_implementation="sdpa"; or plan with cp=1, recompute=["none", "full"]')
    if context:
        check_context(model, seen, layout)
    if len(counts) > 1:
        assert weights is not None
        check_stages(model, seen, weights, counts)


def dimension_to_cut(weight: nn.Parameter, ranks: int) -> Shard:
    """FSDP2 shards whole rows and pads them: 8 experts on 64 ranks would leave an eighth on each of 8 ranks and move 8 times the bytes.
    Weights of few rows are cut along the first other dimension that the ranks divide."""
    rows = weight.shape[0]
    if isinstance(weight, DTensor) or -(-rows // ranks) * ranks <= 1.05 * rows:
        return Shard(0)
    return Shard(next((d for d, size in enumerate(weight.shape) if size % ranks == 0), 0))


class Builder:
    """Makes the module of each of a rank's stages."""

    def __init__(self, model: nn.Module, seen: Seen, weights: Weights, plan: Dict[str, Any], mesh: DeviceMesh, context: Optional[DeviceMesh], device: torch.device):
        self.model, self.seen, self.weights, self.mesh, self.context, self.device = model, seen, weights, mesh, context, device
        self.layout = plan["layout"]
        self.counts = self.layout["layers_per_stage"]
        self.between: List[List[str]] = []
        self.stages: Dict[int, nn.Module] = {}

    def prepare(self, stages: List[int]) -> None:
        """Checks without other ranks: refuses what cannot be split."""
        if self.layout["tensor"] > 1:
            self.between = between(self.model, self.seen, self.mesh.get_local_rank("tp"), self.layout["tensor"])
        for stage in stages:
            self.stages[stage] = stage_of(self.model, self.seen, self.weights, self.counts, stage)
            if len(self.counts) > 1:
                check_stage(self.stages[stage], self.seen, self.counts, stage)

    def part(self, stage: int, length: Callable[[], int]) -> nn.Module:
        """`length`: of the sequences of a step."""
        whole = self.stages[stage]
        model = whole.model if len(self.counts) > 1 else whole
        assert isinstance(model, nn.Module)
        first = sum(self.counts[:stage])
        kept = list(range(first, first + self.counts[stage]))
        self._split(model, kept)
        layers = model.get_submodule(self.seen.layers)
        assert isinstance(layers, nn.ModuleList)
        core = core_twice if core_again(self.layout) else F.scaled_dot_product_attention
        attend = core if self.context is None else attend_over_context(self.layout, self.context, core)
        for number in kept if attend is not F.scaled_dot_product_attention else ():
            attend_by(layers[number], attend)
        recompute(layers, kept, stage, self.layout)
        if self.context is not None:
            split_over_context(layers, self.seen, self.layout, self.context, length)
        return self._shard(whole, [layers[number] for number in kept])

    def _split(self, model: nn.Module, kept: List[int]) -> None:
        embeddings, seen = self.seen.token_embeddings, self.seen
        tied = [path for path, module in model.named_modules(remove_duplicate=False) for name, p in module.named_parameters(recurse=False)
                if name == "weight" and path in seen.after and any(p is q for one in embeddings for q in model.get_submodule(one).parameters())]
        if self.layout["tensor"] > 1:
            split_over_tensor_ranks(model, seen, kept, self.between, self.mesh["tp"], bool(self.layout.get("sequence_parallel")))
        for path in tied:  # splitting makes two weights of one
            model.get_submodule(path).weight = model.get_submodule(embeddings[0]).weight

    def _shard(self, whole: nn.Module, layers: List[nn.Module]) -> nn.Module:
        kind = TYPES[self.layout["precision"]]
        ranks = self.mesh["dp_shard"].size()
        options: Dict[str, Any] = {"mesh": self.mesh["dp_replicate", "dp_shard"] if self.mesh["dp_replicate"].size() > 1 else self.mesh["dp_shard"],
                                   "reshard_after_forward": self.layout.get("zero", 0) == 3,
                                   "shard_placement_fn": lambda weight: dimension_to_cut(weight, ranks),
                                   "mp_policy": MixedPrecisionPolicy(param_dtype=kind, reduce_dtype=torch.float32)}
        for module in whole.modules():
            if isinstance(module, Zeros):
                module.kind = kind
        on_meta = any(parameter.is_meta for parameter in whole.parameters())
        if not on_meta:
            whole.to(self.device)
        for layer in layers:
            fully_shard(layer, **options)
        sharded = fully_shard(whole, **options)
        if self.layout["pipeline"] == 1:  # in pipelines the check refuses such models
            # Else gradients of different weights are added where ranks use different ones (findings/fsdp2_adds_gradients_of_different_weights.sh).
            sharded.set_reduce_scatter_unused_params(True)
        return whole.to_empty(device=self.device) if on_meta else whole
