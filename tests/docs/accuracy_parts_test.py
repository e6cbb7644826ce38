# SPDX-License-Identifier: Apache-2.0
"""Parts of the accuracy page on made-up runs: benchmarks/ties.py and benchmarks/margins.py. And how few of the layouts that ran out
of memory the default margin accepts.

Usage: accuracy_parts_test.py SOURCES BIN
"""

import os
import sys

SOURCES, BIN = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
sys.path.insert(0, os.path.join(SOURCES, "benchmarks"))
import margins
import predictions
import records
import ties

# The page's promise: of the layouts that ran out of memory no more are accepted by default.
MOST_ACCEPTED = 10


def check(condition, what):
    if not condition:
        sys.exit(str(what))


def run_of(source, tp, predicted, measured, release="1", **changes):
    """A record and its prediction. Equal layouts have an equal `tp`."""
    run_of.made += 1
    request = {"model": "m", "cluster": "c:1", "global_batch": 8, "layout": {"tensor": tp, "precision": "bf16"}}
    record = {"family": source, "software": "f", "source": {"version": release}, "request": request}
    prediction = {"id": str(run_of.made), "skipped": None, "out_of_memory": False, "predicted_iter_time_s": predicted,
                  "measured_iter_time_s": measured, **changes}
    return record, prediction


run_of.made = 0


def pairs_of(*runs):
    return ties.pairs_of(ties.times_of({p["id"]: r for r, p in runs}, [p for _, p in runs]))


def check_pairs():
    a, b = run_of("s", 1, 10.0, 20.0), run_of("s", 2, 11.0, 21.0)
    check([(p[0], round(p[1], 9), round(p[2], 9), p[3]) for p in pairs_of(a, b)] == [("s", 0.1, 0.05, True)], pairs_of(a, b))
    check(not pairs_of(a, run_of("s", 2, 11.0, 19.0))[0][3], "the slower one was predicted to be slower")
    for name, other in (("another source", run_of("t", 2, 11.0, 21.0)), ("another release", run_of("s", 2, 11.0, 21.0, "2")),
                        ("one layout", run_of("s", 1, 11.0, 21.0)), ("equal predictions", run_of("s", 2, 10.0, 21.0)),
                        ("equal times", run_of("s", 2, 11.0, 20.0)), ("no time", run_of("s", 2, 11.0, None)),
                        ("a failure", run_of("s", 2, 11.0, 21.0, out_of_memory=True)),
                        ("a range", run_of("s", 2, 11.0, 21.0, range_s=[10.0, 12.0])),
                        ("no prediction", run_of("s", 2, 11.0, 21.0, skipped="x"))):
        check(not pairs_of(a, other), f"{name}: a pair")
    twice = pairs_of(a, b, run_of("s", 2, 11.0, 15.0))
    check([(round(p[2], 9), p[3]) for p in twice] == [(round(20 / 18 - 1, 9), False)], f"not the median of two runs: {twice}")


def check_probabilities():
    check(ties.p_of(3, 4) == 5 / 16 and ties.p_of(0, 0) == 1 and ties.p_of(0, 3) == 1, "3 or 4 of 4 coins")
    # One source with many pairs has one vote; a source with as many right as wrong has none.
    pairs = [("a", 0.004, 0.1, True)] * 8 + [("b", 0.004, 0.1, False)] * 2 + [("c", 0.004, 0.1, True), ("c", 0.004, 0.1, False)]
    t = ties.tally(pairs)
    check((t["pairs"], t["right"], t["most"], t["least"], t["p_of_sources"]) == (12, 9, 1, 1, 0.75), t)
    check(t["p"] == (220 + 66 + 12 + 1) / 2**12, t)


def check_threshold():
    """Six sources agree where predictions differ by over 2 %, and at random below 1 %. Of all that differ by less than 2 % six that agree
    are significant, 1 in 64; five of six are not, 7 in 64."""
    for agreeing, expected in ((6, 0.01), (5, 0.02)):
        pairs = []
        for s in range(6):
            pairs += [(str(s), 0.002, 0.1, s % 2 == 0)] + [(str(s), 0.015, 0.1, s < agreeing)] * 2 + [(str(s), 0.025, 0.1, True)] * 4
        check([upper for upper, t in ties.by_difference(pairs) if t["pairs"]] == [0.005, 0.02, 0.03], ties.by_difference(pairs))
        check(ties.threshold(pairs) == expected, (agreeing, ties.threshold(pairs)))
    check(0 < ties.threshold_in_use() < 0.1, "the threshold of core/ties.h")


def check_ties_page():
    runs = [run_of(str(s), *layout) for s in range(6) for layout in ((1, 10.0, 10.0), (2, 10.15, 10.1), (4, 20.0, 21.0))]
    text = ties.table({p["id"]: r for r, p in runs}, [p for _, p in runs], 0.0209)
    check("18 pairs of 6 sources" in text and "within 2.1 %" in text, text)
    check("| 1 to 2 % | 6 | 100 % | 0.016 | 6 : 0 | 0.016 | 0 | - | 1.000 | 0 : 0 | 1.000 |" in text, text)
    check("| over 10 % | 12 | 100 % | < 0.001 | 6 : 0 | 0.016 | 12 | 100 % | < 0.001 | 6 : 0 | 0.016 |" in text, text)


def fate(peak, failed, safe=80, framework="f", unknown=()):
    return {"id": f"p{peak}", "skipped": None, "framework": framework, "experts": False, "unknown": list(unknown), "out_of_memory": failed,
            "limit_bytes": 100, "safe_bytes": safe, "memory": [{"peak_bytes": 10}, {"peak_bytes": peak}]}


def check_margins():
    """A fifth left free: layouts of 100, 80 and 60 of 100 bytes are the fullest that no margin, one and two accept."""
    for peak, kept in ((101, [0, 0, 0]), (100, [1, 0, 0]), (80, [1, 1, 0]), (60, [1, 1, 1])):
        check(margins.counts([fate(peak, True)]) == (1, kept, 0, [0, 0, 0]), peak)
        check(margins.counts([fate(peak, False)]) == (0, [0, 0, 0], 1, [1 - k for k in kept]), peak)
    failed = [fate(70, True), fate(90, True)]
    ran = [fate(90, False)] * 4 + [fate(50, False, unknown=["recompute"])] * 4
    text = margins.table([*failed, *ran, fate(50, False, framework="few")], failed)
    check("With this margin 1 of the 2 layouts of the set `failed` are accepted:\np70.\n" in text, text)
    check("| f | 20 % | 2 | 2 | 1 | 0 | 8 | 0.0 % | 50.0 % | 50.0 % |" in text and "| few |" not in text, text)
    check("Of the 5 runs with all four, 0.0 %, 80.0 % and 80.0 % would be refused" in text, text)


def check_default_margin():
    """The planner's own margin on layouts that ran out of memory."""
    runs = predictions.predict(BIN, list(records.of_set("failed").values()))
    failed, (without, default, twice), ran, _ = margins.counts(runs)
    check(failed == len(runs) > 500 and ran == 0, f"{failed} of {len(runs)} failed")
    check(without > MOST_ACCEPTED >= default >= twice, f"accepted: {without}, {default}, {twice}")


def check_recent():
    """Step times of the kinds that had no record: near, and not all on one side."""
    of_set = records.of_set("recent")
    errors = {kind: [] for kind in ("linear mixers", "LoRA", "mi3")}
    for run in predictions.predict(BIN, list(of_set.values())):
        if run["skipped"] or not run["measured_iter_time_s"]:
            continue
        error = run["predicted_iter_time_s"] / run["measured_iter_time_s"] - 1
        for kind, found in errors.items():
            if kind in run["kind"].get("layers", []) + run["kind"].get("training", []) or run["gpu"].startswith(kind):
                found.append(error)
    for kind, least, most in (("linear mixers", 25, 0.15), ("LoRA", 7, 0.15), ("mi3", 3, 0.47)):
        found = sorted(map(abs, errors[kind]))
        check(len(found) >= least and found[len(found) // 2] < most, (kind, errors[kind]))
    slow = sum(error < 0 for error in errors["linear mixers"])
    check(0.3 < slow / len(errors["linear mixers"]) < 0.7, ("one-sided", errors["linear mixers"]))


check_recent()
check_pairs()
check_probabilities()
check_threshold()
check_ties_page()
check_margins()
check_default_margin()
print("pairs, probabilities, threshold, margins, default margin")
