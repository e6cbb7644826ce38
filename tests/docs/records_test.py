#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Published runs as requests: they follow their schema, and predictions are those of the records in prose, with the constants that
the cost model had then (reports/validation/resolved_constants.json).

Usage: records_test.py SOURCES PROGRAMS [all]. Without `all` the predictions of a few families are compared.
"""

import json
import math
import pathlib
import sys

import jsonschema

ROOT, PROGRAMS = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
sys.path.insert(0, str(ROOT / "benchmarks"))
import predictions

FOLDER = ROOT / "reports/validation"
SAMPLE = ["bridge", "zerobubble", "titan-pr", "bloom", "deepseek", "aceso", "mosaic"]
problems = []


def lines_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def schema_of_records():
    """With the schema of requests in the place of its reference."""
    schema = json.loads((FOLDER / "record.schema.json").read_text())
    request = schema["properties"]["request"]
    return {**schema, "properties": {**schema["properties"], "request": json.loads((FOLDER / request["$ref"]).read_text())}}


def check_schema(records):
    validator = jsonschema.Draft202012Validator(schema_of_records())
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


def check_frameworks():
    """Software that published runs alone need has a file of its name, which is no product's."""
    products = {file.parent.name for file in (ROOT / "frameworks").glob("*/framework.json")}
    for file in (FOLDER / "frameworks").glob("*.json"):
        name = json.loads(file.read_text())["framework"]
        if name != file.stem or name in products:
            problems.append(f"{file.name} has the values of {name}, or a product has this name, too")


def alike(ours, theirs):
    return ours is not None and math.isclose(ours, theirs, rel_tol=1e-8)


# Every modelled measurement has the prediction that the readers of prose made. They read no later records.
def check_predictions(records, reference):
    count = 0
    for run in predictions.predict(PROGRAMS, list(records.values()), "--calibration", FOLDER / "resolved_constants.json"):
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
    check_frameworks()
    records = {record["id"]: record for _, record in numbered}
    reference = {entry["id"]: entry for entry in lines_of(FOLDER / "resolved.jsonl")}
    if missing := reference.keys() - records.keys():
        problems.append(f"{len(missing)} runs are in resolved.jsonl alone: {sorted(missing)[:5]}")
    compared = {name: records[name] for name in reference.keys() & records.keys()
                if "all" in sys.argv[3:] or records[name]["family"] in SAMPLE}
    same = check_predictions(compared, reference)
    print("\n".join(problems) or f"{len(records)} records follow the schema, {same} predictions are those of the prose")
    sys.exit(1 if problems else 0)


main()
