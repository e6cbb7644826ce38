# SPDX-License-Identifier: Apache-2.0
"""By how much the prices of each class of work are off: planner/explain/price_errors.json, from which mpt-plan draws errors to say
how far its choice depends on them. docs/search.md has the method.

Part of accuracy.py.
"""

import json
import math
import os
import statistics

ERRORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "planner", "explain", "price_errors.json")
CLASSES = ("products", "attention", "elementwise", "grouped_products", "tensor_collectives", "expert_exchange", "data_parallel",
           "transfers", "optimizer", "host")
# What two layouts can differ in, and which part each of their doublings and kinds is of: LayoutTraits in
# planner/explain/drawn_choice.h.
PARTS = ("degrees", "pipeline", "state")
OF_DOUBLINGS, OF_KINDS = (0, 0, 0, 0, 1), (0, 1, 2, 2, 2)
FEWEST = 3  # layouts of a set
LARGEST = 0.4  # difference of two residuals; records that differ by more differ in more than prices
SMALLEST = 0.03  # expected difference: no pair tells more than that
LEAST, MOST = 0.03, 0.1  # spread of a class: that of points between those of the kernel tables; no measured kernel is worse known
PULL = 10.0  # weight of the common spread over the mean weight of a class
ROUNDS, SWEEPS = 6, 150


def runs_of_sets(records, runs):
    """Sets of at least FEWEST layouts of one source, model, batch, precision, machine and software, by source: what one search
    chooses among. A set has the runs of each of its layouts."""
    sets = {}
    for r in (r for r in runs if not r["skipped"] and r["measured_iter_time_s"] and not r.get("range_s")):
        request = records[r["id"]]["request"]
        fields = ("model", "cluster", "global_batch", "framework", "execution")
        key = (r["family"], json.dumps([[request.get(f) for f in fields], request["layout"]["precision"]], sort_keys=True))
        sets.setdefault(key, {}).setdefault(json.dumps(request["layout"], sort_keys=True), []).append(r)
    found = {}
    for (source, _), layouts in sets.items():
        if len(layouts) >= FEWEST:
            found.setdefault(source, []).append(list(layouts.values()))
    return found


def sets_of(records, runs):
    return {source: [[layout_of(of_layout) for of_layout in layouts] for layouts in sets]
            for source, sets in runs_of_sets(records, runs).items()}


def layout_of(runs):
    """Residual, shares of classes, and traits of a layout."""
    fastest = min(runs, key=lambda r: r["predicted_iter_time_s"])
    measured = statistics.median(r["measured_iter_time_s"] for r in runs)
    step = sum(fastest["work_s"])
    return math.log(measured / fastest["predicted_iter_time_s"]), [s / step for s in fastest["work_s"]], fastest["traits"]


def parts_between(a, b):
    """What the variance of each part counts between two layouts."""
    counts = [0.0] * len(PARTS)
    for part, x, y in zip(OF_DOUBLINGS, a[0], b[0]):
        counts[part] += (x - y) ** 2
    for part, x, y in zip(OF_KINDS, a[1], b[1]):
        counts[part] += 2.0 * (x != y)
    return counts


def pairs_of(sets, noise):
    """(squared difference of residuals less that of two measurements, what each unknown variance counts in it, weight): a source
    weighs as the root of its sets, and a set as one."""
    pairs = []
    for of_source in sets.values():
        for layouts in of_source:
            found = []
            for i, (a, shares_a, traits_a) in enumerate(layouts):
                for b, shares_b, traits_b in layouts[:i]:
                    counts = [(x - y) ** 2 for x, y in zip(shares_a, shares_b)] + parts_between(traits_a, traits_b)
                    found.append((min(abs(a - b), LARGEST) ** 2 - 2.0 * noise ** 2, counts))
            weight = 1.0 / math.sqrt(len(of_source)) / len(found)
            pairs += [(square, counts, weight) for square, counts in found]
    return pairs


def sums(pairs, weights):
    """Normal equations of the weighted least squares."""
    n = len(pairs[0][1])
    matrix, right = [[0.0] * n for _ in range(n)], [0.0] * n
    for (square, counts, _), w in zip(pairs, weights):
        used = [k for k in range(n) if counts[k]]
        for i in used:
            right[i] += w * counts[i] * square
            for j in used:
                matrix[i][j] += w * counts[i] * counts[j]
    return matrix, right


def fitted(pairs, classes, toward=None):
    """Variances that are not negative, and of classes from LEAST to MOST squared, by coordinate descent. Each round weighs a pair by what
    the last one expects of it, since a square varies as its expectation. `toward`: where classes tend that these pairs tell little of."""
    n = len(pairs[0][1])
    x = [(toward or 0.05) ** 2] * classes + [0.03 ** 2] * (n - classes)
    for _ in range(ROUNDS):
        weights = [w / max(SMALLEST ** 2, sum(a * b for a, b in zip(counts, x))) ** 2 for _, counts, w in pairs]
        matrix, right = sums(pairs, weights)
        if toward is not None:
            pull = PULL * statistics.mean(matrix[i][i] for i in range(classes))
            for i in range(classes):
                matrix[i][i] += pull
                right[i] += pull * toward ** 2
        for _ in range(SWEEPS):
            for i in range(n):
                if matrix[i][i] > 0:
                    best = x[i] + (right[i] - sum(m * v for m, v in zip(matrix[i], x))) / matrix[i][i]
                    x[i] = min(max(LEAST ** 2, best), MOST ** 2) if i < classes else max(0.0, best)
    return x


def spreads(sets, noise):
    """Standard deviations by name. `noise`: of one measurement."""
    pairs = pairs_of(sets, noise)
    of_all = [(square, [sum(counts[:len(CLASSES)]), *counts[len(CLASSES):]], w) for square, counts, w in pairs]
    common = math.sqrt(fitted(of_all, 1)[0])
    return dict(zip((*CLASSES, *PARTS), map(math.sqrt, fitted(pairs, len(CLASSES), common))))


def write(found):
    with open(ERRORS, "w") as file:
        lines = (json.dumps({"of": name, "spread": round(spread, 3)}) for name, spread in found.items())
        file.write("[\n" + ",\n".join(lines) + "\n]\n")
