# SPDX-License-Identifier: Apache-2.0
"""Weights as Hugging Face stores them."""

import json
import math
import mmap
import os
import struct
import sys
import zlib

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, distribute_tensor

from plan import AXES, CONFIG, DEVICE, KINDS, MODEL, RANKS, STAGES  # part
from weights_llama import read_parameter, stored_tensors  # part

# body
# Weights as Hugging Face stores them ---------------------------------------------------------------------------------------------------


class Safetensors:
    """Tensors of a folder's files, mapped into memory."""

    TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}

    def __init__(self, folder):
        self.tensors = {}
        for name in sorted(os.listdir(folder)):
            if name.endswith(".safetensors"):
                self.read(os.path.join(folder, name))

    def read(self, path):
        with open(path, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        (size,) = struct.unpack("<Q", data[:8])
        for name, entry in json.loads(data[8 : 8 + size]).items():
            if name != "__metadata__":
                begin, end = (8 + size + offset for offset in entry["data_offsets"])
                flat = torch.frombuffer(data, dtype=torch.uint8, count=end - begin, offset=begin)
                self.tensors[name] = flat.view(self.TYPES[entry["dtype"]]).view(entry["shape"])

    def __getitem__(self, name):
        for known in (name, name.partition(".")[2]):  # files of models without a head lack the first part
            if known in self.tensors:
                return self.tensors[known]
        sys.exit(f"{sys.argv[0]}: --init holds no tensor {name}, which the plan's model has")


def write_safetensors(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, offset + 4 * tensor.numel()]}
        offset += 4 * tensor.numel()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    begin = 8 + len(text)
    with open(path + ".part", "w+b") as file:
        file.truncate(begin + offset)
        data = mmap.mmap(file.fileno(), begin + offset)
    data[:begin] = struct.pack("<Q", len(text)) + text
    flat = torch.frombuffer(data, dtype=torch.uint8)
    for name, tensor in tensors.items():
        first, end = header[name]["data_offsets"]
        flat[begin + first : begin + end].copy_(tensor.contiguous().flatten().view(torch.uint8))
    data.flush()
    os.rename(path + ".part", path)


def first_value(name, shape, seed):
    if name.endswith(".bias"):
        return torch.zeros(shape, device=DEVICE)
    if len(shape) == 1:
        return torch.ones(shape, device=DEVICE)
    generator = torch.Generator(DEVICE).manual_seed(zlib.crc32(f"{seed} {name}".encode()))
    deviation = 0.01 if name.startswith("positions") else 0.02
    if name.split(".")[-2] in ("o_proj", "down_proj") or name.endswith(".w2"):
        deviation /= math.sqrt(2 * len(KINDS))
    return torch.randn(shape, generator=generator, device=DEVICE) * deviation


@torch.no_grad()
def set_weights(models, folder, seed):
    """Each rank takes its own part of every weight."""
    files = Safetensors(folder) if folder else None
    for model in models.values():
        for name, parameter in model.named_parameters():
            value = read_parameter(files, name, parameter.shape) if files else first_value(name, parameter.shape, seed)
            if value.shape != parameter.shape:
                sys.exit(f"{sys.argv[0]}: {name} is {list(value.shape)} in --init, and {list(parameter.shape)} in the plan's model")
            value = value.to(DEVICE, torch.float32)
            if isinstance(parameter, DTensor):
                value = distribute_tensor(value.contiguous(), parameter.device_mesh, parameter.placements, src_data_rank=None).to_local()
                parameter = parameter.to_local()
            parameter.copy_(value)


@torch.no_grad()
def save_weights(models, mesh, folder):
    """A file for each stage, written by the first of its ranks, and the index of all."""
    os.makedirs(folder, exist_ok=True)
    index = {}
    for stage, model in models.items():
        whole = {name: p.full_tensor() if isinstance(p, DTensor) else p for name, p in model.named_parameters()}
        if all(mesh.get_local_rank(axis) == 0 for axis in AXES if axis != "pp"):
            tensors = stored_tensors({name: value.cpu() for name, value in whole.items()})
            path = f"model-{stage + 1:05}-of-{STAGES:05}.safetensors" if STAGES > 1 else "model.safetensors"
            write_safetensors(os.path.join(folder, path), tensors)
            index |= {name: (path, 4 * tensor.numel()) for name, tensor in tensors.items()}
    indices = [None] * RANKS
    dist.all_gather_object(indices, index)
    if dist.get_rank() == 0:
        whole = {name: entry for index in indices for name, entry in index.items()}
        if STAGES > 1:
            text = {"metadata": {"total_size": sum(size for _, size in whole.values())},
                    "weight_map": {name: path for name, (path, _) in whole.items()}}
            write_json(os.path.join(folder, "model.safetensors.index.json"), text)
        if CONFIG:
            write_json(os.path.join(folder, "config.json"), {**CONFIG, "dtype": "float32"})


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)
        file.write("\n")
