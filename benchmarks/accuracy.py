# SPDX-License-Identifier: Apache-2.0
"""Writes reports/results/accuracy.md and accuracy.svg: the errors of predictions on published runs. Also writes
planner/explain/evidence.json, the part of it from which mpt-plan tells how sure a plan's prediction is. That file is built into mpt-plan:
if predictions changed, build again and run this twice.

Usage: accuracy.py FOLDER_OF_PROGRAMS [--leave-out]

--leave-out fits the constants again with each family left out (benchmarks/fit_calibration.py, about half an hour); without it
the page keeps the table that it has. The reasons for the worst rows are hand-written, in reports/validation/reasons.json.
"""

import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

import choice
import coverage
import kinds
import margins
import predictions
import records as published
import scatter
import ties
import validate
from coverage import percent

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PAGE = os.path.join(ROOT, "reports", "results", "accuracy.md")
SETS = ("published", "other", "blind", "wide", "community", "recent", "failed")
MEGATRON = {"bridge", "dgxc", "nemo", "megatron", "seqpar", "simumax", "zerobubble", "torchtitan"}


def summary_rows(groups):
    rows = ["| | runs | mean | median | worst | with memory | mean | worst |", "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for name, group in groups.items():
        t, m = group["time"], group["memory"]
        if t["runs"] + m["runs"] == 0:
            continue  # all of them are unmodelled
        memory = f"{m['runs']} | {percent(m['mean'])} | {percent(m['worst'])}" if m["runs"] else "- | - | -"
        rows.append(f"| {name} | {t['runs']} | {percent(t['mean'])} | {percent(t['median'])} | {percent(t['worst'])} | {memory} |")
    return "\n".join(rows)


def mean_of(errors):
    errors = [abs(e) for e in errors]
    return f"{len(errors)} runs, mean {percent(statistics.mean(errors))}, median {percent(statistics.median(errors))}"


def bias_of(errors):
    bias = statistics.mean(errors)
    return f"{percent(abs(bias))} too {'short' if bias < 0 else 'long'}"


def errors_of(runs):
    """Relative errors of step time and of peak memory, by id, for runs with known layouts."""
    return tuple({r["id"]: error for r in runs if (error := error_of(r)) is not None} for error_of in (validate.time_error, validate.memory_error))


def seconds_text(seconds):
    """Like format_seconds() in base/quantity.h, to a millisecond."""
    value, unit = (seconds, "s") if seconds >= 1 else (1e3 * seconds, "ms")
    return f"{value:.{0 if value >= 99.95 or value == int(value) else 1 if value >= 9.995 else 2}f} {unit}"


def as_a_user_asks(sets, reports, asked):
    """Errors of the records, and of the same runs without the settings of their records."""
    lines = ["| set | step times | of records: mean | median | as a user asks: mean | median | peaks | of records: mean | as a user asks: mean |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for name, recorded, user in zip(SETS, reports, asked):
        (time, memory), (time_asked, memory_asked) = errors_of(recorded["runs"]), errors_of(user["runs"])
        if time:
            means = [percent(of(map(abs, errors.values()))) for errors in (time, time_asked) for of in (statistics.mean, statistics.median)]
            peaks = [percent(statistics.mean(map(abs, errors.values()))) if errors else "-" for errors in (memory, memory_asked)]
            lines.append(f"| {name} | {len(time)} | {' | '.join(means)} | {len(memory)} | {' | '.join(peaks)} |")
    runs = [r for of_set in sets for r in of_set.values() if r["request"].get("execution")]
    return "\n".join([f"{sum(len(r['request']['execution']) for r in runs)} settings of {len(runs)} records say what their software did otherwise than "
                      "`frameworks/` says. A user\nwho knows no more than model, machine, layout and framework gets the errors without them:\n", *lines])


def picture(runs):
    """Predicted against measured step times."""
    points = [(r["measured_iter_time_s"], r["predicted_iter_time_s"], r["family"],
               f"{r['id']}: {seconds_text(r['measured_iter_time_s'])} measured, {seconds_text(r['predicted_iter_time_s'])} predicted, "
               f"{100 * error:+.1f} %") for r in runs if (error := validate.time_error(r)) is not None]
    return scatter.svg("Step time, seconds", points)


def by_family(records):
    return published.grouped(records.values(), lambda r: r["family"])


def other_runs(report, records, reasons):
    """The errors of predictions for runs that were published after the fit."""
    sources = {name: dict.fromkeys(r["source"]["where"] for r in of) for name, of in by_family(records).items()}
    time, memory = errors_of(report["runs"])
    far = [(i, "time", e) for i, e in time.items() if abs(e) > 0.25] + [(i, "memory", e) for i, e in memory.items() if abs(e) > 0.25]
    lines = "\n".join(f"| {i} | {what} | {100 * e:+.0f} % | {reasons['other'].get(i, 'none found yet')} |" for i, what, e in far)
    refused = [r["id"] for r in report["runs"] if not r["skipped"] and not r["fits"] and not r.get("unmodelled")]
    families = {f"{name} ({', '.join(sources[name])})": group for name, group in report["summary"]["family"].items()}
    return f"""{mean_of(time.values())}; of peak memory {mean_of(memory.values())}.
Step times are predicted {bias_of(time.values())} on average.
The planner's memory limit would refuse {len(refused)} of the runs that ran: {', '.join(refused) or 'none'}.

{summary_rows(families)}

Off by more than 25 %:

| run | of | error | reason |
| --- | --- | --- | --- |
{lines}"""


def by_source(report, records, reasons):
    """The errors of predictions for runs of every quality, by source, with a sentence on errors that stay large."""
    time, memory = errors_of(report["runs"])
    sources = {name: dict.fromkeys(r["source"]["where"].split(",")[0].split(" (")[0] for r in of) for name, of in by_family(records).items()}
    lines = []
    for name, group in report["summary"]["family"].items():
        t, m = group["time"], group["memory"]
        if t["runs"]:
            kept = f"{m['runs']}: {percent(m['mean'])}" if m["runs"] else "-"
            lines.append(f"| {name} ({', '.join(sources[name])}) | {t['runs']} | {percent(t['mean'])} | {percent(t['median'])} | {kept} | "
                         f"{reasons.get(name, '')} |")
    table = "\n".join(lines)
    failed = report["summary"]["out_of_memory"]
    return f"""{mean_of(time.values())}; of peak memory {mean_of(memory.values())}.
Step times are predicted {bias_of(time.values())} on average. Of {failed['runs']} layouts of these sources that ran out of memory
{len(failed['accepted'])} would be accepted.

| | runs | mean | median | memory | what stays far off |
| --- | --- | --- | --- | --- | --- |
{table}"""


def recent_kinds(report, records):
    """Errors of the set by new features of a run: one row each, with signed and absolute medians."""
    found = {}
    for r in report["runs"]:
        if (error := validate.time_error(r)) is not None:
            kind = r["kind"]
            new = [part for part in kind.get("layers", []) + kind.get("training", []) if part != "experts"] or ["none of these"]
            found.setdefault(new[0] if len(new) == 1 else " and ".join(new), []).append((records[r["id"]]["family"], error))
    lines = [f"| {name} | {len(errors)} | {len({family for family, _ in errors})} | {percent(statistics.median(abs(e) for _, e in errors))} | "
             f"{100 * statistics.median(e for _, e in errors):+.1f} % |" for name, errors in sorted(found.items())]
    return "\n".join(["| new in it | runs | sources | median | signed |", "| --- | --- | --- | --- | --- |", *lines])


def failed_runs(report, records):
    """Runs that failed for lack of memory: the number of their layouts that would be refused, by source."""
    def row(name, runs):
        held = [r["predicted_peak_mem_gib"] for r in runs if r["fits"]]
        return f"| {name} | {len(runs)} | {len(runs) - len(held)} | {f'{statistics.median(held):.0f} GiB' if held else '-'} |"

    sources = published.grouped(report["runs"], lambda r: "{family} ({source[where]})".format_map(records[r["id"]]))
    lines = "\n".join(row(name, of) for name, of in sorted(sources.items()))
    accepted = len(report["summary"]["out_of_memory"]["accepted"])
    return f"""{len(report['runs'])} layouts of which their sources say that memory ran out: {len(report['runs']) - accepted} are refused, {accepted} would be accepted.

| | runs | refused | median peak of the others |
| --- | --- | --- | --- |
{lines}"""


def mean_without_deductions(programs, records):
    """Mean error of these runs with the catalog's network if theirs was deduced."""
    changed = json.loads(json.dumps(list(records.values())))
    for r in changed:
        if "deduced" in r.get("facts", {}).get("hardware.inter_node", ""):
            r["request"]["cluster"] = f"dgx-a100:{r['request']['cluster']['devices'] // 8}"
    error, _ = errors_of(validate.report(programs, changed)["runs"])
    return percent(statistics.mean(abs(e) for e in error.values()))


def evidence_rows(runs, records, told_apart):
    """Evidence for mpt-plan's statements about a plan's kind: measured over predicted, by kind and source. For runs that failed for lack of
    memory: predicted over available memory, and the number of runs of that source that ran but have no known peak. Left out are runs that a
    request cannot express or leaves open, and runs on devices without kernel tables or without a micro-batch. Memory counts only for the
    runs `told_apart`: their sources state which memory they mean."""
    rows = {}

    def row_of(r):
        _, sources = rows.setdefault(json.dumps(r["kind"]), (r["kind"], {}))
        return sources.setdefault(r["family"], {"step_time": [], "peak_memory": [], "failed": [], "ran": 0})

    for r in (r for r in runs if coverage.is_like_a_plan(r, records)):
        row = row_of(r)
        if r["out_of_memory"]:
            row["failed"].append(round(coverage.memory_share(r), 3))
            continue
        if r["measured_iter_time_s"]:
            row["step_time"].append(round(r["measured_iter_time_s"] / r["predicted_iter_time_s"], 3))
        if r["measured_peak_mem_gib"] and r["id"] in told_apart:
            row["peak_memory"].append(round(r["measured_peak_mem_gib"] / r["predicted_peak_mem_gib"], 3))
        else:
            row["ran"] += 1

    def said(sources):
        return [{"source": name, **{what: sorted(found) if isinstance(found, list) else found for what, found in row.items() if found}}
                for name, row in sorted(sources.items())]

    return [{**kind, "sources": said(sources)} for _, (kind, sources) in sorted(rows.items())]


def write_evidence(rows, asked):
    """`asked`: rows of the same runs as a user asks for them. Peaks come from the records' own requests, because a user who plans a run
    knows its states and kernels."""
    table = kinds.measured(rows, {"step_time": asked, "peak_memory": rows})

    def lines(of):
        return ",\n".join(map(json.dumps, of))

    pathlib.Path(predictions.EVIDENCE).write_text(f'{{"new_kinds": [\n{lines(table)}\n],\n"runs": [\n{lines(rows)}\n]}}\n')
    return table


def constants_part():
    """How the constants of the cost model were found, and those that were fitted to runs."""
    constants = json.loads(pathlib.Path(predictions.CONSTANTS).read_text())
    count = {origin: sum(c["origin"] == origin for c in constants) for origin in ("measured", "literature", "fitted")}
    lines = "\n".join(f"| {c['name']} | {c['value']:g} | {c['range'][0]:g} to {c['range'][1]:g} | {c['meaning']} | {', '.join(c['fitted_to'])} |"
                      for c in constants if c["origin"] == "fitted")
    return f"""`planner/cost/calibration.json` has {len(constants)} constants of the cost model. {count['measured']} were measured by somebody, {count['literature']} were read
or counted in documents and sources, and {count['fitted']} were fitted to published runs. Fitted ones have two significant digits. They are:

| constant | value | range | meaning | fitted to |
| --- | --- | --- | --- | --- |
{lines}"""


def main():
    programs = sys.argv[1]
    sets = [published.of_set(name) for name in SETS]
    records, others, kept_apart, wide, community, recent, failures = sets
    reports = [validate.report(programs, list(of_set.values()), apart=True) for of_set in sets]
    asked = [validate.report(programs, list(map(predictions.as_a_user_asks, of_set.values())), apart=True) for of_set in sets]
    report, other, kept_apart_report, wide_report, community_report, recent_report, failed = reports
    every_run, asked_run = ([r for one in of for r in one["runs"]] for of in (reports, asked))
    everything = records | others | kept_apart | wide | community | recent | failures
    rows, asked_rows = (evidence_rows(of, everything, records | others | recent) for of in (every_run, asked_run))
    table = write_evidence(rows, asked_rows)
    reasons = json.loads(pathlib.Path(ROOT, "reports", "validation", "reasons.json").read_text())
    pathlib.Path(ROOT, "reports", "results", "accuracy.svg").write_text(picture(report["runs"]))

    error, memory = errors_of(report["runs"])
    runs = [r for r in report["runs"] if r["id"] in error]
    style = {i: e for i, e in error.items() if records[i]["family"] in MEGATRON}
    dense = [e for i, e in style.items() if not published.has_experts(records[i]) and published.precision_of(records[i]) in ("bf16", "fp16")]
    worst = sorted(error, key=lambda i: -abs(error[i]))
    far = [i for i in worst if abs(error[i]) > 0.25]
    full = sorted((i for i in memory if abs(memory[i]) > 0.1), key=lambda i: -abs(memory[i]))
    s = report["summary"]
    old = open(PAGE).read() if os.path.exists(PAGE) else ""
    kept = re.search(r"<!-- left out -->\n(.*?)\n<!-- end -->", old, re.S)
    all_catalog = mean_without_deductions(programs, others)
    blind = [abs(e) for i, e in errors_of(other["runs"])[0].items() if others[i].get("seen") == "blind"]
    left_out = kept.group(1) if kept else "Not run yet."
    if "--leave-out" in sys.argv:
        command = [sys.executable, os.path.join(ROOT, "benchmarks", "fit_calibration.py"), programs, "published", "--leave-out", "each",
                   "--sweeps", "2", "--every", "3"]
        left_out = subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout.strip()
    tables = subprocess.run([sys.executable, os.path.join(ROOT, "benchmarks", "kernel_tables.py")], stdout=subprocess.PIPE, text=True).stdout
    order = "\n".join(f"| {g['group']} | {g['runs']} | {g['kendall_tau']:.2f} | {g['kendall_tau_per_token']:.2f} | {g['kendall_tau_apart']:.2f} | {g['kendall_tau_reachable']:.2f} |" for g in s["rank_correlation"])
    def mean_order(tau):
        return f"{statistics.mean(g[tau] for g in s['rank_correlation']):.2f}"

    unfit = [r["id"] for r in runs if not r["fits"] and not r.get("unmodelled")]
    text = f"""# What the predictions are worth

`./scripts/bench accuracy` writes this page; `docs/validation.md` says what a record holds, `docs/cost_model.md` how runs
are predicted. An error is (predicted - measured) / measured; means are of its absolute value. {len(report['runs'])} published runs,
{s['skipped']} skipped.

![predicted against measured step time](accuracy.svg)

- Megatron-style frameworks and torchtitan, dense, bf16 and fp16: {mean_of(dense)}
- the same with experts and fp8: {mean_of(style.values())}
- all: {mean_of(error.values())}; {len(far)} runs are off by more than 25 %;
  on average they are predicted {bias_of(error.values())}
- peak memory: {mean_of(memory.values())}; {len(full)} runs are off by more than 10 %
- {s['ranges']['runs']} further runs have unknown fields: {s['ranges']['within']} took a time within the predicted range, {s['ranges']['faster']} less and
  {s['ranges']['slower']} more, on average {percent(s['ranges']['distance'])} from it
- the planner's memory limit would refuse {len(unfit)} of the runs that ran: {', '.join(unfit) or 'none'}

## As a user asks

{as_a_user_asks(sets, reports, asked)}

## By source

{summary_rows(s['family'])}

## By GPU

{summary_rows(s['gpu'])}

## By precision

{summary_rows(s['precision'])}

## Order

Kendall's tau within runs of one model on one GPU: of step times, and of device-seconds per token, where runs that differ in
little but their scale tie within the noise of measurements. "Apart" leaves out pairs whose measured step times are within 2 %
of each other: runs that a source measured more than once differ by {percent(s['repeated']['difference'])} (median of {s['repeated']['runs']}).
"Reachable" is what predictions without any error would be expected to have of step times, given that scatter.

| runs | number | step times | per token | apart | reachable |
| --- | --- | --- | --- | --- | --- |
{order}
| mean | | {mean_order('kendall_tau')} | {mean_order('kendall_tau_per_token')} | {mean_order('kendall_tau_apart')} | {mean_order('kendall_tau_reachable')} |

## Ties

{ties.table(everything, every_run, s["repeated"]["difference"])}

## Choice

{choice.table(records | others, report["runs"] + other["runs"], failures, failed["runs"])}

Sets of Megatron-Bridge mix releases, some of them at half the speed of the next.

## Constants

{constants_part()}

## How sure predictions are

{coverage.table(everything, every_run, asked_run, (rows, asked_rows, table))}

## With one source left out

The fitted constants start in the middle of their ranges and are fitted to the other sources' runs. Measured ones, those from
literature, and what is known of a framework (`frameworks/`) stay.

<!-- left out -->
{left_out}
<!-- end -->

## Other runs

The set `other` came later, and no constant of the cost model was fitted to it by a program. It did show
rules that were missing: PyTorch's pipelines keep sharded weights and gradients whole between micro-batches, its hybrid sharding
sums over nodes beside the backward pass, models that are not compiled run in single kernels, a node's network has as many ports
as it names, a chip that is priced by another's tables was slowed twice where they end, Hugging Face's models keep more of their
logits and RMS norms, and (170 rows of Megatron-Bridge's other releases) an all-to-all leaves a node through each rank's own port
and may run beside another micro-batch; routers limited to groups of experts send a token to fewer nodes, and what gpt-oss adds
has no fused kernels in Megatron-LM. So the errors below are those of mended rules. The rates of four machines that no table holds
were set with their runs in sight: the H100 with 500 W (both files), a power-limited B200 (three runs of torchtitan), and L4 and
A10G (mist); so were the rate of an all-to-all between nodes, what fp8 gains and what its casts take. That small experts in fp8 wait
for the host, which launches them one by one, was seen in Megatron-Bridge's runs of both files; that ATorch sums the gradients of each
projection apart, and that Paddle's release of 2.5.1 has the first FlashAttention, was read in their sources; so was that Qwen3 has
norms on its queries and keys, that Megatron-LM pads experts' rows in a copy, and which recipes run attention and head in fp8. Two
runs of Megatron-LM's CI on A100 in deterministic mode are 13 % too short: no other run has this mode, so nothing is priced for it. The
share of the memory bandwidth that single kernels reach lies between what either file would choose.

Then came 397 layouts of Aleph Alpha's sweep (arXiv:2311.05610; Llama 13B, 30B and 65B on A100). Before anything was
changed for them they were off by 17.9 % on average, 16.3 % too short. They showed that RMS norms of single kernels move five times
what was priced, that widths that are no multiple of 64 cost less with today's products than with those of 2022, and that logits
may be gathered; and a framework's file says what is theirs. The first of the three makes other sources' runs better, too
(DLRover's and FlagPerf's), and PaddleNLP's worse. Of the second nothing is left today: once the network and the stages below were
right, such widths showed no cost at all. The layouts of the same sweep that ran out of memory then showed what its
framework keeps, by which of its neighbours ran: read in its source, all but three numbers (`docs/cost_model.md`), among them dropout,
attention in PyTorch's single kernels and sums of whole gradients in fp32, which made its times better, too (from 11.5 %).
Two things took them from there: that its stages hold equal numbers of items, embedding, norm and head among them, was read in its
source; that its nodes have 400 Gb/s was computed from its own sheets, without a cost model (`docs/validation.md`), so its errors
are those of a machine half known from its runs. With the catalog's network in its place the runs of this section are off by
{all_catalog}. Since then what that framework alone did (sums of whole gradients, gathered inputs that are kept) is no longer priced: all
of these runs but three are `unmodelled`.

The last to come were 241 runs of 18 sources, collected from public repositories by somebody who did not see a prediction. Predicted
as the model stood, without a change for them, they were off by **17.5 % on average, 12.9 % in the median** (102 with memory:
99 % and 35 %): that is what a source that nobody has looked at should be expected to be off by, its reading included. Most of it
was not noise but ten rules that were missing or wrong, found by comparing runs with each other, each with a reason outside of
these runs: attention beyond the tables' 16,384 tokens (priced as if few heads left the chip idle: 128k tokens were 40 to 90 % too
long), cuDNN's attention in Megatron-Core on Hopper and later, links of devices that borrow another's tables (H800, A800, V100,
MI300X), links of two devices of a mesh, InfiniBand against Ethernet, rates of H20 and RTX 4090, V-Half read as interleaved, flash
attention in fp16 where sources name it, and what torchtitan compiles. With them the same runs are off by
{percent(statistics.mean(blind))} on average, {percent(statistics.median(blind))} in the median, and other sources' runs that these rules touch came nearer, too (MLPerf's from 7.1 to 4.5 %, torchao's memory from 12.8 to 7.1 %). What stays
far off has its reason below: torchtitan's experts, ZeRO-3 on V100 in 2021, NeMo's context parallelism of March 2024.

The model so mended was then tried on runs that came after it, of MLPerf's rounds 3.0 to 5.1 and of cloud recipes
(set `blind`): **11.6 % on average, 8.3 % in the median**, blind. They showed that Blackwell's libraries of
2025 were slower than those of 2026 that the tables hold, and that it keeps no transposed weights in fp8 (memory of Llama 3.1 405B on
GB200 from 19 to 6 % off). Ten ran in NVFP4, which was priced as fp8, 23 % too long; from NVIDIA's own timings of one layer's
products, and nothing else, they are met within 7 % on average. Now: {mean_of(errors_of(kept_apart_report["runs"])[0].values())}.

{other_runs(other, others, reasons)}

## A wider set

The set `wide` is the third blind set: runs of more than 40 further sources, whatever could be found, among them
frameworks that nobody else uses, blog posts and single logs, some with the layout half known, some read from charts. As the model
stood before they were seen: **29.0 % on average, 20.6 % in the median** (376 runs; 71 with memory: 55.0 % and 33.9 %). What was
changed for them, each with its reason in `docs/validation.md` or `docs/cost_model.md`: records say which attention kernel ran,
which states are in bf16 alone, which losses keep no whole logits and which overlap was off, where a source names it; Hugging Face
gathers its logits; a network's rate without "per node" counts as an adapter's; DualPipe hides the exchange; DeepSpeed's gathers reach 0.55 of the network's rate (the one number that was chosen by these runs) and its sums of
gradients in bf16 are in fp32. Now:

{by_source(wide_report, wide, reasons['wide'])}

## Reported by users

The set `community` is the fourth set that was predicted blind: 224 runs, 15 further ones with memory alone and
16 that failed, of issues, pull requests, commit messages, documentation and blog posts of 2021 to 2026, by users of Megatron-Core,
Megatron-Bridge, torchtitan, litgpt, DeepSpeed and others, often with remarks in place of flags. As the program stood (commit 9eaa63a):
**26.2 % on average, 17.7 % in the median**; memory of 143: 21.2 % and 14.8 %. It showed that a layer of experts of Megatron-Core
hardly takes less than 9.6 ms without CUDA graphs (one run: 8.2 ms; `benchmarks/expert_layers.py` prints them), on H100, B200
and B300 alike, however little its device has to do, since the host is what it waits for: `expert_layer_us` says so now, and records say whether graphs, HybridEP or DeepEP ran. With it the wide set's exchanges over EFA could be told
from their host, which leaves them at half of what 800 Gb/s per GPU allow, as Megatron-Bridge's on B300: the catalog's B300 has 400.
torchtitan's loss is by chunks since May 2026, and PyTorch's own attention the second FlashAttention since 2.2. Now:

{by_source(community_report, community, reasons['community'])}

## Linear mixers, sparse attention, adapters and AMD

The set `recent` is the fifth set that was predicted blind: kinds of which no run was known, published from April to August 2026. As the
program stood, with what each recipe says: **18.1 % on average, 13.7 % in the median** (43 step times). Two things were
learned. Super and Lightning train two next-token modules in Megatron-Bridge, which the configurations do not say; the published work per
token does. And the core of a linear mixer does not get faster with the tensor cores: `linear_mixer_share` is now a share of the peak of fp32. Now:

{by_source(recent_report, recent, reasons['recent'])}

{recent_kinds(recent_report, recent)}

## Runs that failed for lack of memory

the set `failed`. Those that would be accepted are the under-estimates that turn a failure into a
recommendation. Beside a plan `mpt-plan` says how many of its framework there were, and in which share of the room the leanest
of them was.

{failed_runs(failed, failures)}

{margins.table(every_run, failed["runs"])}

## The ten worst

""" + "\n".join(f"- **{i}** ({error[i] * 100:+.0f} %). {reasons.get(i, 'No reason found yet.')}" for i in worst[:10]) + """

## Off by more than 25 %

| run | error | reason |
| --- | --- | --- |
""" + "\n".join(f"| {i} | {error[i] * 100:+.0f} % | {reasons.get(i, 'none found yet')} |" for i in far[10:]) + """

## Memory off by more than 10 %

| run | error | reason |
| --- | --- | --- |
""" + "\n".join(f"| {i} | {memory[i] * 100:+.0f} % | {reasons['memory'].get(i, 'none found yet')} |" for i in full) + f"""

## Interpolation of the kernel tables

Each inner point left out in turn; a lookup has points half as far apart.

{tables}"""
    pathlib.Path(PAGE).write_text(text)
    print(f"wrote {os.path.relpath(PAGE)}")
    print(f"dense bf16/fp16: {mean_of(dense)}\nMegatron style: {mean_of(style.values())}\nall: {mean_of(error.values())}")


if __name__ == "__main__":
    main()
