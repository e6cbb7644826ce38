# SPDX-License-Identifier: Apache-2.0
"""How much wider the interval of a prediction must be if no published run is of its kind: measured by leaving kinds out.

A kind has four parts: software, layers, precision, and training. Each value of a part is left out in turn, with every source that has it.
Its runs are predicted as a user asks for them, without the settings that a record has from its source: such settings do not exist for a
kind that was never run. The part's deviation in planner/explain/evidence.json is added to the spread of all other runs. It is as large as
needed for the interval to hold the stated share of these runs. planner/explain/confidence.h has the same rules in C++, which
tests/docs/kinds_test.py compares. """

import math

TAIL = 0.1  # like kTail in planner/explain/confidence.cpp
LIKELY = 0.9  # like MemoryMargin::kLikely
POOLED, OTHER_PRECISION, MOST_RUNS = 4.0, 0.3, 16  # like Spread and confidence.cpp
# Middles of five equal parts of a normal distribution, like in Spread::widened().
NORMAL = (-1.2815515655446004, -0.5244005127080407, 0.0, 0.5244005127080407, 1.2815515655446004)
# Student's t that a tenth exceeds, by degrees of freedom from 1: a deviation from few kinds is less sure than its value.
STUDENT = (3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383, 1.372, 1.363, 1.356, 1.350, 1.345, 1.341, 1.337, 1.333, 1.330, 1.328, 1.325)
FEW = 10  # runs
HELD = {"step_time": 0.8, "peak_memory": LIKELY}
PARTS = ("software", "layers", "precision", "training")


def values_of(part, kind):
    """A part's values in a kind; none for the plainest value, relative to which all others are priced."""
    return [kind["framework"]] if part == "software" else kind.get(part, [])


def is_narrow(kind):
    return values_of("precision", kind) not in ([], ["fp32"])


def has_experts(kind):
    return "experts" in values_of("layers", kind)


def values(source, measure):
    """Like step_times() and memory_used() in confidence.cpp."""
    found = list(source.get(measure, []))
    failed = source.get("failed", [])
    if measure == "peak_memory" and any(share <= 1 for share in failed):
        found += [1 / share for share in failed if share <= 1] + [1.0] * source.get("ran", 0)
    return found


def spread(kind, rows, measure, left_out=""):
    own, pool = [], []
    for row in rows:
        alike = row["framework"] == kind["framework"] and has_experts(row) == has_experts(kind)
        for source in row["sources"]:
            of_source = values(source, measure)
            if not of_source or source["source"] == left_out:
                continue
            weight = math.sqrt(min(len(of_source), MOST_RUNS)) * (1 if is_narrow(row) == is_narrow(kind) else OTHER_PRECISION) / len(of_source)
            pool += [(value, weight) for value in of_source]
            own += [(value, weight) for value in of_source] if alike else []
    total = sum(weight for _, weight in pool)
    return own + [(value, weight * POOLED / total) for value, weight in pool]


def widened(of, deviation):
    return [(value * math.exp(deviation * z), weight / len(NORMAL)) for value, weight in of for z in NORMAL] if deviation else of


def quantile(of, share):
    wanted, below = (share - 1e-9) * sum(weight for _, weight in of), 0.0
    for value, weight in sorted(of):
        below += weight
        if below >= wanted:
            return value
    return max(of)[0]


def new_parts(kind, rows, left_out=""):
    """[(part, value)] that no run of its software has. If its software has no run, all software counts for the other parts."""
    told = [row for row in rows if any(source["source"] != left_out for source in row["sources"])]
    same = [row for row in told if row["framework"] == kind["framework"]]
    found = [] if same else [(PARTS[0], kind["framework"])]
    for part in PARTS[1:]:
        known = {value for row in same or told for value in values_of(part, row)}
        found += [(part, value) for value in values_of(part, kind) if value not in known]
    return found


def spread_of(kind, rows, table, measure, left_out=""):
    """The spread of mpt-plan's interval and margin."""
    new = {part for part, _ in new_parts(kind, rows, left_out)}
    return widened(spread(kind, rows, measure, left_out), math.sqrt(sum(entry[measure] ** 2 for entry in table if entry["part"] in new)))


def interval(of):
    return quantile(of, TAIL), quantile(of, 1 - TAIL)


def ends(of, measure):
    """The ends that hold the stated share of runs."""
    return (0.0, quantile(of, LIKELY)) if measure == "peak_memory" else interval(of)


def left_out_kinds(part, rows):
    """(a value of the part, rows that have it, all others)."""
    for value in sorted({value for row in rows for value in values_of(part, row)}):
        yield value, *([row for row in rows if (value in values_of(part, row)) == has] for has in (True, False))


def left_out_runs(part, rows, asked, measure):
    """[(spread of all others, ratios of one source, weight)] of kinds that are left out, one by one. All kinds have the same weight, and
    sources in them have weights as in a spread. `asked`: rows of the same runs as a user asks for them."""
    found = []
    for value, _, rest in left_out_kinds(part, rows):
        of_kind = []
        for row in asked:
            for source in row["sources"] if value in values_of(part, row) else []:
                ratios = source.get(measure, [])
                if ratios:
                    of_kind.append((spread(row, rest, measure, source["source"]), ratios, math.sqrt(min(len(ratios), MOST_RUNS))))
        total = sum(weight for _, _, weight in of_kind)
        found += [(of, ratios, weight / total) for of, ratios, weight in of_kind]
    return found


def share_held(runs, measure, added):
    """The share of the left-out runs that a spread widened by this deviation holds."""
    held = 0.0
    for of, ratios, weight in runs:
        low, high = ends(widened(of, added), measure)
        held += weight * sum(low <= ratio <= high for ratio in ratios) / len(ratios)
    return held / sum(weight for _, _, weight in runs)


def least_deviation(runs, measure):
    """The least sufficient deviation, to a hundredth."""
    low, high = 0, 200
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if share_held(runs, measure, middle / 100) >= HELD[measure] else (middle + 1, high)
    return low / 100


def of_few(deviation, kinds):
    """The deviation that holds the same share of a further kind, for a deviation from this number of kinds."""
    return round(deviation * STUDENT[min(max(1, kinds - 1), len(STUDENT)) - 1] / NORMAL[-1], 2)


def measured(rows, asked):
    """The table: for each part the deviation to add, and the numbers of runs and kinds that it comes from. Of training there are few
    runs; a measure that lacks them has that of the other parts together."""
    table, everything = [], {measure: [] for measure in HELD}
    for part in PARTS:
        entry, said, kinds = {"part": part}, [], len(list(left_out_kinds(part, rows)))
        for measure, before in everything.items():
            runs = left_out_runs(part, rows, asked[measure], measure)
            count = sum(len(ratios) for _, ratios, _ in runs)
            few = part == PARTS[-1] and count < FEW
            entry[measure] = of_few(least_deviation(before if few else runs, measure), len(table) if few else kinds)
            said.append(f"{count} {measure.replace('_', ' ').replace('peak memory', 'peak')}s" + (", so few that those of the other parts count" if few else ""))
            before += [] if few else [(of, ratios, weight / kinds) for of, ratios, weight in runs]
        table.append({**entry, "source": f"{kinds} kinds left out in turn, {' and '.join(said)} (benchmarks/kinds.py)"})
    return table
