# SPDX-License-Identifier: Apache-2.0
"""By how much the prices of each class of work are off: planner/explain/price_errors.json, from which mpt-plan draws errors to say
how far its choice depends on them. docs/search.md has the method.

Part of accuracy.py.
"""

import json
import math
import os
import statistics

import choice

ERRORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "planner", "explain", "price_errors.json")
CLASSES = ("products", "attention", "elementwise", "grouped_products", "tensor_collectives", "expert_exchange", "data_parallel",
           "transfers", "optimizer", "host")
PARTS = ("degrees", "pipeline", "state")  # that two layouts can differ in: parts_of() in planner/explain/drawn_choice.cpp
NOISE = "noise"  # of a measurement, and of what nothing here explains
ROUNDS = 5
LARGEST = 0.3  # difference of two residuals: what is further apart has other reasons than prices
SMALLEST = 0.03  # expected difference: no pair tells more than that


def layouts_of(runs):
    """Of one set: residual, shares of classes and parts of each of its layouts."""
    out = []
    for of_layout in runs.values():
        fastest = min(of_layout, key=lambda p: p["predicted_iter_time_s"])
        measured = statistics.median(p["measured_iter_time_s"] for p in of_layout)
        step = sum(fastest["work_s"])
        out.append((math.log(measured / fastest["predicted_iter_time_s"]), [s / step for s in fastest["work_s"]], fastest["parts"]))
    return out


def pairs_of(sets):
    """(squared difference of residuals, what each unknown variance counts in it, weight): a source weighs as the root of its sets,
    and a set as one."""
    by_source = {}
    for key, s in sets.items():
        by_source.setdefault(json.loads(key)[0], []).append(layouts_of(s["ran"]))
    pairs = []
    for of_source in by_source.values():
        for layouts in of_source:
            found = []
            for i, (a, shares_a, parts_a) in enumerate(layouts):
                for b, shares_b, parts_b in layouts[:i]:
                    counts = [(x - y) ** 2 for x, y in zip(shares_a, shares_b)]
                    counts += [2.0 * (x != y) for x, y in zip(parts_a, parts_b)] + [2.0]
                    found.append((min(abs(a - b), LARGEST) ** 2, counts))
            weight = math.sqrt(len(of_source)) / len(of_source) / max(1, len(found))
            pairs += [(square, counts, weight) for square, counts in found]
    return pairs


def nonnegative_least_squares(pairs, weights):
    """Coordinate descent on the normal equations."""
    n = len(pairs[0][1])
    matrix = [[0.0] * n for _ in range(n)]
    right = [0.0] * n
    for (square, counts, _), w in zip(pairs, weights):
        used = [k for k in range(n) if counts[k]]
        for i in used:
            right[i] += w * counts[i] * square
            for j in used:
                matrix[i][j] += w * counts[i] * counts[j]
    x = [0.0] * n
    for _ in range(2000):
        for i in range(n):
            if matrix[i][i] > 0:
                x[i] = max(0.0, x[i] + (right[i] - sum(matrix[i][j] * x[j] for j in range(n))) / matrix[i][i])
    return x


def variances(pairs):
    """The variance of a square grows with the square of what is expected: each round weighs by the last one's expectation."""
    weights = [w for _, _, w in pairs]
    for _ in range(ROUNDS):
        x = nonnegative_least_squares(pairs, weights)
        expected = [max(SMALLEST ** 2, sum(a * b for a, b in zip(counts, x))) for _, counts, _ in pairs]
        weights = [w / e ** 2 for (_, _, w), e in zip(pairs, expected)]
    return x


def spreads(sets):
    """Standard deviations by name."""
    return dict(zip((*CLASSES, *PARTS, NOISE), map(math.sqrt, variances(pairs_of(sets)))))


def write(found):
    with open(ERRORS, "w") as file:
        lines = (json.dumps({"of": name, "spread": round(spread, 3)}) for name, spread in found.items())
        file.write("[\n" + ",\n".join(lines) + "\n]\n")
