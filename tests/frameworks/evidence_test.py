#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What frameworks/*/framework.json says was seen of combinations, looked up again: each run is a case of started/seen.json or a test of
this tree with the outcome that the row says, and each quoted phrase stands in the named file of the installed package.

Usage: evidence_test.py [ENVIRONMENTS]; without the folder of the environments (scripts/install-frameworks) only runs are looked up.
"""
import json
import pathlib
import re
import sys

CLASSES = "frameworks/transformers/classes.json"
ROOT = pathlib.Path(__file__).resolve().parents[2]
LINE = re.compile(r"([\w-]+) (\d[\w.]*), ([\w/.-]+\.py): `([^`]+)`")
RIGHT, WRONG, STOPS = ("right",), ("wrong", "scaled"), ("raises",)
OUTCOMES = {"trains_wrong": WRONG, "other_objective": WRONG, "does_not_start": STOPS, "unplanned": RIGHT + WRONG, "refuses": STOPS}


def seen_cases():
    rows = json.loads((ROOT / "tests/frameworks/started/seen.json").read_text())["rows"]
    return {row["case"]: row["outcome"] for row in rows}


def rows_of(framework):
    for rule in framework["abilities"].get("combinations", []):
        yield rule, OUTCOMES[rule["outcome"]]
    for row in framework["abilities"]["judged"]:
        yield row, RIGHT
    yield {"with": ["checkpoint"], "seen": framework["checkpoint"]["seen"]}, RIGHT


def runs_of(seen):
    for part in re.findall(r"run: ([^;]+)", seen):
        for name in part.split(","):
            yield name.split()[0]


def wrong_run(name, cases, outcomes):
    if name.startswith(("tests/", "findings/")):
        return None if (ROOT / name).is_file() else f"no file {name}"
    if name not in cases:
        return f"no case {name} in started/seen.json"
    return None if cases[name] in outcomes else f"case {name} was seen to be {cases[name]}, not {' or '.join(outcomes)}"


def wrong_line(package, version, path, phrase, environments):
    places = [site for site in environments.glob("*/lib/python3*/site-packages") if (site / path).is_file()]
    if not places:
        return f"{package} {version} has no {path}"
    infos = [info.name for site in places for info in site.glob("*.dist-info")]
    wanted = f"{package.replace('-', '_')}-{version}".lower()
    if not any(name.lower().replace("-", "_").startswith(wanted.replace("-", "_")) for name in infos):
        return f"{package} {version} is not installed beside {path}"
    if not any(phrase in (site / path).read_text(errors="replace") for site in places):
        return f"{package} {version}, {path} does not say `{phrase}`"
    return None


def problems(environments):
    cases = seen_cases()
    for file in sorted(ROOT.glob("frameworks/*/framework.json")):
        framework = json.loads(file.read_text())
        for row, outcomes in rows_of(framework):
            runs, lines = list(runs_of(row["seen"])), LINE.findall(row["seen"])
            found = [wrong_run(name, cases, outcomes) for name in runs]
            if environments:
                found += [wrong_line(*line, environments) for line in lines]
            if not runs and "line: " not in row["seen"] and framework["name"] not in ("mpt", "pytorch"):
                found.append("neither a run nor a line")
            for problem in filter(None, found):
                yield f"{file.relative_to(ROOT)}: {' '.join(row['with'])}: {problem}"
    table = json.loads((ROOT / CLASSES).read_text())
    for row in [*table["rows"], *({"execution": [name], "seen": table[f"{name}_seen"]} for name in ("moved_adapters", "kernels", "wrapped"))]:
        runs, lines = list(runs_of(row["seen"])), LINE.findall(row["seen"])
        found = [wrong_run(name, cases, RIGHT) for name in runs] + [wrong_line(*line, environments) for line in lines if environments]
        for problem in [*filter(None, found), *([] if runs or lines else ["neither a run nor a line"])]:
            yield f"{CLASSES}: {' '.join(row['execution'])}: {problem}"


def main():
    found = list(problems(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None))
    print("\n".join(found) or "every run and every quoted phrase was found")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
