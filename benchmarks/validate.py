# SPDX-License-Identifier: Apache-2.0
"""Predicts runs that others measured, and compares (docs/validation.md).

Usage: validate.py FOLDER_OF_PROGRAMS [RUNS] [--set NAME] [--family NAME] [--calibration FILE] [--summary] [--json]

RUNS: a file with a run in each line, or a folder of such files (default: reports/validation/records). The exit code is 2 where a run
could not be priced.
"""

import argparse
import json
import sys

import orders
import predictions
import records
from coverage import percent

ALIKE = 0.02  # equal runs differ by about as much in step time
FEWEST = 10  # runs of one model on one GPU


def time_error(line):
    """For a run with a known layout; None without a prediction or a measurement."""
    known = not line["skipped"] and line["measured_iter_time_s"] and not line.get("range_s")
    return line["predicted_iter_time_s"] / line["measured_iter_time_s"] - 1 if known else None


def memory_error(line):
    known = not line["skipped"] and line["measured_peak_mem_gib"] and not line.get("range_s")
    return line["predicted_peak_mem_gib"] / line["measured_peak_mem_gib"] - 1 if known else None


def is_failure(line):
    return not line["skipped"] and line["out_of_memory"] and not line.get("unmodelled")


def groups_of(lines, field):
    """Errors by the value of a field; by "all" if `field` is that word."""
    groups = records.grouped((line for line in lines if not line["skipped"] and not is_failure(line)), lambda line: line.get(field, field))

    def summary(of, error):
        return orders.errors([e for line in of if (e := error(line)) is not None])

    return {name: {"time": summary(of, time_error), "memory": summary(of, memory_error)} for name, of in sorted(groups.items())}


def repeated(runs, lines):
    """The differences between runs of one request."""
    measured = {}
    for run, line in zip(runs, lines):
        if line["measured_iter_time_s"]:
            measured.setdefault(json.dumps([run["family"], run["software"], run["request"]], sort_keys=True), []).append(line["measured_iter_time_s"])
    return orders.repetition(measured.values())


def rank_correlations(lines, repetition):
    """Whether the planner would put runs of one model on one GPU in the measured order: by step time, and by device seconds per token, in
    which runs of different batches and sizes are comparable."""
    groups = records.grouped((line for line in lines if time_error(line) is not None), lambda line: f"{line['model']} on {line['gpu']}")
    found = []
    for name, of in sorted((name, of) for name, of in groups.items() if len(of) >= FEWEST):
        pairs = [(line["measured_iter_time_s"], line["predicted_iter_time_s"]) for line in of]
        per_token = [(m / line["tokens_per_device"], p / line["tokens_per_device"]) for (m, p), line in zip(pairs, of)]
        reachable = orders.reachable_tau([p for _, p in pairs], orders.scatter(repetition["difference"])) if repetition["runs"] else None
        found.append({"group": name, "runs": len(of), "kendall_tau": orders.kendall_tau(pairs), "kendall_tau_per_token": orders.kendall_tau(per_token),
                      "kendall_tau_apart": orders.kendall_tau(pairs, ALIKE), "kendall_tau_reachable": reachable})
    return found


def ranges_of(lines):
    """For runs with unknown fields: whether the measured time is within the predicted range, and its distance from the nearer end, as a
    share of the measured time."""
    open_runs = [(line["measured_iter_time_s"], *line["range_s"]) for line in lines if line.get("range_s") and line["measured_iter_time_s"]]
    faster, slower = sum(m < low for m, low, _ in open_runs), sum(m > high for m, _, high in open_runs)
    apart = [max(0.0, low / m - 1, 1 - high / m) for m, low, high in open_runs]
    return {"runs": len(open_runs), "within": len(open_runs) - faster - slower, "faster": faster, "slower": slower,
            "distance": sum(apart) / max(1, len(apart))}


def report(programs, runs, *options, apart=False):
    """Every run's line, and the errors over all of them. `options` are those of mpt-plan estimate --requests."""
    lines = predictions.predict(programs, runs, *options, apart=apart)
    repetition, failed = repeated(runs, lines), [line for line in lines if is_failure(line)]
    summary = {"skipped": sum(bool(line["skipped"]) for line in lines), **{field: groups_of(lines, field) for field in ("all", "family", "gpu", "precision")},
               "repeated": repetition, "rank_correlation": rank_correlations(lines, repetition), "ranges": ranges_of(lines),
               "out_of_memory": {"runs": len(failed), "accepted": [line["id"] for line in failed if line["fits"]]}}
    return {"runs": lines, "summary": summary}


def run_row(line):
    if line["skipped"]:
        return f"{line['id']}: skipped: {line['skipped']}"
    low, high = line.get("range_s", [line["predicted_iter_time_s"]] * 2)
    text = f"{line['id']}: {low:.4g} s" + (f" to {high:.4g} s" if high > low else "") + f", {line['predicted_peak_mem_gib']:.1f} GiB predicted"
    if (error := time_error(line)) is not None:
        text += f"; {line['measured_iter_time_s']:.4g} s measured, {100 * error:+.1f} %"
    if (error := memory_error(line)) is not None:
        text += f"; {line['measured_peak_mem_gib']:.1f} GiB measured, {100 * error:+.1f} %"
    return text + (f"; ran out of memory, {'ACCEPTED' if line['fits'] else 'refused'}" if is_failure(line) else "")


def group_rows(title, groups):
    rows = [f"{title or 'all':28} {'runs':>5} {'mean':>8} {'median':>8} {'worst':>9} {'memory':>7} {'mean':>8} {'worst':>9}"]
    for name, of in groups.items():
        t, m = of["time"], of["memory"]
        memory = f"{m['runs']:7} {percent(m['mean']):>8} {percent(m['worst']):>9}" if m["runs"] else ""
        rows.append(f"{name:28} {t['runs']:5} {percent(t['mean']):>8} {percent(t['median']):>8} {percent(t['worst']):>9} {memory}".rstrip())
    return rows


def text_of(found, summary_alone):
    s = found["summary"]
    rows = [] if summary_alone else [*map(run_row, found["runs"]), ""]
    for title in ("family", "gpu", "precision", "all"):
        rows += [*group_rows(title, s[title]), ""] if s[title] else []
    rows += [f"{g['group']}: {g['runs']} runs, Kendall's tau {g['kendall_tau']:.2f}, per token {g['kendall_tau_per_token']:.2f}, "
             f"apart {g['kendall_tau_apart']:.2f}" + (f", reachable {g['kendall_tau_reachable']:.2f}" if g["kendall_tau_reachable"] is not None else "")
             for g in s["rank_correlation"]]
    r, failed = s["ranges"], s["out_of_memory"]
    if r["runs"]:
        rows.append(f"{r['runs']} runs leave fields of their layout open: {r['within']} took a time within the predicted range, {r['faster']} less, "
                    f"{r['slower']} more; on average {percent(r['distance'])} from it")
    if failed["runs"]:
        rows.append(f"{failed['runs']} runs failed for lack of memory: {failed['runs'] - len(failed['accepted'])} of their layouts are refused"
                    + (f"; accepted: {', '.join(failed['accepted'])}" if failed["accepted"] else ""))
    return "\n".join([*rows, f"{len(found['runs'])} runs, {s['skipped']} skipped"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("programs")
    parser.add_argument("runs", nargs="?", default=records.FOLDER)
    for option, what in (("--set", "only runs of this set"), ("--family", "only runs of this source"),
                         ("--calibration", "file with other values for constants of the cost model")):
        parser.add_argument(option, help=what)
    parser.add_argument("--summary", action="store_true", help="leave the runs out")
    parser.add_argument("--json", action="store_true", help="print JSON")
    o = parser.parse_args()
    runs = [run for run in records.read(o.runs) if o.set in (None, run["set"]) and o.family in (None, run["family"])]
    found = report(o.programs, runs, *(("--calibration", o.calibration) if o.calibration else ()))
    print(json.dumps(found, indent=1) if o.json else text_of(found, o.summary))
    return 2 if found["summary"]["skipped"] else 0


if __name__ == "__main__":
    sys.exit(main())
