# SPDX-License-Identifier: Apache-2.0
"""Data, as mpt-run reads them."""

import math
import mmap
import os
import struct
import sys

import torch

from model import local_positions  # part
from plan import AXIS, DEVICE, MICRO_BATCH, MICRO_BATCHES, MODEL, SEQUENCE  # part

# body
# Data, as mpt-run reads them ---------------------------------------------------------------------------------------------------------

MASK = (1 << 64) - 1


def scramble(x):
    x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCD & MASK
    x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53 & MASK
    return x ^ (x >> 33)


def permuted(index, size, key):
    """The order of samples: a permutation of range(size) that is computed, not stored."""
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    while True:
        left, right = index >> half, index & ((1 << half) - 1)
        for step in range(4):
            left, right = right, left ^ (scramble((right + scramble((key + step) & MASK)) & MASK) & ((1 << half) - 1))
        index = left << half | right
        if index < size:
            return index


def open_tokens(path, form):
    """Text as bytes; Megatron-LM's .bin with .idx; llm.c's files with a header; tokens of 16 or 32 bits without one."""
    stem = path.removesuffix(".bin").removesuffix(".idx")
    indexed = form == "megatron" or form == "auto" and os.path.exists(stem + ".bin") and os.path.exists(stem + ".idx")
    with open(stem + ".bin" if indexed else path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    magic = struct.unpack("<i", data[:4])[0] if len(data) >= 1024 else 0
    offset = 0
    if indexed:
        with open(stem + ".idx", "rb") as file:
            header = file.read(18)
        kind = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}[header[17]]
    elif form == "text" or form == "auto" and not path.endswith(".bin"):
        kind = "uint8"
    elif magic in (20240520, 20240801):
        kind, offset = "uint16" if magic == 20240520 else "uint32", 1024
    elif form in ("uint16", "uint32"):
        kind = form
    else:
        sys.exit(f"{sys.argv[0]}: --data {path}: tokens of unknown width; add --data-format uint16, uint32 or text")
    check_width(path, form, kind)
    return torch.frombuffer(data, dtype=getattr(torch, kind), offset=offset)


def check_width(path, form, kind):
    """The bytes of text are a vocabulary of their own. Narrow elements hold the tokens of another one, or ids that were cut."""
    vocabulary, ids = MODEL["vocab"], torch.iinfo(getattr(torch, kind)).max + 1
    if form == "text" or (vocabulary == ids if ids == 256 else vocabulary <= ids):
        return
    remedy = ("tokenise it, and add --data-format uint16 or uint32; --data-format text trains on its bytes" if ids == 256 else
              "write the tokens again with 32 bits each, and add --data-format uint32")
    sys.exit(f"{sys.argv[0]}: --data {path}: ids 0 to {ids - 1}; the model's vocabulary is {vocabulary}; {remedy}")


class Dataset:
    """Windows of SEQUENCE tokens, shuffled. What sample a number shows follows from the seed alone, in every layout."""

    BLOCK = 1024  # samples in which a blend has each part in its share

    def __init__(self, words, form, seed):
        pairs = list(zip(words[::2], words[1::2])) if is_number(words[0]) else []
        parts = [(float(weight), [path]) for weight, path in pairs] or [(1.0, words)]
        whole, before, self.seed, self.parts = sum(weight for weight, _ in parts), 0.0, seed, []
        for weight, paths in parts:
            sources = [open_tokens(path, form) for path in paths]
            windows = (sum(len(source) for source in sources) - 1) // SEQUENCE
            if windows < 1:
                sys.exit(f"{sys.argv[0]}: --data {' '.join(paths)}: less than {SEQUENCE + 1} tokens")
            self.parts.append((before, sources, windows))
            before += weight / whole

    def draw(self, number):
        """Part, and number within it."""
        if len(self.parts) == 1:
            return 0, number
        block = number // self.BLOCK
        place = permuted(number % self.BLOCK, self.BLOCK, self.seed ^ scramble(block + 77))
        bounds = [before for before, _, _ in self.parts] + [None]
        count = lambda part, blocks: blocks * self.BLOCK if bounds[part] is None else math.floor(bounds[part] * blocks * self.BLOCK)  # noqa: E731
        begin = 0
        for part in range(len(self.parts)):
            earlier = count(part + 1, block) - count(part, block)
            here = count(part + 1, block + 1) - count(part, block + 1) - earlier
            if place < begin + here:
                return part, earlier + place - begin
            begin += here
        raise AssertionError("a blend without this place")

    def sample(self, number):
        """SEQUENCE + 1 tokens."""
        part, number = self.draw(number)
        _, sources, windows = self.parts[part]
        window = permuted(number % windows, windows, self.seed ^ scramble(number // windows + 1))
        begin, left, pieces = window * SEQUENCE, SEQUENCE + 1, []
        for source in sources:
            if begin < len(source) and left > 0:
                pieces.append(source[begin : begin + left].long())
                left -= len(pieces[-1])
            begin = max(0, begin - len(source))
        tokens = torch.cat(pieces)
        if tokens.min() < 0 or tokens.max() >= MODEL["vocab"]:
            sys.exit(f"{sys.argv[0]}: --data holds a token beyond the model's vocabulary of {MODEL['vocab']}")
        return tokens

    def batch(self, first, mesh):
        """Tokens and targets of a step for this rank, [micro-batches, sequences, tokens]."""
        replica = mesh.get_local_rank("dp_replicate") * AXIS["dp_shard"] + mesh.get_local_rank("dp_shard")
        own = MICRO_BATCH * MICRO_BATCHES
        rows = torch.stack([self.sample(first + replica * own + i) for i in range(own)])
        positions = local_positions(mesh.get_local_rank("cp"))
        return [rows[:, positions + shift].view(MICRO_BATCHES, MICRO_BATCH, -1).to(DEVICE) for shift in (0, 1)]


def is_number(word):
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False
