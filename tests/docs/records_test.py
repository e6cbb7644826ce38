#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Published runs as requests: they follow their schema, and predictions are those of the records in prose, with the constants that
the cost model had then (reports/validation/resolved_constants.json).

Usage: records_test.py SOURCES PROGRAMS [all]. Without `all` the predictions of a few families are compared.
"""

import json
import math
import pathlib
import subprocess
import sys

import jsonschema

ROOT, PROGRAMS = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
FOLDER = ROOT / "reports/validation"
SAMPLE = ["bridge", "zerobubble", "titan-pr", "bloom", "deepseek", "aceso", "mosaic"]
problems = []


def lines_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def check_schema(records):
    validator = jsonschema.Draft202012Validator(json.loads((FOLDER / "record.schema.json").read_text()))
    seen = set()
    for where, record in records:
        problems.extend(f"{where}: /{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"
                        for error in validator.iter_errors(record))
        if record["id"] in seen:
            problems.append(f"{where}: {record['id']} is there twice")
        seen.add(record["id"])
        if not where.startswith(record["family"] + ".jsonl:"):
            problems.append(f"{where}: a run of {record['family']} is in the file of another family")
    broken = json.loads(json.dumps(records[0][1]))
    broken["request"]["layout"]["tensr"] = 2
    if validator.is_valid(broken):
        problems.append("record.schema.json accepts a misspelt field")


# None where the command refused the file.
def predictions(path):
    done = subprocess.run([PROGRAMS / "mpt-plan", "validate", path, "--json", "--calibration", FOLDER / "resolved_constants.json"],
                          capture_output=True, text=True)
    if done.returncode not in (0, 2) or not done.stdout:
        problems.append(f"{path}: exit code {done.returncode}: {done.stderr[:300]}")
        return []
    return json.loads(done.stdout)["runs"]


def alike(ours, theirs):
    return ours is not None and math.isclose(ours, theirs, rel_tol=1e-8)


# Every modelled measurement has the prediction that the readers of prose made. They read no later records.
def check_predictions(path, records, reference):
    count = 0
    for run in predictions(path):
        if run["id"] not in reference:
            continue
        known, unmodelled = reference[run["id"]], records[run["id"]].get("unmodelled", {})
        if run["skipped"]:
            problems.append(f"{run['id']}: {run['skipped']}")
            continue
        for ours, theirs, measure in (("predicted_iter_time_s", "s", "seconds"), ("predicted_peak_mem_gib", "gib", "gib")):
            if measure in unmodelled:
                continue
            count += 1
            if not alike(run[ours], known[theirs]):
                problems.append(f"{run['id']}: {run[ours]:.9g} {measure}, {known[theirs]} from its prose")
    return count


def main():
    files = sorted((FOLDER / "records").glob("*.jsonl"))
    numbered = [(f"{file.name}:{number}", record) for file in files for number, record in enumerate(lines_of(file), 1)]
    check_schema(numbered)
    records = {record["id"]: record for _, record in numbered}
    reference = {entry["id"]: entry for entry in lines_of(FOLDER / "resolved.jsonl")}
    if missing := reference.keys() - records.keys():
        problems.append(f"{len(missing)} runs are in resolved.jsonl alone: {sorted(missing)[:5]}")
    paths = [FOLDER / "records"] if "all" in sys.argv[3:] else [file for file in files if file.stem in SAMPLE]
    same = sum(check_predictions(path, records, reference) for path in paths)
    print("\n".join(problems) or f"{len(records)} records follow the schema, {same} predictions are those of the prose")
    sys.exit(1 if problems else 0)


main()
