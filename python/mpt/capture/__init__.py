# SPDX-License-Identifier: Apache-2.0
"""Captures the configuration of a training command in its framework's form: python -m mpt.capture -- torchrun ... pretrain_gpt.py ...

`command` runs the command's script in a separate process, as rank 0, until the framework has parsed its configuration. It writes that as
JSON for `mpt-plan import --captured FILE`. `launchers` and `shell` find the process that the command would start. `frameworks` finds the
configuration. `guard` and `files` limit the script meanwhile. docs/python.md has the page for users.
"""

from mpt.capture.command import main

__all__ = ["main"]
