# SPDX-License-Identifier: Apache-2.0
"""mpt-plan --observed: measured runs correct the order, are kept in plan.json, and serve another batch of the same cluster.

Usage: observed_test.py FOLDER_OF_PROGRAMS
"""

import json
import os
import subprocess
import sys
import tempfile

PROGRAMS = sys.argv[1]
FAILURES = []
ASKED = ["--model", "llama3.2-1b", "--cluster", "dgx-h100:1", "--global-batch", "32", "--seq", "2048", "--framework", "megatron-bridge"]


def run(*options):
    done = subprocess.run([os.path.join(PROGRAMS, "mpt-plan"), *map(str, options)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200)
    return done.returncode, " ".join(done.stdout.split())


def expect(name, done, code, *parts):
    missing = [part for part in parts if part not in done[1]]
    if done[0] != code or missing:
        FAILURES.append(f"{name}: exit {done[0]}, wanted {code}; missing {missing}\n{done[1]}")


def read(path):
    with open(path) as file:
        return json.load(file)


def write(path, text):
    with open(path, "w") as file:
        file.write(text)
    return path


def short_form(plan):
    """As mpt-plan prints the recommended layout."""
    text = run("explain", plan)[1]
    return text.split("short form: ")[1].split(" (docs/notation.md)")[0]


def check(name, right):
    if not right:
        FAILURES.append(name)


def main():
    folder = tempfile.mkdtemp()
    first, second, third = (os.path.join(folder, f"{name}.json") for name in ("first", "second", "third"))
    expect("plan", run(*ASKED, "-o", first), 0, "RECOMMENDED")
    layout, predicted = short_form(first), read(first)["prediction"]["step_time_s"]

    observed = f"{layout}={1.25 * predicted}s"
    expect("one run", run("--request", first, "--observed", observed, "-o", second), 0, "From 1 run: this cluster is", "slower than predicted",
           "CORRECTED ORDER", "measured", "MEASURE NEXT", "Choosing now loses", "=TIME,MEMORY'")
    corrected = read(second)["corrected"]
    check("the run is in the order", any(row.get("ran") and row["step_time_s"] > 1.15 * row["predicted_s"] for row in corrected["layouts"]))
    check("others are slower, too", all(row["step_time_s"] > row["predicted_s"] for row in corrected["layouts"]))
    expect("another batch", run("--request", second, "--global-batch", 64, "-o", third), 0, "From 1 run: this cluster is", "slower than predicted")
    check("the run keeps its batch", read(third)["request"]["observed"][0]["global_batch"] == 32)

    lines = write(os.path.join(folder, "runs.txt"), f"# of Tuesday\n{observed},20GiB\ntp8 pp1=oom\n")
    expect("a file", run("--request", first, "--observed", lines), 0, "From 2 runs: this cluster is", "A GPU needs", "ran out of memory")
    log = write(os.path.join(folder, "run.log"), "".join(f" iteration {i:8d}/ 100 | elapsed time per iteration (ms): {1250 * predicted:.1f} |\n" for i in range(1, 12)))
    expect("a log", run("--request", first, "--observed", log), 0, "From 1 run: this cluster is", "slower than predicted")
    expect("a log of a layout", run("--request", first, "--observed", f"{layout}={log}"), 0, "From 1 run: this cluster is")

    expect("an unknown part", run(*ASKED, "--observed", "tp2 qq4=3s"), 2, "--observed", "'qq4' in the layout 'tp2 qq4'", "docs/notation.md")
    expect("no figures", run(*ASKED, "--observed", "tp2"), 2, "--observed", "LAYOUT=FIGURES", "in quotes")
    expect("a time that cannot be", run(*ASKED, "--observed", "tp2=1us"), 2, "--observed 'tp2'")
    expect("no layout", run(*ASKED, "--observed", log), 2, "does not say which layout ran", "--request plan.json")
    expect("a wrong line", run(*ASKED, "--observed", write(os.path.join(folder, "wrong.txt"), "tp2=3s\ntp4\n")), 2, "wrong.txt at line 2", "'tp4'")
    expect("other GPUs", run("--request", second, "--cluster", "dgx-a100:1"), 2, "--observed", "dgx-h100:1", "dgx-a100:1", "take the run out")
    for failure in FAILURES:
        print("FAILED", failure)
    return 1 if FAILURES else 0


if __name__ == "__main__":
    sys.exit(main())
