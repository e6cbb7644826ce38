# SPDX-License-Identifier: Apache-2.0
"""Published runs of reports/validation/records (docs/validation.md), for the scripts of this folder."""

import glob
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/support"))

from flat_model import flat  # noqa: E402

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reports", "validation", "records")


def read(path=FOLDER):
    """The runs of a file, or of all files of a folder."""
    runs = []
    for name in sorted(glob.glob(os.path.join(path, "*.jsonl"))) if os.path.isdir(path) else [path]:
        with open(name) as file:
            runs += [json.loads(line) for line in file if line.strip()]
    return runs


def write(runs, file):
    for run in runs:
        file.write(json.dumps(run) + "\n")
    file.flush()


def grouped(items, key):
    """{key(item): [items with that key]}, in the order of the items."""
    groups = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def of_set(name):
    return {run["id"]: run for run in read() if run["set"] == name}


def precision_of(run):
    return run["request"]["layout"]["precision"]


def model_of(run):
    model = run["request"]["model"]
    if isinstance(model, str):
        with open(os.path.join(FOLDER, "..", "..", "..", "models", "zoo", f"{model}.json")) as file:
            model = json.load(file)
    return flat(model)


def has_experts(run):
    return bool(model_of(run).get("moe"))
