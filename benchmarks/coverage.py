# SPDX-License-Identifier: Apache-2.0
"""Whether predictions are as sure as mpt-plan states: the share of runs with a time within the interval, and of layouts called likely to
fit that ran out of memory. A statement about a run uses other sources only.

Part of accuracy.py's page.
"""

import math
import statistics

import kinds
from records import grouped

LIKELY = (0.99, 0.95, 0.9, 0.7, 0.3, 0.0)


def is_like_a_plan(run, records):
    """Whether a request expresses the run and leaves nothing important open, on a device with kernel tables."""
    named = not run["skipped"] and run["gpu"].startswith(records[run["id"]]["facts"]["hardware.gpu"]) and not run["gpu"].endswith("-limited")
    return named and not run.get("unmodelled") and not run.get("range_s") and "micro_batch" not in run["unknown"]


def memory_share(run):
    return max(m["peak_bytes"] for m in run["memory"]) / run["limit_bytes"]


def percent(x):
    return f"{100 * x:.1f} %"


def held(run):
    low, high = run["expected_s"]
    return low <= run["measured_iter_time_s"] <= high


def interval_row(name, runs):
    by_source = grouped(runs, lambda r: r["family"]).values()
    widths = [r["expected_s"][1] / r["expected_s"][0] for r in runs]
    below = sum(r["measured_iter_time_s"] < r["expected_s"][0] for r in runs)
    return (f"| {name} | {len(runs)} | {len(by_source)} | {percent(statistics.mean(map(held, runs)))} | "
            f"{percent(statistics.mean(statistics.mean(map(held, of)) for of in by_source))} | {percent(below / len(runs))} | "
            f"{statistics.median(widths):.2f} |")


def intervals(runs):
    groups = {}
    for r in runs:
        names = [f"{r['framework']}{', experts' if r['experts'] else ''}", *(f"{part}: {value}" for part in kinds.PARTS[1:]
                                                                             for value in kinds.values_of(part, r["kind"]) or ["plain"]),
                 "kind without a record of another source" if r.get("new_in") else "kind with records of other sources"]
        for name in names:
            groups.setdefault(name, []).append(r)
    rows = [interval_row("all", runs)] + [interval_row(name, of) for name, of in sorted(groups.items()) if len(of) >= 10]
    return "\n".join(["| | runs | sources | held | mean of sources | faster | highest over lowest |",
                      "| --- | --- | --- | --- | --- | --- | --- |", *rows])


def left_out(rows, asked, table):
    """Kinds that are left out with all their sources, as if they had never been run: the share that the interval holds without and with the
    widening, and the factor of the widening."""
    added = {entry["part"]: entry["step_time"] for entry in table}
    lines = ["| left out | step times | held without widening | held | width, times that of before |", "| --- | --- | --- | --- | --- |"]
    for part in kinds.PARTS[:-1]:
        runs = kinds.left_out_runs(part, rows, asked, "step_time")
        wider = [math.log(high / low) / math.log(most / least) for of, _, _ in runs
                 for (least, most), (low, high) in [(kinds.interval(of), kinds.interval(kinds.widened(of, added[part])))]]
        lines.append(f"| each kind of {part} | {sum(len(ratios) for _, ratios, _ in runs)} | {percent(kinds.share_held(runs, 'step_time', 0))} | "
                     f"{percent(kinds.share_held(runs, 'step_time', added[part]))} | {statistics.median(wider):.2f} |")
    return "\n".join(lines)


def likelihoods(runs):
    lines = []
    for least, above in zip(LIKELY, (1.01, *LIKELY)):
        of = [r for r in runs if least <= r["likely_to_fit"] < above]
        failed = sum(r["out_of_memory"] for r in of)
        lines.append(f"| {100 * least:.0f} to {min(100, 100 * above):.0f} % | {len(of)} | {failed} | {percent(failed / max(1, len(of)))} |")
    return "\n".join(["| called likely to fit | layouts | failed | share |", "| --- | --- | --- | --- |", *lines])


def timed_of(records, runs):
    return [r for r in runs if is_like_a_plan(r, records) and r["measured_iter_time_s"] and not r["out_of_memory"] and r.get("expected_s")]


def table(records, runs, asked, of_kinds):
    """The section in Markdown. `asked`: the runs as a user asks for them. `of_kinds`: see left_out()."""
    like = [r for r in runs if is_like_a_plan(r, records)]
    timed = timed_of(records, runs)
    fitted = [r for r in like if "likely_to_fit" in r]
    called = [r for r in fitted if r["likely_to_fit"] >= 0.95]
    failed = sum(r["out_of_memory"] for r in called)
    return f"""What is said of a run here stands on the runs of other sources alone, as for a user's own plan. The 80 % interval holds
**{percent(statistics.mean(map(held, timed)))}** of runs, and **{percent(statistics.mean(map(held, timed_of(records, asked))))}** of them as a user asks. Large sources are met better than small ones: with every source counted once it is less.
Of {len(called)} layouts that are called at least 95 % likely to fit, {failed} ran out of memory, **{percent(failed / len(called))}**.

{intervals(timed)}

A kind without a record gets a wider interval (`docs/validation.md`). Kinds that are left out, their runs as a user asks for them, each kind
with one weight:

{left_out(*of_kinds)}

Sources publish runs that worked rather than those that failed, so that fewer fail here than would elsewhere.

{likelihoods(fitted)}"""
