# SPDX-License-Identifier: Apache-2.0
"""Whole commands of mpt-plan in the time that a user waits for them: this build and another one in turn.

Usage: commands.py FOLDER_OF_PROGRAMS [--against FOLDER] [--turns N] [--quick] [--page FILE] [--outputs FOLDER]
Medians. `cpu s` is the processor's time with one thread, user and system together, since Linux only samples their shares; `wall s`
is the elapsed time with two threads. --quick takes one turn of the two smallest requests. --outputs keeps the commands' output.
"""

import argparse
import datetime
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

TURNS = 7
MODEL_1T = os.path.join(os.path.dirname(os.path.abspath(__file__)), "megatron-1t.json")
# Title, model, cluster, global batch, and further words.
SEARCHES = [
    ("Llama 3 8B on 8 H100", "llama3-8b", "dgx-h100:1", 128),
    ("Llama 3 70B on 64 H100", "llama3-70b", "dgx-h100:8", 512),
    ("Llama 3 70B on 1,024 H100", "llama3-70b", "dgx-h100:128", 2048),
    ("GPT-3 175B on 4,096 A100", "gpt3-175b", "dgx-a100:512", 1536),
    ("Llama 3.1 405B on 16,384 H100", "llama3-405b", "dgx-h100:2048", 2048, "--seq", "8192"),
    ("DeepSeek-V3 on 2,048 H100", "deepseek-v3", "dgx-h100:256", 15360),
    ("Megatron 1T on 512 A100", MODEL_1T, "dgx-a100:64", 512, "--seq", "2048"),
    ("all trade-offs of GPT-3 175B on 4,096 H100", "gpt3-175b", "dgx-h100:512", 2048, "--pareto"),
]
# Requests that took long before 0.3. Another table has them: one thread, the most memory, and whether the search came to its end.
HARD = [
    ("DeepSeek-V3 on 2,048 H100", "deepseek-v3", "dgx-h100:256", 15360),
    ("the same, planned for mpt-run", "deepseek-v3", "dgx-h100:256", 15360, "--framework", "mpt"),
    ("405B on two sites of 512 H100", "llama3-405b", "dgx-h100:64+dgx-h100:64@100Gb/s@5ms", 1024),
    ("DeepSeek-V3 on 1,024 H100 and 1,024 A100", "deepseek-v3", "dgx-h100:128+dgx-a100:128@100Gb/s", 15360),
    ("Megatron 1T on 512 A100, batch 8,192", MODEL_1T, "dgx-a100:64", 8192, "--seq", "2048"),
    ("the same within a second", MODEL_1T, "dgx-a100:64", 8192, "--seq", "2048", "--time-limit", "1"),
]
HARD_TURNS = 3
# Without a search for a better layout, which --json leaves out: only reading and pricing.
ESTIMATE = ("estimate of a layout, no search", "llama3-8b", "dgx-h100:1", 64, "--tp", "2", "--zero", "1", "--json")


class Times:
    """Seconds of one build's runs of one request, and the most memory of any of them."""

    def __init__(self):
        self.cpu, self.wall_one, self.wall_two = [], [], []
        self.most_mb = 0.0

    def medians(self):
        return [statistics.median(seconds) for seconds in (self.cpu, self.wall_one, self.wall_two)]


def words_of(request):
    title, model, cluster, batch, *more = request
    return [*(["estimate"] if request is ESTIMATE else []), "--model", model, "--cluster", cluster, "--global-batch", str(batch), *more]


def timed(programs, request, threads, output):
    """CPU seconds, wall seconds and resident MB of one command; its output goes to a file."""
    command = [os.path.join(programs, "mpt-plan"), *words_of(request), *([] if request is ESTIMATE else ["--threads", str(threads)])]
    with open(output, "w") as out, open(output + ".errors", "w") as errors:
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)}\nexit code {process.returncode}\n{pathlib.Path(output + '.errors').read_text()}")
    return usage.ru_utime + usage.ru_stime, wall_s, usage.ru_maxrss * 1024 / 1e6


def output_of(outputs, request, number, threads):
    name = request[0].replace(" ", "_").replace(",", "")
    return os.path.join(outputs, f"{name}-{'this' if number == 0 else 'other'}-{threads}")


def measure(builds, request, turns, outputs, all_threads=(1, 2)):
    """The times of each build. Builds take turns, so that a busy minute affects all of them."""
    all_times = [Times() for _ in builds]
    for _ in range(turns):
        for threads in all_threads:
            for number, (programs, times) in enumerate(zip(builds, all_times)):
                cpu_s, wall_s, mb = timed(programs, request, threads, output_of(outputs, request, number, threads))
                times.most_mb = max(times.most_mb, mb)
                times.cpu += [cpu_s] if threads == 1 else []
                (times.wall_one if threads == 1 else times.wall_two).append(wall_s)
    return all_times


def row(request, all_times):
    cpu_s, wall_one_s, wall_two_s = all_times[0].medians()
    text = f"| {request[0]} | {cpu_s:.3f} |"
    if len(all_times) > 1:
        other_cpu_s, _, other_two_s = all_times[1].medians()
        return (f"{text} {other_cpu_s:.3f} | {other_cpu_s / cpu_s:.2f}x | {wall_two_s:.3f} | {other_two_s:.3f} | "
                f"{other_two_s / wall_two_s:.2f}x | {wall_one_s / wall_two_s:.2f}x |")
    return f"{text} {wall_two_s:.3f} | {wall_one_s / wall_two_s:.2f}x |"


def hard_row(request, all_times, outputs):
    """A row of the second table: CPU seconds of one thread, memory, and whether the search came to its end."""
    cells = [request[0]]
    seconds = [statistics.median(times.cpu) for times in all_times]
    cells += [f"{value:.2f}" for value in seconds] + ([f"{seconds[1] / seconds[0]:.1f}x"] if len(seconds) > 1 else [])
    cells += [f"{statistics.median(times.wall_one):.2f}" for times in all_times] + [f"{times.most_mb:,.0f}" for times in all_times]
    texts = [pathlib.Path(output_of(outputs, request, number, 1)).read_text(encoding="utf-8") for number in range(len(all_times))]
    return "| " + " | ".join(cells + ["stopped" if "Stopped after" in text else "to its end" for text in texts]) + " |"


# Columns, and the places of those that a build without another one has.
COLUMNS = ["request", "cpu s", "cpu s, other", "ratio", "wall s", "wall s, other", "ratio", "2 threads"], (0, 1, 4, 7)
HARD_COLUMNS = [*COLUMNS[0][:6], "MB", "MB, other", "search", "search, other"], (0, 1, 4, 6, 8)


def heading(columns, against):
    names, own = columns
    names = names if against else [names[i] for i in own]
    return "\n".join(["| " + " | ".join(names) + " |", "| --- |" + " ---: |" * (len(names) - 1)])


def commit_of(folder):
    return subprocess.run(["git", "-C", folder, "log", "-1", "--format=%h of %cs"], capture_output=True, text=True).stdout.strip() or "unknown"


def processor():
    names = [line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").open(encoding="utf-8") if line.startswith("model name")]
    return f"{names[0] if names else 'unknown processor'}, {os.cpu_count()} cores"


def page(table, hard, builds, turns, load):
    other = f" The other build is of commit {commit_of(builds[1])}." if len(builds) > 1 else ""
    return "\n".join([
        "# Whole commands of mpt-plan", "",
        "`./scripts/bench commands --against FOLDER --page reports/results/commands.md` writes this page.", "",
        f"{datetime.date.today()}, {processor()}, load {load:.2f} before. This build is of commit {commit_of(builds[0])}.{other} "
        f"Medians of {turns}. Builds take turns. "
        "`cpu s` is the processor's time of a whole command with one thread, from its start to its end. `wall s` is the time that passes with "
        "two threads. The last column says how many times as fast two threads are as one.", "",
        "The machine's speed changes from hour to hour, so ratios decide, and seconds do not. A ratio is the other build's time over this one's.", "",
        table, "",
        f"Requests that once took long, medians of {HARD_TURNS} with one thread. `MB` is the most memory of a command.", "", hard, "",
        *[f"- {request[0]}: `mpt-plan {' '.join(words_of(request)).replace(MODEL_1T, 'benchmarks/megatron-1t.json')}`"
          for request in [*SEARCHES, ESTIMATE, *HARD]], ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs")
    parser.add_argument("--against", metavar="FOLDER")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--page", metavar="FILE")
    parser.add_argument("--outputs", metavar="FOLDER")
    options = parser.parse_args()
    builds = [options.programs, *([options.against] if options.against else [])]
    for folder in builds:
        if not os.access(os.path.join(folder, "mpt-plan"), os.X_OK):
            parser.error(f"{folder}: no program mpt-plan there; expected a folder such as build/release/bin")
    turns, searches = (1, SEARCHES[:2]) if options.quick else (options.turns, SEARCHES)
    load, lines = os.getloadavg()[0], [heading(COLUMNS, options.against)]
    print(f"load before: {load:.2f} on {os.cpu_count()} cores\n{lines[0]}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        outputs = options.outputs or scratch
        os.makedirs(outputs, exist_ok=True)
        for request in [*searches, ESTIMATE]:
            lines.append(row(request, measure(builds, request, turns, outputs)))
            print(lines[-1], flush=True)
        hard = [] if options.quick else [heading(HARD_COLUMNS, options.against)]
        print(*hard, sep="\n", flush=True)
        for request in [] if options.quick else HARD:
            hard.append(hard_row(request, measure(builds, request, HARD_TURNS, outputs, all_threads=(1,)), outputs))
            print(hard[-1], flush=True)
    if options.page:
        pathlib.Path(options.page).write_text(page("\n".join(lines), "\n".join(hard), builds, turns, load))


if __name__ == "__main__":
    main()
