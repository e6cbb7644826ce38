# SPDX-License-Identifier: Apache-2.0
"""Every include in the sources is allowed by the table in docs/architecture.md, and rooms, each a header with its source, include each
other one way only."""

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


# The one circle that is left: a search asks for the plan that its observed runs correct, which searches in turn.
CIRCLES = [{"planner/answer/recommend", "planner/observe/observed_plan"}]
includes = {}  # of each room: the rooms that it includes


def circle_through(room):
    """The shortest way from a room back to it over includes, or nothing."""
    ways = [[room]]
    seen = set()
    for way in ways:
        for following in sorted(includes.get(way[-1], ())):
            if following == room:
                return way + [room]
            if following not in seen:
                seen.add(following)
                ways.append(way + [following])
    return None


problems = []
count = 0
for folder in ("base", "core", "models", "frameworks", "profiler", "planner", "runtime", "reports", "page"):
    for file in (root / folder).rglob("*"):
        if file.suffix not in (".h", ".cpp", ".cu", ".cuh"):
            continue
        path = file.relative_to(root).as_posix()
        own = folder_of(path)
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = re.match(r'#include "([^"]+)"', line)
            if not match or match[1].startswith("generated/"):  # of the folder itself, by cmake
                continue
            count += 1
            room = path.rsplit(".", 1)[0]
            if match[1].rsplit(".", 1)[0] != room:
                includes.setdefault(room, set()).add(match[1].rsplit(".", 1)[0])
            target = folder_of(match[1])
            if target is None:
                problems.append(f"{path}:{number}: {match[1]} is in no folder of the table")
            elif target != own and target not in allowed[own]:
                problems.append(f"{path}:{number}: {own} may not include {target} ({match[1]})")
circles = {}
for room in includes:
    way = circle_through(room)
    if way and set(way) not in CIRCLES:
        circles.setdefault(frozenset(way), "circle of includes: " + " -> ".join(way))
problems += circles.values()
problems += [f"no longer a circle: {' and '.join(sorted(pair))}" for pair in CIRCLES if not any(set(circle_through(room) or ()) == pair for room in pair)]
print("\n".join(problems) or f"{count} includes, all allowed")
if count < 100:
    sys.exit("too few includes seen: is the path right?")
sys.exit(1 if problems else 0)
