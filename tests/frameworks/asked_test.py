# SPDX-License-Identifier: Apache-2.0
"""Each setting that a framework has is read by its import, refused or noted by name, or has no effect on a plan.

Usage: asked_test.py SOURCE_FOLDER. The settings: frameworks/*/asked.json. Those without effect, by the reason: no_effect/*.json here.
A new version of a framework with a new setting fails this test until somebody has said which it is.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
PROBLEMS = []


def words_of(rows):
    """Words that rows of a dialect read."""
    if isinstance(rows, dict):
        yield from (rows[key] for key in ("word", "if_word") if isinstance(rows.get(key), str))
        yield from rows.get("also", [])
        rows = list(rows.values())
    for row in rows if isinstance(rows, list) else []:
        yield from words_of(row)


def read_by_name(folder):
    """Names in the code of a framework, and in the table of its words."""
    sources = [source for one in ROOT.glob(f"frameworks/{folder.name}*") for source in (*one.glob("*.cpp"), *one.glob("*.rows.json"))]
    names = {name for source in sources for name in re.findall(r'"([\w.-]+)"', source.read_text())}
    described = folder / "framework.json"
    shared = json.loads(described.read_text()).get("dialect", folder.name) if described.exists() else folder.name
    dialect = folder.parent / shared / "dialect.json"
    if dialect.exists():
        table = json.loads(dialect.read_text())
        names.update(words_of(table.get("rows", [])))
        for kind in ("refused", "not_taken_over", "former"):
            names.update(table.get(kind, []))
    return names | {name.rsplit(".", 1)[0] for name in names if "." in name}  # and sections of what is read


for file in sorted((ROOT / "tests/frameworks/no_effect").glob("*.json")):
    asked = json.loads((ROOT / "frameworks" / file.stem / "asked.json").read_text())
    keys = {key for names in asked["keys"].values() for key in names}
    reasons = json.loads(file.read_text())
    idle = [key for names in reasons.values() for key in names]
    read = read_by_name(ROOT / "frameworks" / file.stem)
    for key in sorted(keys - read - set(idle)):
        PROBLEMS.append(f"{file.stem}: nothing reads {key}: read it, refuse it, or say in {file.name} why it has no effect")
    for key in sorted(set(idle) - keys):
        PROBLEMS.append(f"{file.stem}: {file.name} has {key}, which the framework does not have")
    for key in sorted(key for key in set(idle) if idle.count(key) > 1 or key in read):
        PROBLEMS.append(f"{file.stem}: {key} stands in {file.name} twice, or is read")

with_keys = {file.parent.name for file in (ROOT / "frameworks").glob("*/asked.json") if "keys" in json.loads(file.read_text())}
judged = {file.stem for file in (ROOT / "tests/frameworks/no_effect").glob("*.json")}
if with_keys != judged:
    PROBLEMS.append(f"frameworks with settings: {sorted(with_keys)}; with lists of those without effect: {sorted(judged)}")
print("\n".join(PROBLEMS) or "each setting is read, refused, noted, or without effect")
sys.exit(1 if PROBLEMS else 0)
