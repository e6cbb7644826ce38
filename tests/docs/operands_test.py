# SPDX-License-Identifier: Apache-2.0
"""Operations name their operands: LinearForward{.shape = s, .x = x}, not LinearForward{s, x}, where two pointers could be swapped.

Usage: operands_test.py SOURCES
"""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
header = (root / "runtime/device/operations.h").read_text()
operations = re.findall(r"\bof\((\w+)\)", header)
by_position = re.compile(r"(?<![\w~])(?:%s)(?: \w+)?\{\s*(?![\s.}])" % "|".join(operations))


def places(text):
    """Lines that begin an operation whose first operand has no name; its declaration is none."""
    code = re.sub(r"//[^\n]*", "", text)
    return [code.count("\n", 0, found.start()) + 1 for found in by_position.finditer(code) if not code[:found.start()].endswith("struct ")]


if len(operations) < 50 or places("run(ResidualAdd{n, a, b, y});\nrun(ResidualAdd{.count = n});\nstruct ResidualAdd {\n  int n;\n}") != [1]:
    sys.exit(f"{len(operations)} operations: is runtime/device/operations.h read rightly?")
problems, seen = [], 0
for folder in ("runtime", "profiler", "tests", "benchmarks"):
    for file in sorted((root / folder).rglob("*")):
        if file.suffix not in (".h", ".cpp", ".cu", ".cuh"):
            continue
        text = file.read_text()
        seen += len(re.findall(r"\b(?:%s)\{\s*\." % "|".join(operations), text))
        problems += [f"{file.relative_to(root)}:{line}: operands without names" for line in places(text)]
print("\n".join(problems) or f"{seen} operations, all with named operands")
sys.exit(1 if problems or seen < 100 else 0)
