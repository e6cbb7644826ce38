# SPDX-License-Identifier: Apache-2.0
"""One rank of an exported trial with DeepSpeed on CPUs: trial_deepspeed.py FOLDER, with the variables of torchrun."""

import json
import logging
import os
import re
import runpy
import sys

FOLDER = sys.argv[1]
sys.path[:0] = [FOLDER, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")]

import stubs  # noqa: E402

stubs.use()
stubs.plain_gloo()
from deepspeed.utils import logger  # noqa: E402


class Reports(logging.Handler):
    """Steps whose speed and memory DeepSpeed's log has."""
    steps = []

    def emit(self, record):
        self.steps += map(int, re.findall(r"global_step=(\d+), .*CurrSamplesPerSec=[\d.]+, .*MaxMemAllocated=", record.getMessage()))


logger.addHandler(Reports())
sys.argv = [os.path.join(FOLDER, "mpt_deepspeed_trial.py"), "20"]
runpy.run_path(sys.argv[0], run_name="__main__")
print(json.dumps({"reports": Reports.steps}))
