# SPDX-License-Identifier: Apache-2.0
"""What a training command configures, in the framework's own words: python -m mpt.capture -- torchrun ... pretrain_gpt.py ...

`command` runs the command's script in a process of its own, as rank 0, until the framework has parsed its configuration, and writes
that as JSON for `mpt-plan import --captured FILE`. `launchers` and `shell` say what the command would start, `frameworks` where the
configuration is, `guard` and `files` what the script may not do meanwhile. docs/python.md has the page for users.
"""

from mpt.capture.command import main

__all__ = ["main"]
