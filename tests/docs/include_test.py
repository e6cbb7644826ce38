# SPDX-License-Identifier: Apache-2.0
"""Every include in the sources is allowed by the table in docs/architecture.md."""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
allowed = {}
for line in (root / "docs/architecture.md").read_text().splitlines():
    row = re.fullmatch(r"\| ([a-z/]+) \|(.*)\|", line)
    if row and row[1] != "folder":
        allowed[row[1]] = {name.strip() for name in row[2].split(",") if name.strip()}
folders = sorted(allowed, key=len, reverse=True)


def folder_of(path):
    for folder in folders:
        if path == folder or path.startswith(folder + "/"):
            return folder
    return None


problems = []
count = 0
for folder in ("base", "core", "models", "frameworks", "profiler", "planner", "runtime", "reports"):
    for file in (root / folder).rglob("*"):
        if file.suffix not in (".h", ".cpp", ".cu", ".cuh"):
            continue
        path = file.relative_to(root).as_posix()
        own = folder_of(path)
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = re.match(r'#include "([^"]+)"', line)
            if not match:
                continue
            count += 1
            target = folder_of(match[1])
            if target is None:
                problems.append(f"{path}:{number}: {match[1]} is in no folder of the table")
            elif target != own and target not in allowed[own]:
                problems.append(f"{path}:{number}: {own} may not include {target} ({match[1]})")
print("\n".join(problems) or f"{count} includes, all allowed")
if count < 100:
    sys.exit("too few includes seen: is the path right?")
sys.exit(1 if problems else 0)
