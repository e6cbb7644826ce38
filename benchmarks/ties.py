# SPDX-License-Identifier: Apache-2.0
"""The difference of predicted step times below which the predicted order of two published layouts is no better than chance.

Part of accuracy.py's page. core/ties.h has the threshold for all of MPT.
"""

import json
import math
import pathlib
import re
import statistics

from records import grouped

EDGES = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1)
SIGNIFICANT = 0.05


def p_of(right, of):
    """The probability that chance gets at least this number right."""
    return sum(math.comb(of, i) for i in range(right, of + 1)) / 2**of


def times_of(records, predictions):
    """By source, model, machine, software, batch and precision: predicted and measured seconds of each layout. Runs of one layout count
    once, with the medians of their times."""
    sets = {}
    for p in predictions:
        if p["skipped"] or p["out_of_memory"] or p.get("range_s") or not p["measured_iter_time_s"]:
            continue
        r = records[p["id"]]
        request = r["request"]
        key = json.dumps([r["family"], r["software"], r["source"]["version"], request["model"], request["cluster"], request["global_batch"],
                          request["layout"]["precision"]], sort_keys=True)
        runs = sets.setdefault(key, {}).setdefault(json.dumps([request["layout"], request.get("execution")], sort_keys=True), [])
        runs.append((p["predicted_iter_time_s"], p["measured_iter_time_s"]))
    return {key: [tuple(map(statistics.median, zip(*runs))) for runs in layouts.values()] for key, layouts in sets.items()}


def difference(a, b):
    return max(a, b) / min(a, b) - 1


def pairs_of(sets):
    """(source, predicted difference, measured difference, right) of each pair with different predictions and different measurements."""
    pairs = []
    for key, times in sets.items():
        for i, (predicted, measured) in enumerate(times):
            for other_predicted, other_measured in times[:i]:
                apart = difference(predicted, other_predicted), difference(measured, other_measured)
                if apart[0] > 1e-6 and apart[1] > 0:
                    pairs.append((json.loads(key)[0], *apart, (predicted < other_predicted) == (measured < other_measured)))
    return pairs


def tally(pairs):
    """Pairs, right ones and their p; sources with more right than wrong ones, sources with fewer, and their p."""
    shares = [statistics.mean(pair[3] for pair in of) for of in grouped(pairs, lambda pair: pair[0]).values()]
    most, least = sum(s > 0.5 for s in shares), sum(s < 0.5 for s in shares)
    right = sum(p[3] for p in pairs)
    return {"pairs": len(pairs), "right": right, "p": p_of(right, len(pairs)), "most": most, "least": least,
            "p_of_sources": p_of(most, most + least)}


def by_difference(pairs):
    """(upper edge, or None; tally) of each range of predicted differences."""
    edges = [0.0, *EDGES, math.inf]
    return [(upper if upper < math.inf else None, tally([p for p in pairs if lower <= p[1] < upper])) for lower, upper in zip(edges, edges[1:])]


def threshold(pairs):
    """The largest edge below which the votes of sources, of all pairs below it, are not significantly better than chance; 0 where they
    always are."""
    return max((edge for edge in EDGES if tally([p for p in pairs if p[1] < edge])["p_of_sources"] >= SIGNIFICANT), default=0.0)


def threshold_in_use():
    """kEqualTimes of core/ties.h."""
    header = pathlib.Path(__file__).resolve().parents[1] / "core/ties.h"
    return float(re.search(r"kEqualTimes = ([\d.]+);", header.read_text()).group(1))


def percent(x):
    return f"{100 * x:g} %"


def probability(p):
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def share(t):
    return f"{100 * t['right'] / t['pairs']:.0f} %" if t["pairs"] else "-"


def table(records, predictions, scatter):
    """The section in Markdown. `scatter`: by how much measurements of the same thing differ."""
    pairs = pairs_of(times_of(records, predictions))
    pairs_apart = [p for p in pairs if p[2] > scatter]
    every, apart = by_difference(pairs), by_difference(pairs_apart)

    def cells(t):
        return f"{t['pairs']} | {share(t)} | {probability(t['p'])} | {t['most']} : {t['least']} | {probability(t['p_of_sources'])}"

    names = [f"{percent(lower)[:-2]} to {percent(upper)}" for lower, upper in zip([0.0, *EDGES], EDGES)] + [f"over {percent(EDGES[-1])}"]
    rows = "\n".join(f"| {name} | {cells(t)} | {cells(a)} |" for name, (_, t), (_, a) in zip(names, every, apart))
    edge = threshold(pairs)
    close, next_edge = tally([p for p in pairs if p[1] < edge]), min((e for e in EDGES if e > edge), default=EDGES[-1])
    further = tally([p for p in pairs if p[1] < next_edge])
    return f"""A pair is two layouts that one source measured of one model, batch and precision, on one machine with one release of the software.
It is in the right order if the layout predicted faster was measured faster. {len(pairs)} pairs of {len({p[0] for p in pairs})} sources count. Pairs with
equal predictions or equal measurements are left out. "Apart" also leaves out pairs with measured times within {percent(round(scatter, 3))}.
p is the probability that chance gets as many right (exact binomial test, one-sided). The pairs of a source share layouts, and
one source has most of the close pairs. So each source votes once, too: it has more right pairs than wrong ones, or fewer.

**Below a predicted difference of {percent(edge)} the votes are not significantly better than chance** (p >= {SIGNIFICANT}): {close['most']} : {close['least']} of all pairs below it,
p = {probability(close['p_of_sources'])}. Below {percent(next_edge)} they are {further['most']} : {further['least']}, p = {probability(further['p_of_sources'])}. Among pairs measured
apart this holds below {percent(threshold(pairs_apart))}, but fewer sources vote. Counted one by one, as if they were independent, the {close['pairs']} pairs
below {percent(edge)} are right in {share(close)}, p = {probability(close['p'])}. MPT calls layouts a tie below {percent(threshold_in_use())} (`core/ties.h`).

| predicted difference | pairs | right | p | votes | p | apart: pairs | right | p | votes | p |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
{rows}"""
