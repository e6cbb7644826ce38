# SPDX-License-Identifier: Apache-2.0
"""Which published runs decide each fitted constant of planner/cost/calibration.json, and which traits only these runs have.

Usage: constants.py FOLDER_OF_PROGRAMS [--write]: with --write the file gets the findings, too.

A run depends on a constant by the change of its step time relative to the change of the constant. The deciding families hold nine tenths of
that over all runs of the fit, each family with its mean. A trait is shared by the deciding runs alone if all of them have one value of it,
and no run without dependence has that value. Then the constant may represent the trait. A constant that only such runs decide is dropped,
or applies to the trait alone.
"""

import json
import pathlib
import statistics
import sys

import predictions
import records
import validate

DEPENDS = 0.02  # of a step time, for a change of the constant by its whole value
DECIDES = 0.9


def traits(run, line):
    """The traits of a run that a setting could represent: place, time and software."""
    request = run["request"]
    execution = dict(word.split("=", 1) for word in request.get("execution") or [])
    return {"GPU": line["gpu"], "software": run["software"], "framework": line["framework"], "precision": line["precision"],
            "attention": execution.get("attention", "as its framework"), "deterministic": bool(request.get("deterministic")),
            "experts": line["experts"], "source": run["family"]}


def step_times(programs, runs, changes):
    return [line if validate.time_error(line) is not None else None for line in predictions.with_constants(programs, changes, runs)]


def sensitivities(programs, runs, constant, before):
    least, most = constant["range"]
    step = 0.1 * constant["value"]
    other = constant["value"] + step if constant["value"] + step <= most else max(least, constant["value"] - step)
    after = step_times(programs, runs, {constant["name"]: other})
    return [None if a is None or b is None else abs(b["predicted_iter_time_s"] / a["predicted_iter_time_s"] - 1) / abs(other / constant["value"] - 1)
            for a, b in zip(before, after)]


def decided_by(programs, constant, runs, before):
    found = sensitivities(programs, runs, constant, before)
    known = [(run, line, share) for run, line, share in zip(runs, before, found) if share is not None]
    by_family = records.grouped(known, lambda one: one[0]["family"])
    means = sorted(((statistics.mean(share for *_, share in of), family) for family, of in by_family.items()), reverse=True)
    total, held, families = sum(mean for mean, _ in means), 0.0, []
    for mean, family in means:
        if held >= DECIDES * total:
            break
        held += mean
        families.append(family)
    deciding = [traits(run, line) for run, line, share in known if share >= DEPENDS]
    others = [traits(run, line) for run, line, share in known if share < DEPENDS]
    apart = [f"{name} {next(iter(values))}" for name in (deciding[0] if deciding else {})
             if len(values := {of[name] for of in deciding}) == 1 and not any(of[name] in values for of in others)]
    beside = sum(any(other["source"] == of["source"] for other in others) for of in deciding)
    return {"decided_by": families, "runs": len(deciding), "of": len(deciding) + len(others), "apart": apart,
            "beside_runs_of_their_source": beside}


def words(found):
    if not found["runs"]:
        return f"None of {found['of']} runs depends on it by {100 * DEPENDS:.0f} %."
    beside = f", {found['beside_runs_of_their_source']} of them beside others of the same source that do not"
    alone = f"All of these and no others have: {', '.join(found['apart'])}." if found["apart"] else "No trait is theirs alone."
    return f"{found['runs']} of {found['of']} runs depend on it by {100 * DEPENDS:.0f} %{beside}. {alone}"


def written(text, all_found):
    """The file with the findings inserted after the families of each fit."""
    lines, found = [], None
    for line in text.split("\n"):
        found = next((one for one in all_found if line.startswith(f'  {{"name": "{one["name"]}",')), found)
        if line.startswith('   "decided_by":'):
            continue
        if line.startswith('   "fitted_to":') and found:
            end = "}" + line.rsplit("}", 1)[1] if "}" in line else "},"
            line = line.rsplit("]", 1)[0] + "],\n   " + f'"decided_by": {json.dumps(found["decided_by"])}, "apart": {json.dumps(words(found))}' + end
            found = None
        lines.append(line)
    return "\n".join(lines)


def main():
    programs = sys.argv[1]
    text = pathlib.Path(predictions.CONSTANTS).read_text()
    runs = [run for run in records.read() if run["set"] == "published" and not run.get("unmodelled", {}).get("seconds")]
    lines, all_found = step_times(programs, runs, {}), []
    for constant in (c for c in json.loads(text) if c["origin"] == "fitted"):
        chosen = [i for i, run in enumerate(runs) if run["family"] in constant["fitted_to"]]
        all_found.append({"name": constant["name"], **decided_by(programs, constant, [runs[i] for i in chosen], [lines[i] for i in chosen])})
        print(json.dumps(all_found[-1]), flush=True)
    if "--write" in sys.argv:
        pathlib.Path(predictions.CONSTANTS).write_text(written(text, all_found))


if __name__ == "__main__":
    main()
