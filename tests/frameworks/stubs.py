# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for what the frameworks need at import but a machine without a GPU cannot use. All of them are in this file.

As a program, `stubs.py SITE_PACKAGES` writes the stand-ins for NVIDIA's libraries beside torch.
As a module, `use(...)` puts empty modules in the place of compiled extensions.
A stand-in never computes: whoever calls it gets an error, so that no test passes because of it.
"""

import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import types
import typing

# PyTorch on the index is built for CUDA, and links these libraries (two gigabytes) when it is imported. On a CPU no function of
# theirs is called. libcudart and libcupti are called at import; they are small and come from the index.
CUDA_LIBRARIES = ["libcublas.so.13", "libcublasLt.so.13", "libcudnn.so.9", "libcufft.so.12", "libcufile.so.0", "libcusolver.so.12",
                  "libcusparse.so.12", "libcusparseLt.so.0", "libnccl.so.2", "libnvrtc.so.13", "libnvJitLink.so.13",
                  "libnvshmem_host.so.3"]

# Compiled extensions that the frameworks import by name, with the version that they are taken for. Why each is needed:
MODULES = {
    # Megatron-LM's fused and fp8 kernels: CUDA source that is compiled on the machine with the GPU.
    "transformer_engine": "2.18.0",
    "transformer_engine_torch": "2.18.0",
    # Megatron-Bridge writes checkpoints in the background with it: a compiled extension for CUDA.
    "nvidia_resiliency_ext": "0.6.0",
    # Megatron-Bridge imports NVIDIA's quantization of finished models for every model.
    "modelopt": "0.44.0",
    # Megatron-Bridge looks for models of pictures, too, when it looks for one.
    "diffusers": "0.36.0",
    # Megatron-Bridge imports this loader of pictures and sound for every model.
    "megatron.energon": "7.0.0",
    # torchtitan's attention of sequences of many lengths registers these kernels on Blackwell; they are compiled on the GPU.
    "flash_attn": "4.0.0",
    # The same on Hopper; PyTorch looks for its operations.
    "flash_attn_interface": "3.0.0",
}


class StandIn:
    """Takes any arguments, may be a base class or a decorator, and refuses to work."""

    def __init__(self, *arguments, **options):
        pass

    def __call__(self, *arguments, **options):
        if len(arguments) == 1 and not options and callable(arguments[0]):
            return arguments[0]
        if not arguments:
            return StandIn()  # a decorator with options
        raise RuntimeError("a stand-in for a compiled extension was called")

    def __class_getitem__(cls, item):
        return cls


class FusedAdam(StandIn):
    def __init__(self, params, master_weight_dtype=None, exp_avg_dtype=None, exp_avg_sq_dtype=None, use_decoupled_grad=False):
        super().__init__()


class StandInModule(types.ModuleType):
    __call__ = StandIn.__call__

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        if name.islower():
            return importlib.import_module(f"{self.__name__}.{name}")
        value = type(name, (StandIn,), {"__module__": self.__name__})
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of the listed extensions, and all modules below them."""

    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if any(name == listed or name.startswith(listed + ".") for listed in self.names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = StandInModule(spec.name)
        module.__version__ = next(MODULES[listed] for listed in self.names if spec.name.startswith(listed))
        return module

    def exec_module(self, module):
        pass


def use(*names):
    """Puts stand-ins in the place of these extensions; those that are really installed stay."""
    # Megatron-LM and Megatron-Bridge want Python 3.12 for this name alone; Debian 12 has 3.11.
    if not hasattr(typing, "override"):
        typing.override = lambda method: method
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    sys.meta_path.append(Finder(missing))
    real = importlib.metadata.version
    if "transformer_engine" in missing:
        # Megatron-LM reads from the optimizer's parameters what it can do; these are the ones of the version above.
        importlib.import_module("transformer_engine.pytorch.optimizers").FusedAdam = FusedAdam
    versions = {name.replace("_", "-"): MODULES[name] for name in missing}
    importlib.metadata.version = lambda name: versions.get(name.replace("_", "-")) or real(name)


def undefined_symbols(folder):
    """The functions and objects of NVIDIA's libraries that torch's own libraries take from elsewhere."""
    wanted, defined = {}, set()
    for name in sorted(os.listdir(folder)):
        if ".so" not in name:
            continue
        listing = subprocess.run(["readelf", "--wide", "--dyn-syms", os.path.join(folder, name)], check=True, capture_output=True,
                                 text=True).stdout
        for line in listing.splitlines():
            words = line.split()
            if len(words) < 8 or not words[0].rstrip(":").isdigit():
                continue
            symbol = words[7].split("@")[0]
            if words[6] != "UND":
                defined.add(symbol)
            elif re.match(r"(cu|nv|nccl)", symbol):
                wanted[symbol] = words[3]
    return {symbol: kind for symbol, kind in wanted.items() if symbol not in defined}


def exported(path):
    listing = subprocess.run(["readelf", "--wide", "--dyn-syms", path], check=True, capture_output=True, text=True).stdout
    return {line.split()[7].split("@")[0] for line in listing.splitlines() if len(line.split()) > 7 and line.split()[6] != "UND"}


def write_cuda_libraries(site_packages):
    """One library that defines every missing symbol, under the names of all libraries that are left out."""
    folder = os.path.join(site_packages, "nvidia", "cu13", "lib")
    there = [os.path.join(folder, name) for name in os.listdir(folder) if ".so" in name and name not in CUDA_LIBRARIES]
    symbols = undefined_symbols(os.path.join(site_packages, "torch", "lib"))
    for library in there:
        for symbol in exported(library):
            symbols.pop(symbol, None)
    source = ["#include <stdio.h>", "#include <stdlib.h>",
              "void mpt_stand_in(void) { fputs(\"a CUDA library was called, but this machine has only stand-ins\\n\", stderr); abort(); }"]
    for symbol, kind in sorted(symbols.items()):
        source.append(f"char {symbol}[256];" if kind == "OBJECT" else f"void {symbol}(void) __attribute__((alias(\"mpt_stand_in\")));")
    first = os.path.join(folder, CUDA_LIBRARIES[0])
    with tempfile.NamedTemporaryFile("w", suffix=".c") as file:
        file.write("\n".join(source) + "\n")
        file.flush()
        subprocess.run([os.environ.get("CC", "cc"), "-w", "-shared", "-fPIC", "-fno-builtin", file.name, "-o", first], check=True)
    for name in CUDA_LIBRARIES[1:]:
        link = os.path.join(folder, name)
        if not os.path.lexists(link):
            os.symlink(CUDA_LIBRARIES[0], link)


def capability(gpu):
    """What torch.cuda.get_device_capability answers on a GPU of the catalog."""
    generations = {"a100": (8, 0), "h100": (9, 0), "h200": (9, 0), "b200": (10, 0), "gb200": (10, 0), "gb300": (10, 3)}
    return next(version for name, version in generations.items() if gpu.startswith(name))


def cpu_ranks():
    """Lets torchtitan choose CPU ranks; without this it takes GPUs, which PyTorch was built for. To be called before its import."""
    import torch
    torch._utils._get_available_device_type = lambda: "cpu"


def untuned_kernels():
    """Leaves Triton's kernels untuned: it refuses a tuning key of AutoModel's. No kernel runs on a CPU. To be called before its import."""
    import triton
    triton.autotune = lambda *_, **__: lambda kernel: kernel


def older_fsdp():
    """Gives FSDP a method that AutoModel 0.7 guards, for it is made for a PyTorch that still had it. No gradient is summed on a CPU."""
    from torch.distributed.fsdp._fully_shard import _fsdp_param
    _fsdp_param.FSDPParam.to_accumulated_grad_if_needed = lambda _: None


def flash_attention():
    """Gives FlashAttention's stand-ins the functions and operations that PyTorch looks for (torch/nn/attention/_fa3.py and _fa4.py)."""
    from torch import library
    for operation in ("fwd", "bwd"):
        library.define(f"flash_attn_3::{operation}", "(Tensor x) -> Tensor")
    module = importlib.import_module("flash_attn.cute.interface")
    module._flash_attn_fwd = module._flash_attn_bwd = StandIn()


def plain_gloo():
    """Lets DeepSpeed communicate over gloo alone; its shared memory between CPU ranks is C++ that takes a minute to compile."""
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None


def unequal_exchanges():
    """Lets ranks exchange lists of tensors of unequal sizes; of the two functions for this, gloo takes one alone."""
    import torch
    import torch.distributed as dist

    def all_to_all(outputs, inputs, group=None, async_op=False):
        whole = torch.cat([part.contiguous() for part in outputs])
        dist.all_to_all_single(whole, torch.cat([part.contiguous() for part in inputs]), [len(part) for part in outputs], [len(part) for part in inputs], group)
        for part, value in zip(outputs, whole.split([len(part) for part in outputs])):
            part.copy_(value)
    dist.all_to_all = all_to_all


def unequal_shares():
    """Lets ranks gather and scatter tensors of unequal sizes, as NCCL does; gloo takes equal ones alone."""
    import torch.distributed as dist

    def all_gather(outputs, tensor, group=None, async_op=False):
        for number, part in enumerate(outputs):
            if number == dist.get_rank(group):
                part.copy_(tensor)
            dist.broadcast(part, dist.get_global_rank(group, number) if group else number, group)

    def reduce_scatter(output, inputs, group=None, async_op=False):
        for number, part in enumerate(inputs):
            whole = part.clone()
            dist.all_reduce(whole, group=group)
            if number == dist.get_rank(group):
                output.copy_(whole)
    dist.all_gather, dist.reduce_scatter = all_gather, reduce_scatter


def gpu(name):
    """Lets PyTorch answer as on this GPU of the catalog, where frameworks ask what it can do."""
    import torch
    version = capability(name)
    properties = types.SimpleNamespace(major=version[0], minor=version[1], name=name, total_memory=80 << 30)
    torch.cuda.get_device_capability = lambda *_: version
    torch.cuda.get_device_properties = lambda *_: properties
    torch.cuda.current_device = lambda: 0


if __name__ == "__main__":
    write_cuda_libraries(sys.argv[1])
