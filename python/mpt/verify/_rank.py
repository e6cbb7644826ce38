# SPDX-License-Identifier: Apache-2.0
"""One step of one rank, under a group of processes and with tensors that are both fake, and what it holds and sends: storages from their first
tensor to their end, and collectives by kind, bytes and group.

A framework has a class for what a rank does, with `stages`, `micro_batches` that run, `repeated` more that are as the second, `names` of groups
by those in PyTorch, and `allocate`, which gives the model memory and makes `parameters` and `optimizer`, `forward_and_backward(watch)`, `update`."""

from __future__ import annotations

import collections
import contextlib
import warnings
import weakref
from typing import Any, Callable, Counter, Dict, Iterator, List, Tuple
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.tensor import DTensor, placement_types
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.distributed.tensor.debug import _clear_fast_path_sharding_prop_cache, _clear_python_sharding_prop_cache
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from .._door import wrong

# PyTorch's own mask of this name has no fake tensor. Without a pipeline these micro-batches run: the first, the second, the last.
LOWER_RIGHT, MOST_MICRO_BATCHES = "lower right", 3
# As names of PyTorch's operators begin. Others of the namespaces, such as wait_tensor, move nothing.
EXCHANGED = "_dtensor::shard_dim_alltoall"  # DTensor's exchange of one sharded dimension for another
COLLECTIVES = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "broadcast", "send", "recv")
# Operators of FSDP on weights of several ranks, or on their gradients.
OF_FSDP = {"c10d::_allgather_base_": "gathered", "fsdp::all_gather_copy_in": "gathered", "fsdp::split_with_sizes_copy": "gathered",
           "c10d::_reduce_scatter_base_": "gradients", "fsdp::chunk_cat": "gradients", "fsdp::chunk_cat_mixed_dtype": "gradients"}


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that this rank holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _tensors(values: Any) -> List[torch.Tensor]:
    return [local(value) for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


def _group_of(arguments: List[Any]) -> Any:
    """The process group among an operator's arguments: an object of PyTorch's, or its name."""
    for value in arguments:
        with contextlib.suppress(Exception):
            return dist.distributed_c10d._resolve_process_group(value) if isinstance(value, str) else dist.ProcessGroup.unbox(value)
    return None


class Counting(TorchDispatchMode):
    """Bytes of storages while they live, what lived at their peak, and collectives. Bytes are those of tensors, not of an allocator's blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.live: Dict[int, int] = {}  # bytes by number of the storage
        self.kinds: Dict[int, str] = {}  # of storages that are known to be something else than activations
        self.calls: Counter[Tuple[str, int, str]] = collections.Counter()  # by kind, bytes, and name of the group
        self.bytes_now, self.peak_bytes, self.at_peak, self._next = 0, 0, self.live, 0
        self._numbers: Dict[int, int] = {}  # by id() of a living storage
        resize = torch.UntypedStorage.resize_

        def resized(storage: torch.UntypedStorage, size: int) -> None:
            self.kinds.setdefault(self._number(storage), "gathered")
            resize(storage, size)
            self._set(self._number(storage), storage.nbytes())

        # FSDP frees gathered weights by the size of their storage, which no operator shows.
        self.resizing = mock.patch.object(torch.UntypedStorage, "resize_", resized)
        propagate = ShardingPropagator._propagate_tensor_meta_non_cached

        def apart(*arguments: Any) -> Any:
            with _disable_current_modes():
                return propagate(*arguments)

        # DTensor finds sizes of results by fake tensors of all ranks' size, also in a real run.
        self.apart = mock.patch.object(ShardingPropagator, "_propagate_tensor_meta_non_cached", apart)

    def see(self, values: Any, kind: str = "") -> None:
        """Counts storages that are new, and notes what they are."""
        for tensor in _tensors(values):
            if tensor.device.type != "meta":
                number = self._number(tensor.untyped_storage())
                if kind:
                    self.kinds.setdefault(number, kind)

    def _number(self, storage: torch.UntypedStorage) -> int:
        number = self._numbers.get(id(storage))
        if number is None:
            number = self._numbers[id(storage)] = self._next = self._next + 1
            weakref.finalize(storage, self._end, id(storage), number)
            self._set(number, storage.nbytes())
        return number

    def _end(self, place: int, number: int) -> None:
        self._numbers.pop(place, None)
        self.bytes_now -= self.live.pop(number, 0)

    def _set(self, number: int, size: int) -> None:
        self.bytes_now += size - self.live.get(number, 0)
        self.live[number] = size
        if self.bytes_now > self.peak_bytes:
            self.peak_bytes, self.at_peak = self.bytes_now, self.live.copy()

    def by_kind(self, live: Dict[int, int]) -> Counter[str]:
        sums: Counter[str] = collections.Counter()
        for number, size in live.items():
            sums[self.kinds.get(number, "activations")] += size
        return sums

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        if any(one not in (torch.Tensor, torch.nn.Parameter, FakeTensor) for one in types):
            return NotImplemented  # a tensor of tensors: the operators on its parts come here
        if function is torch.ops._c10d_functional.wait_tensor.default:
            return arguments[0]  # a fake one makes a new tensor
        result, name = function(*arguments, **(named or {})), function._schema.name
        narrows_weight = name == "aten::_to_copy" and self.kinds.get(self._numbers.get(id(local(arguments[0]).untyped_storage()), 0)) == "parameters"
        self.see((result, arguments, named) if name in OF_FSDP else result, "narrowed" if narrows_weight else OF_FSDP.get(name, ""))  # by autocast
        if function.namespace in ("c10d", "_c10d_functional") or name == EXCHANGED:
            self._note("all_to_all" if name == EXCHANGED else name.split("::")[1], [*arguments, *(named or {}).values()], result)
        return result

    def _note(self, name: str, arguments: List[Any], result: Any) -> None:
        """Bytes of a collective are those of its larger side: what is gathered, or what is summed before it is scattered."""
        kind = next((kind for kind in COLLECTIVES if name.replace("_", "").startswith(kind.replace("-", ""))), "")
        group = _group_of(arguments)
        if kind and group is not None and group.size() > 1:
            size = max(sum(tensor.numel() * tensor.element_size() for tensor in _tensors(value)) for value in [*arguments, result])
            self.calls[kind, size, group.group_name] += 1


class Watch:
    """Where forwards and micro-batches begin and end."""

    def __init__(self, counting: Counting):
        """Begins with what is alive."""
        counting.calls.clear()
        counting.peak_bytes, counting.at_peak = counting.bytes_now, counting.live.copy()
        self.counting, self.marks = counting, [counting.calls.copy()]
        self.born: Dict[int, Dict[int, int]] = {}  # of each stage what its first forward leaves, in bytes by storage

    @contextlib.contextmanager
    def forward(self, stage: int) -> Iterator[None]:
        before = self.counting.live.copy()
        yield
        self.born.setdefault(stage, {number: size for number, size in self.counting.live.items() if number not in before})

    def collectives(self, job: Any) -> List[Dict[str, Any]]:
        second, names = self.marks[2] - self.marks[1] if job.repeated else {}, {dist.group.WORLD.group_name: "all", **job.names}
        size_of = lambda name: dist.distributed_c10d._resolve_process_group(name).size()
        return [{"kind": key[0], "bytes": key[1], "group": names.get(key[2], "other"), "ranks": size_of(key[2]), "count": count + job.repeated * second.get(key, 0)}
                for key, count in sorted(self.counting.calls.items())]


@contextlib.contextmanager
def fake_group(rank: int, ranks: int) -> Iterator[None]:
    if dist.is_initialized():
        raise wrong("verify", "a process group in this process", "none", "run it apart: python -m mpt.verify plan.json")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
        try:
            yield
        finally:
            dist.destroy_process_group()
            _clear_fast_path_sharding_prop_cache()  # they hold meshes of this rank, which equal those of the next one
            _clear_python_sharding_prop_cache()


def _flash(q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, scale: Any = None, enable_gqa: bool = False) -> Any:
    if attn_mask is not None and attn_mask is not LOWER_RIGHT:
        raise wrong("plan", "attention with a mask; MPT cannot verify masks yet", "causal attention", "compare a run of it with mpt-plan diagnose")
    if torch.is_autocast_enabled("cpu"):
        q, k, v = (one.to(torch.get_autocast_dtype("cpu")) for one in (q, k, v))
    return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal or attn_mask is not None, scale=scale)[0]


def _exchange(tensor: Any, gather_dim: int, shard_dim: int, mesh: Any, mesh_dim: int) -> Any:
    """What DTensor does on GPUs. On CPUs each rank gathers all and keeps its part."""
    return torch.ops._dtensor.shard_dim_alltoall(tensor, gather_dim, shard_dim, mesh.get_group(mesh_dim).group_name)


class _FusedNorm(torch.autograd.Function):
    """What F.rms_norm is on GPUs. On CPUs PyTorch takes it apart before a fake tensor sees it."""

    @staticmethod
    def forward(ctx: Any, x: Any, shape: Any, weight: Any, eps: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            result, deviation = torch.ops.aten._fused_rms_norm(x, shape, weight, eps)
        ctx.save_for_backward(x, deviation, weight)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        x, deviation, weight = ctx.saved_tensors
        with torch._C._AutoDispatchBelowAutograd():
            of_x, of_weight = torch.ops.aten._fused_rms_norm_backward(gradient, x, [x.shape[-1]], deviation, weight, [True, True])
        return of_x, None, of_weight, None


def _norm(x: Any, shape: Any, weight: Any = None, eps: Any = None) -> Any:
    fused = weight is not None and weight.dtype == x.dtype and len(shape) == 1  # as on GPUs
    return _FusedNorm.apply(x, list(shape), weight, eps) if fused else torch.rms_norm(x, shape, weight, eps)


def make_states(job: Any, on_gpus: bool) -> None:
    """The optimizer's states, which a first step makes. On GPUs PyTorch updates lists of tensors."""
    for group in job.optimizer.param_groups:
        if on_gpus and not group.get("fused") and group.get("foreach") is None:
            group["foreach"] = True
    for parameter in job.parameters:
        parameter.grad = torch.zeros_like(parameter)
    job.optimizer.step()
    job.optimizer.zero_grad()


def measure(rank: int, ranks: int, on_gpus: bool, make: Callable[[], Any]) -> Dict[str, Any]:
    """Runs a step; bytes by kind are those that live at the peak. `make` builds the model on meta and splits it."""
    with fake_group(rank, ranks):
        job, counting = make(), Counting()
        # Tensors are on the CPU. What PyTorch runs otherwise on GPUs is called by name: flash attention, and norms in one kernel.
        on_gpu: Any = mock.patch.multiple if on_gpus else lambda *_, **__: contextlib.nullcontext()
        with FakeTensorMode(allow_non_fake_inputs=True), on_gpu(F, scaled_dot_product_attention=_flash, rms_norm=_norm), \
                on_gpu(placement_types, shard_dim_alltoall=_exchange), counting, counting.resizing, counting.apart:
            job.allocate()
            make_states(job, on_gpus)
            counting.see(list(job.parameters), "parameters")
            counting.see([list(state.values()) for state in job.optimizer.state.values()], "optimizer")
            watch = Watch(counting)
            job.forward_and_backward(watch)
            counting.see([parameter.grad for parameter in job.parameters], "gradients")
            job.update()
        return {"rank": rank, "stages": job.stages, "micro_batches_run": job.micro_batches, "peak_bytes": counting.peak_bytes,
                "bytes": counting.by_kind(counting.at_peak), "collectives": watch.collectives(job),
                "saved_bytes": {stage: kinds["activations"] + kinds["narrowed"] for stage, kinds in ((stage, counting.by_kind(born)) for stage, born in sorted(watch.born.items()))}}
