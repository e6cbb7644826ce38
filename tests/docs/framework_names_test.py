# SPDX-License-Identifier: Apache-2.0
"""No C++ outside frameworks/ knows a framework by its name: what differs is data or in its folder."""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
names = {file.parent.name for file in root.glob("frameworks/*/framework.json")}
names |= {file.stem for file in root.glob("reports/validation/frameworks/*.json")}
names.remove("mpt")  # core/execution.h: the defaults are its own
literal = re.compile('"(' + "|".join(sorted(map(re.escape, names))) + ')"')
problems, count = [], 0
for folder in ("base", "core", "models", "profiler", "planner", "runtime", "reports"):
    for file in (root / folder).rglob("*"):
        path = file.relative_to(root).as_posix()
        if file.suffix not in (".h", ".cpp", ".cu", ".cuh"):
            continue
        count += 1
        for number, line in enumerate(file.read_text().splitlines(), 1):
            found = literal.search(line.split("//")[0])
            if found:
                problems.append(f"{path}:{number}: {found[0]}")
print("\n".join(problems) or f"{len(names)} names, in none of {count} files")
if count < 100 or len(names) < 10:
    sys.exit("too few files or names seen: is the path right?")
sys.exit(1 if problems else 0)
