# SPDX-License-Identifier: Apache-2.0
"""How well the kernel tables interpolate: every inner value of an axis is left out in turn and interpolated from the rest.

Usage: kernel_tables.py [FOLDER_OF_TABLES]

Interpolation is linear in the logarithms of axis and value, like in profiler/hardware/kernel_tables.cpp. The error is of the value (a
time or a rate). Left-out points are twice as far apart as the points of a lookup, so it is an upper estimate.
"""

import json
import math
import pathlib
import statistics
import sys


def errors(axes, values, wanted=lambda axis, point: True):
    strides = [math.prod(len(a) for a in axes[i + 1:]) for i in range(len(axes))]
    for number, axis in enumerate(axes):
        for i in range(1, len(axis) - 1):
            share = math.log(axis[i] / axis[i - 1]) / math.log(axis[i + 1] / axis[i - 1])
            for index, value in enumerate(values):
                if index // strides[number] % len(axis) != i:
                    continue
                point = [axes[a][index // strides[a] % len(axes[a])] for a in range(len(axes))]
                if not wanted(number, point):
                    continue
                below, above = values[index - strides[number]], values[index + strides[number]]
                yield abs(math.exp((1 - share) * math.log(below) + share * math.log(above)) / value - 1)


def row(table, name, found):
    found = sorted(found)
    return (f"| {table} | {name} | {len(found)} | {100 * statistics.mean(found):.1f} % | {100 * found[len(found) // 2]:.1f} % "
            f"| {100 * found[len(found) * 9 // 10]:.1f} % |")


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1] / "profiler/hardware/kernels"
    print("| GPU | table | points left out | mean | median | 9 of 10 below |\n| --- | --- | --- | --- | --- | --- |")
    for file in sorted(pathlib.Path(folder).iterdir()):
        t = json.loads(file.read_text())
        for dtype, g in t.get("gemm", {}).items():
            # Products in the range of trainings: at least 512 rows, 512 to 16,384 columns.
            inside = lambda axis, p: p[0] >= 512 and 512 <= p[1] <= 16384 and 512 <= p[2] <= 16384
            print(row(t["device"], f"products, {dtype}", errors([g["m"], g["n"], g["k"]], g["time_us"], inside)))
        attention = [e for a in t.get("attention_forward", []) for e in errors([a["sequence"], a["heads"]], a["tflop_per_s"])]
        trained = t.get("training_attention", {})
        shares = [e for precision in ("bf16", "fp8", "mxfp8") for grid in trained.get(precision, {}).values()
                  for e in errors([trained["head_dim"], trained["sequence"]], grid, lambda axis, p: axis == 1)]
        # A node's fitted line has no points to leave out.
        collective = [e for c in t.get("collective", {}).values() for e in errors([c["ranks"], c["bytes"]], c["time_us"])] if "gemm" in t else []
        for name, found in (("attention", attention), ("training against that", shares), ("collectives", collective)):
            if found:
                print(row(t["device"], name, found))


main()
