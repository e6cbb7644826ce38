# SPDX-License-Identifier: Apache-2.0
"""The library that multiplies matrices in a process, from the libraries that it has mapped."""

import ctypes
import os
import re

# The first mapped one counts: Debian's libblas.so.3 of OpenBLAS only wraps libopenblas.
LIBRARIES = (r"^libopenblas", r"^libblis", r"^libmkl_(rt|core)", r"^lib(atlas|satlas|tatlas)", r"^libblas\.so")


def openblas_core(path):
    """The processor that an OpenBLAS has chosen its kernels for."""
    try:
        core = ctypes.CDLL(path).openblas_get_corename
        core.restype = ctypes.c_char_p
        return f", kernels for {core().decode()}"
    except (AttributeError, OSError):
        return ""


def blas_of(paths, configuration, core=openblas_core):
    """The BLAS of a process with these mapped files and a PyTorch of this configuration."""
    for pattern in LIBRARIES:
        for path in sorted(paths):
            name = os.path.basename(path)
            if not re.search(pattern, name):
                continue
            if pattern == r"^libopenblas":
                version = re.search(r"r(\d+(\.\d+)+)", name)
                return f"OpenBLAS {version[1] if version else f'({name})'}{core(path)}"
            return f"reference BLAS ({name})" if pattern == r"^libblas\.so" else name
    inside = re.search(r"Math Kernel Library Version (\d+(\.\d+)*)", configuration)
    named = re.search(r"BLAS_INFO=(\w+)", configuration)
    return f"MKL {inside[1]}, part of PyTorch" if inside else f"{named[1]}, part of PyTorch" if named else "unknown BLAS"


def mapped_files():
    with open("/proc/self/maps") as maps:
        return {line.split()[-1] for line in maps if "/" in line}
