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


def estimates(folder):
    """A figure of --measured and a run of --observed are one thing: figures, verdicts and exit codes of both are alike."""
    mine = ["--model", "qwen3-30b-a3b", "--cluster", "hgx-h800:2", "--global-batch", 512, "--seq", 4096, "--framework", "megatron-core"]
    degrees = ["--pp", 2, "--dp", 8, "--ep", 8, "--etp", 1, "--zero", 1, "--micro-batch", 2]
    plan = os.path.join(folder, "measured.json")
    before = run("estimate", *mine, *degrees, "--check")
    check("it is predicted not to fit", before[0] == 1 and "DOES NOT FIT" in before[1])
    figures = []
    for name, option in (("--measured", "10.361s"), ("--observed", "pp2 dp8 ep8 etp1 zero1 mbs2=10.361s")):
        done = run("estimate", *mine, *degrees, name, option, "-o", plan, "--check")
        expect(f"estimate {name}", done, 0, "It fits.", "step 10.4 s", "without the runs", "fits: 100%")
        check(f"estimate {name}: one judgement", "DOES NOT FIT" not in done[1] and "FITS INSTEAD" not in done[1] and "(10" not in done[1].split("time goes to")[0].split("memory")[1])
        figures.append(done[1].split("YOUR LAYOUT")[1].split("time goes to")[0])
        again = run("explain", plan)
        expect(f"explain, {name}", again, 0, "step 10.4 s")
        check(f"explain, {name}: the same figures", figures[-1].split("step 10.4 s")[1].split(" on the fullest")[0] == again[1].split("step 10.4 s")[1].split(" on the fullest")[0])
        page = os.path.join(folder, "page.html")
        run("estimate", *mine, *degrees, name, option, "--report", page)
        with open(page) as file:
            check(f"report, {name}", "10.4 s" in file.read())
    check("both say the same", figures[0] == figures[1])

    slow = ["estimate", "--model", "llama3-70b", "--cluster", "dgx-h100:8", "--global-batch", 256, "--tp", 8, "--pp", 4, "--dp", 2, "--recompute", "full"]
    run(*slow, "-o", os.path.join(folder, "slow.json"))
    predicted = read(os.path.join(folder, "slow.json"))["prediction"]["step_time_s"]
    for times in (1.3, 2.0, 3.0):
        done = run(*slow, "--measured", f"{times * predicted}s")[1]
        saved, better = float(done.split("Moving to it saves")[1].split(" per step (")[1].split("%)")[0]), float(done.split(" times as fast as your measured")[0].split(" ")[-1])
        check(f"{times} times: {saved} % saved and {better} times as fast are one figure", abs(1 - saved / 100 - 1 / better) < 0.03)
    expect("a comparison of plans", run("compare", plan, plan), 0, "10.4 s")


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
    estimates(folder)
    for failure in FAILURES:
        print("FAILED", failure)
    return 1 if FAILURES else 0


if __name__ == "__main__":
    sys.exit(main())
