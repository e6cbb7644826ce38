# SPDX-License-Identifier: Apache-2.0
"""The cost of choosing by predictions on published runs. For several layouts of one model on one machine: how much longer the layout
predicted fastest took than the one measured fastest, and whether it ran out of memory.

Part of accuracy.py's page.
"""

import json
import statistics

from coverage import percent


def sets_of(records, predictions, failures, failed):
    """Sets of at least three layouts that ran, of one source, model, batch, precision and number of one kind of GPU, each with
    those that failed there. Runs of one layout are one choice, with the median of their times."""
    sets = {}
    for prediction in (p for p in [*predictions, *failed] if not p["skipped"]):
        ran = prediction["id"] in records
        r = (records if ran else failures)[prediction["id"]]
        if ran and (not prediction["measured_iter_time_s"] or prediction.get("range_s")):
            continue
        request = r["request"]
        key = json.dumps([r["family"], request["model"], request["cluster"], request["global_batch"], request["layout"]["precision"]],
                         sort_keys=True)
        layouts = sets.setdefault(key, {"ran": {}, "failed": []})
        if ran:
            layouts["ran"].setdefault(json.dumps([request["layout"], request.get("execution")], sort_keys=True), []).append(prediction)
        else:
            layouts["failed"].append(prediction)
    return {key: s for key, s in sets.items() if len(s["ran"]) >= 3}


def cost_of(layouts):
    """(time of the choice over the best's, median layout's over the best's, whether the choice is one that failed), minus 1."""
    ran = [(min(p["predicted_iter_time_s"] for p in runs), statistics.median(p["measured_iter_time_s"] for p in runs))
           for runs in layouts["ran"].values()]
    best = min(measured for _, measured in ran)
    predicted, chosen = min(ran)
    fails = any(p["fits"] and p["predicted_iter_time_s"] < predicted for p in layouts["failed"])
    return chosen / best - 1, statistics.median(measured for _, measured in ran) / best - 1, fails


def table(records, predictions, failures, failed):
    """The section's sentence and its table by source, in Markdown."""
    costs = {}
    for key, layouts in sets_of(records, predictions, failures, failed).items():
        costs.setdefault(json.loads(key)[0], []).append((*cost_of(layouts), bool(layouts["failed"])))

    def row(name, of):
        chosen, median, fails, with_failures = zip(*of)
        failing = f"{sum(fails)} of {sum(with_failures)}" if any(with_failures) else "-"
        return (f"| {name} | {len(of)} | {sum(c == 0 for c in chosen)} | {percent(statistics.mean(chosen))} | {percent(max(chosen))} | "
                f"{percent(statistics.mean(median))} | {failing} |")

    every = [c for of in costs.values() for c in of]
    rows = "\n".join(row(name, of) for name, of in sorted(costs.items()))
    return f"""In {len(every)} sets of three and more layouts that one source measured of one model, batch and precision on one machine, the layout
predicted fastest is the one measured fastest {sum(c[0] == 0 for c in every)} times and takes {percent(statistics.mean(c[0] for c in every))} longer than that on average; the median layout
takes {percent(statistics.mean(c[1] for c in every))} longer. "Failed" counts the sets in which a layout that ran out of memory would have been chosen, of those
sets in which one did.

| | sets | fastest found | choice over fastest, mean | worst | median layout over fastest | failed |
| --- | --- | --- | --- | --- | --- | --- |
{rows}
{row("all", every)}"""
