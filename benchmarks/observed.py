# SPDX-License-Identifier: Apache-2.0
"""Writes reports/results/choice.md: what choosing among published layouts costs once some of them were run, by the planner's own
corrections (planner/observe/), with each source left out of their prior. With --fit also that prior.

Usage: observed.py FOLDER_OF_PROGRAMS [--fit]
"""

import bisect
import datetime
import itertools
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys

import orders
import predictions
import records as published
import validate

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PRIOR = os.path.join(ROOT, "planner", "observe", "prior.json")
PAGE = os.path.join(ROOT, "reports", "results", "choice.md")
USUAL = 0.05  # standard deviation at a fit's start
ROUNDS, MORE_ROUNDS = 150, 40
FEWEST, LARGE = 3, 5  # layouts of a set, and of a large one
SCALES = 20
TOLD = "seqpar"  # arXiv:2205.05198


def ask(programs, what, question):
    done = subprocess.run([os.path.join(programs, "observed_runs"), what], input=json.dumps(question), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def run_of(line, kind, ratio, request):
    """A run for observed_runs. Its group: one source, GPU and software."""
    layout = json.dumps([request["layout"], request.get("execution"), request["model"]], sort_keys=True)
    return {"source": line["family"], "group": " ".join((line["family"], line["gpu"], line["framework"])), "layout": layout,
            "features": line["features"][kind], "log_ratio": math.log(ratio)}


def runs_of(records, lines):
    """Runs with known layouts: for step times, and for memory."""
    known = [line for line in lines if not line["skipped"] and not line.get("range_s")]
    pairs = (("time", "measured_iter_time_s", "predicted_iter_time_s"), ("memory", "measured_peak_mem_gib", "predicted_peak_mem_gib"))
    return {kind: [run_of(line, kind, line[measured] / line[predicted], records[line["id"]]["request"]) for line in known if line[measured]]
            for kind, measured, predicted in pairs}


def start(runs, noise):
    return {"weights": [USUAL] * len(runs[0]["features"]), "layout": USUAL, "measurement": noise}


def layout_of(runs):
    fastest = min(runs, key=lambda r: r["predicted_iter_time_s"])
    return {"features": fastest["features"]["time"], "layout": fastest["id"], "predicted_s": fastest["predicted_iter_time_s"],
            "measured_s": statistics.median(r["measured_iter_time_s"] for r in runs)}


def runs_of_sets(records, runs):
    """Sets of at least FEWEST layouts of one source, model, batch, precision, machine and software, by source: the candidates of one
    search. A set has the runs of each of its layouts."""
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


def sets_of(records, lines):
    """Layouts of each set in predicted order, by source."""
    return {source: [sorted(map(layout_of, layouts), key=lambda l: l["predicted_s"]) for layouts in sets]
            for source, sets in runs_of_sets(records, lines).items()}


def scales_of(losses):
    """SCALES values, each for the same share of clusters: the errors of sets relative to their prior. Errors of sets of one source are
    correlated, so a source of n sets has the weight of the root of n."""
    weighed = sorted((of_set["scale"], len(of_source) ** -0.5) for of_source in losses.values() for of_set in of_source)
    sums = list(itertools.accumulate(weight for _, weight in weighed))
    middles = ((step + 0.5) / SCALES * sums[-1] for step in range(SCALES if sums else 0))
    return [round(weighed[bisect.bisect_left(sums, middle)][0], 3) for middle in middles]


def write_prior(programs, priors, runs, scales):
    names = ask(programs, "names", {})

    def rows(kind):
        values = [*priors[kind]["weights"], priors[kind]["layout"], priors[kind]["measurement"]]
        pairs = zip([*names[kind], "layout", "measurement"], values, strict=True)
        return ",\n".join(f"  {json.dumps(name)}: {round(value, 4)}" for name, value in pairs)

    def counted(kind):
        return f"{len(runs[kind])} {'step times' if kind == 'time' else 'peaks'} of {len({run['source'] for run in runs[kind]})} sources"

    source = f"reports/validation/records: {counted('time')}, {counted('memory')}"
    text = ",\n ".join([f'{{"source": {json.dumps(source)}', '"script": "scripts/bench choice --fit (benchmarks/observed.py)"',
                        f'"date": "{datetime.date.today().isoformat()}"', *(f'"{kind}": {{\n{rows(kind)}}}' for kind in ("time", "memory")), f'"scales": {scales}'])
    pathlib.Path(PRIOR).write_text(text + "}\n")


def row(name, losses):
    cells = [name, str(len(losses))]
    for runs in range(4):
        for which in ("predicted", "corrected"):
            values = [of_set[which][runs] for of_set in losses]
            if runs or which == "predicted":
                cells.append(f"{validate.percent(statistics.mean(values))} ({validate.percent(max(values))})")
    return "| " + " | ".join(cells) + " |"


def worse(losses, runs):
    return sum(of_set["corrected"][runs] > of_set["predicted"][runs] + 1e-9 for of_set in losses)


HEAD = """| | sets | no run | one run, predicted order | one run | two, predicted order | two | three, predicted order | three |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def table(losses):
    every = [of_set for of_source in losses.values() for of_set in of_source]
    large = [of_set for of_set in every if of_set["layouts"] >= LARGE]
    rows = [row(source, of_source) for source, of_source in sorted(losses.items())]
    return "\n".join([HEAD, *rows, row("all", every), row(f"all of {LARGE} layouts and more", large)]), every, large


def stated(losses):
    """The statements about the choice before any run, compared with its cost."""
    drawn, cost = [of_set["drawn"] for of_set in losses], [of_set["predicted"][0] for of_set in losses]
    within = sum(c <= d["regret_95"] for c, d in zip(cost, drawn))
    return f"""Sources are not off alike: the layouts of some sets differ by a fifth of what the prior says, those of others by three times that. So the draws
behind a statement have the scales of the other sources' sets. Before any run the choice cost at most what is stated for 95 of 100 draws in **{validate.percent(within / len(losses))}** of sets. It is stated to cost {validate.percent(statistics.mean(d["regret_mean"] for d in drawn))} on
average, and {validate.percent(statistics.mean(d["regret_95"] for d in drawn))} at 95 %; it did cost {validate.percent(statistics.mean(cost))}. Another layout is said to win in {validate.percent(statistics.mean(d["other_wins"] for d in drawn))} of draws,
and won in {validate.percent(sum(c > 0 for c in cost) / len(cost))} of sets."""


def told_lines(found):
    before = [abs(e) for of_run in found for e in of_run["before"]]
    after = [abs(e) for of_run in found for e in of_run["after"]]
    return f"mean error {validate.percent(statistics.mean(before))} before, {validate.percent(statistics.mean(after))} after; worst {validate.percent(max(before))} and {validate.percent(max(after))}"


def page(losses, told, runs, noise):
    rows, every, large = table(losses)
    return f"""# Choices once some layouts were run

Written by `./scripts/bench choice`. A set has at least three layouts that one source measured of one model, batch, precision and software on one
machine. The first run is of the layout that is predicted fastest. Each next run is the one that mpt-plan names. The choice
is the one that mpt-plan recommends then. Its loss is the share by which it takes longer than the fastest of the set: the mean over sets,
and the worst in brackets. "Predicted order" measures in the order of the predictions and takes the fastest of what ran.

The prior of the corrections is fitted to the {len(runs['time'])} published step times without the source of the set. One measurement is taken to be
off by {validate.percent(noise)}, as runs of one request are. The code is the planner's own (`benchmarks/observed_runs.cpp`).

{rows}

The choice is worse than in predicted order in {worse(every, 1)}, {worse(every, 2)} and {worse(every, 3)} of {len(every)} sets after one, two and three runs; of the {len(large)} sets of
{LARGE} layouts and more in {worse(large, 1)}, {worse(large, 2)} and {worse(large, 3)}.

{stated(every)}

## One run tells of the others

Of the runs of one source each is told in turn, and the others are predicted with it.

| source | runs | errors of the others' step times |
| --- | --- | --- |
""" + "\n".join(f"| {source} | {len(found)} | {told_lines(found)} |" for source, found in sorted(told.items())) + "\n"


def main():
    programs, options = sys.argv[1], sys.argv[2:]
    every = published.read()
    records = {run["id"]: run for run in every}
    lines = predictions.predict(programs, every)
    noise = orders.scatter(validate.repeated(every, lines)["difference"])
    runs = runs_of(records, lines)
    full = {kind: ask(programs, "fit", {"runs": runs[kind], "start": start(runs[kind], noise), "rounds": ROUNDS}) for kind in runs}
    sets = sets_of(records, lines)
    priors = {source: ask(programs, "fit", {"runs": [run for run in runs["time"] if run["source"] != source], "start": full["time"],
                                            "rounds": MORE_ROUNDS}) for source in sorted({*sets, TOLD})}

    def replayed(source, scales):
        found = ask(programs, "replay", {"prior": priors[source], "scales": scales, "sets": sets[source]})
        return [{**of_set, "layouts": len(layouts)} for of_set, layouts in zip(found, sets[source])]

    first = {source: replayed(source, []) for source in sets}
    if "--fit" in options:
        write_prior(programs, full, runs, scales_of(first))
    losses = {source: replayed(source, scales_of({other: of for other, of in first.items() if other != source})) for source in sets}
    told = {TOLD: ask(programs, "transfer", {"prior": priors[TOLD], "runs": [run for run in runs["time"] if run["source"] == TOLD]})}
    pathlib.Path(PAGE).write_text(page(losses, told, runs, noise))


if __name__ == "__main__":
    main()
