# SPDX-License-Identifier: Apache-2.0
"""What is said of a choice among measured layouts, against what the choice cost. The draws are those of mpt-plan
(planner/explain/drawn_choice.h), which tests/docs/accuracy_parts_test.py compares."""

import json
import math
import statistics

import price_errors

DRAWS = 1000
SAME = 1e-9  # less is no regret but rounding
_normals = []


def _generate():
    """mt19937_64 with the seed of mpt-plan's draws (Matsumoto and Nishimura 2000), as normal values (Box and Muller 1958)."""
    mask = (1 << 64) - 1
    state = [20240229]
    for i in range(1, 312):
        state.append((6364136223846793005 * (state[-1] ^ (state[-1] >> 62)) + i) & mask)

    def uniform():
        while True:
            for i in range(312):
                x = (state[i] & 0xFFFFFFFF80000000) | (state[(i + 1) % 312] & 0x7FFFFFFF)
                state[i] = state[(i + 156) % 312] ^ (x >> 1) ^ (0xB5026F5AA96619E9 if x & 1 else 0)
            for y in state:
                y ^= (y >> 29) & 0x5555555555555555
                y ^= (y << 17) & 0x71D67FFFEDA60000
                y ^= (y << 37) & 0xFFF7EEE000000000
                yield ((y ^ (y >> 43)) >> 11) * 2.0**-53

    values = uniform()
    for radius, angle in zip(values, values):
        yield math.sqrt(-2 * math.log(1 - radius)) * math.cos(2 * math.pi * angle)


_generator = _generate()


def normals(count):
    """The first normal values of every choice's draws."""
    while len(_normals) < count:
        _normals.append(next(_generator))
    return _normals


def draw(layouts, errors):
    """`layouts`: (seconds of each class of work, traits), the chosen one first. Regret of each draw."""
    kinds = [sorted({traits[1][k] for _, traits in layouts}) for k in range(len(price_errors.OF_KINDS))]
    each = len(price_errors.CLASSES) + len(price_errors.OF_DOUBLINGS) + sum(map(len, kinds))
    values = iter(normals(DRAWS * each))
    regrets = []
    for _ in range(DRAWS):
        work = [math.exp(errors[name] * next(values)) for name in price_errors.CLASSES]
        doubling = [errors[price_errors.PARTS[part]] * next(values) for part in price_errors.OF_DOUBLINGS]
        kind = [{name: errors[price_errors.PARTS[part]] * next(values) for name in names} for part, names in zip(price_errors.OF_KINDS, kinds)]
        times = [math.exp(sum(map(math.prod, zip(doubling, traits[0]))) + sum(k[name] for k, name in zip(kind, traits[1])))
                 * sum(map(math.prod, zip(seconds, work))) for seconds, traits in layouts]
        regret = times[0] / min(times) - 1
        regrets.append(regret if regret > SAME else 0.0)
    return regrets


def stated(layouts, errors):
    regrets = sorted(draw(layouts, errors))
    return {"layouts": len(layouts), "stated_mean": statistics.fmean(regrets), "stated_95": regrets[int(0.95 * (DRAWS - 1))],
            "other_wins": sum(r > 0 for r in regrets) / DRAWS}


def choices(records, lines):
    """Of every set of layouts: what choosing the one predicted fastest cost, and what is said of it."""
    with open(price_errors.ERRORS) as file:
        errors = {row["of"]: row["spread"] for row in json.load(file)}
    found = []
    for source, sets in price_errors.runs_of_sets(records, lines).items():
        for layouts in sets:
            ordered = sorted(layouts, key=lambda runs: min(r["predicted_iter_time_s"] for r in runs))
            measured = [statistics.median(r["measured_iter_time_s"] for r in runs) for runs in ordered]
            fastest = [min(runs, key=lambda r: r["predicted_iter_time_s"]) for runs in ordered]
            found.append({"source": source, "regret": measured[0] / min(measured) - 1,
                          **stated([(r["work_s"], r["traits"]) for r in fastest], errors)})
    return found
