# SPDX-License-Identifier: Apache-2.0
"""Makes Linux refuse writes outside some folders, for this process and all that it starts: Landlock, since Linux 5.13.

It also covers accesses that Python does not see: files opened by compiled code. It needs no privileges, and cannot be undone.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # system calls, the same numbers on every architecture
_VERSION, _PATH_BENEATH, _NO_NEW_PRIVILEGES = 1, 1, 38
_WRITES = 0x1FF2  # linux/landlock.h: to write, to remove and to make each kind of file
_ON_FILES = 0x4002  # rights that apply to files: to write, to truncate


def _handled(version: int) -> int:
    """Kernels refuse unknown rights: moving between folders came with version 2, truncation with 3."""
    return _WRITES | (0x2000 if version >= 2 else 0) | (0x4000 if version >= 3 else 0)


def restrict_writes(folders: Iterable[str]) -> bool:
    """Whether the kernel now refuses writes outside these folders or files. Those already open stay open."""
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    if version < 1:
        return False
    handled = _handled(version)
    ruleset = libc.syscall(_CREATE_RULESET, struct.pack("Q", handled), ctypes.c_size_t(8), ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    try:
        for folder in filter(os.path.exists, folders):
            beneath = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            granted = handled if os.path.isdir(folder) else handled & _ON_FILES
            libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", granted, beneath), ctypes.c_uint32(0))
            os.close(beneath)
        return libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0 and libc.syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint32(0)) == 0
    finally:
        os.close(ruleset)
