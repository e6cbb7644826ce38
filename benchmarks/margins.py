# SPDX-License-Identifier: Apache-2.0
"""The effect of a memory margin on published runs: how many layouts that ran out of memory are still accepted, and how many that ran would
be refused. Without a margin, with the default one (memory_margin() in planner/explain/confidence.h) and with twice that.

Part of accuracy.py's page.
"""

import statistics

from records import grouped

TIMES = (0, 1, 2)  # the default margin
FEWEST = 10


def margin_of(run):
    """The share of memory that a plan of this framework leaves free by default."""
    return 1 - run["safe_bytes"] / run["limit_bytes"]


def accepted(run, times):
    return max(m["peak_bytes"] for m in run["memory"]) <= (1 - times * margin_of(run)) * run["limit_bytes"]


def counts(runs):
    """Failed layouts and how many of them each margin accepts; layouts that ran and how many of them each margin refuses."""
    failed, ran = ([r for r in runs if r["out_of_memory"] == out] for out in (True, False))
    return (len(failed), [sum(accepted(r, times) for r in failed) for times in TIMES], len(ran),
            [sum(not accepted(r, times) for r in ran) for times in TIMES])


def row(name, runs):
    failed, kept, ran, refused = counts(runs)
    left = " | ".join(map(str, kept)) if failed else "- | - | -"
    lost = " | ".join(f"{100 * n / ran:.1f} %" for n in refused) if ran else "- | - | -"
    margin = f"{100 * statistics.median(map(margin_of, runs)):.0f} %" if len({r["framework"] for r in runs}) == 1 else "-"
    return f"| {name} | {margin} | {failed} | {left} | {ran} | {lost} |"


def table(runs, of_failures):
    """The section in Markdown. `of_failures`: the runs of the set "failed", which `runs` has, too."""
    runs = [r for r in runs if not r["skipped"] and not r.get("unmodelled")]
    groups = grouped(runs, lambda r: f"{r['framework']}{', experts' if r['experts'] else ''}")
    rows = "\n".join(row(name, of) for name, of in sorted(groups.items()) if len(of) >= FEWEST)
    known = [r for r in runs if not r["unknown"]]
    shares = [f"{100 * n / counts(known)[2]:.1f} %" for n in counts(known)[3]]
    kept = [r["id"] for r in of_failures if accepted(r, 1)]
    return f"""By default a plan leaves a margin of memory free that makes it 90 % likely to fit. With this margin {len(kept)} of the {len(of_failures)} layouts of the set `failed` are accepted:
{', '.join(kept) or 'none'}.

"Accepted" counts layouts that failed. "Refused" is the share of layouts that ran. Each has three columns: no margin, the default and
twice the default. Rows of frameworks count all files, and have at least {FEWEST} layouts. Recompute, micro-batch, virtual
stages or ZeRO stage may be unknown. A layout then counts with the values of its request. Of the {counts(known)[2]} runs with all four, {', '.join(shares[:2])} and {shares[2]} would be refused.

| | margin | failed | accepted: none | default | twice | ran | refused: none | default | twice |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
{row("set failed", of_failures)}
{row("all files", runs)}
{rows}"""
