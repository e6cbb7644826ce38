# SPDX-License-Identifier: Apache-2.0
"""mpt-plan tune, over a launcher whose times are known for every layout, and over mpt-run on CPU ranks: it ends with the fastest layout,
goes on after a kill with what the journal has, and takes nothing from a launcher that fails.

Usage: tune_test.py FOLDER_OF_PROGRAMS
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

PROGRAMS = sys.argv[1]
FAILURES = []
ASKED = ["--model", "llama3.2-1b", "--cluster", "dgx-h100:1", "--global-batch", "32", "--seq", "2048", "--framework", "megatron-bridge"]

# Context ranks are faster here than predicted, and other layouts slower.
LAUNCHER = """
import json, os, sys, time
folder, kind = sys.argv[1], sys.argv[2]
plan = json.load(open(os.path.join(folder, "plan.json")))
layout, predicted = plan["layout"], plan["prediction"]["step_time_s"]
if kind == "breaks":
    sys.exit("the queue is closed")
if kind == "sleeps" or (kind == "first sleeps" and folder.endswith("run-1")):
    time.sleep(60)
if kind == "slow":
    time.sleep(4)
if kind == "fills" and layout["data"] == 8:
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
factor = 0.8 if layout["context"] > 1 else 1.3
for step in range(1, 12):
    print(f" [2026-01-01 00:00:00] iteration {step:8}/ 100 | consumed samples: 1 | elapsed time per iteration (ms): {1000 * predicted * factor:.3f} | "
          "global batch size: 32 | lm loss: 1.0 |")
"""


def run(*options, timeout=300):
    done = subprocess.run([os.path.join(PROGRAMS, "mpt-plan"), *map(str, options)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout)
    return done.returncode, " ".join(done.stdout.split())


def expect(name, done, code, *parts):
    missing = [part for part in parts if part not in done[1]]
    if done[0] != code or missing:
        FAILURES.append(f"{name}: exit {done[0]}, wanted {code}; missing {missing}\n{done[1]}")


def check(name, condition, what):
    if not condition:
        FAILURES.append(f"{name}: {what}")


def journal(folder):
    with open(os.path.join(folder, "journal.jsonl")) as file:
        return [json.loads(line) for line in file]


def of_a_launcher(folder, plan, launch):
    tuned = os.path.join(folder, "tuned.json")
    done = run("tune", plan, "--runs", 6, "--steps", 10, "--folder", f"{folder}/a", "--launch", launch("runs"), "-o", tuned)
    expect("a launcher", done, 0, "run 1 of at most 6", "with 95%")
    runs = journal(f"{folder}/a")
    with open(tuned) as file:
        best = json.load(file)
    check("a launcher", best["corrected"]["layouts"][0]["layout"]["context"] > 1 and len(runs) <= 6, "no context ranks, or too many runs")
    check("a launcher", all(one["model"] and one["cluster"] and one["global_batch"] == 32 for one in runs), f"rows without their job: {runs}")
    times = {one["layout"]: float(one["measured"].split("s")[0]) for one in runs}
    first = best["corrected"]["layouts"][0]["step_time_s"]
    check("a launcher", abs(first - min(times.values())) <= 0.03 * min(times.values()), f"{first} s is not the fastest of {times}")
    for number in range(1, len(runs) + 1):
        check("a launcher", os.path.exists(f"{folder}/a/run-{number}/plan.json"), f"run {number} keeps no plan")
    observed = run(*ASKED, "--observed", f"{folder}/a/journal.jsonl")
    expect("the journal is read by --observed", observed, 0, f"From {len(runs)} runs", "measured")
    again = run("tune", plan, "--runs", len(runs), "--folder", f"{folder}/a", "--launch", launch("breaks"))
    expect("nothing is run twice", again, 0, f": {len(runs)} runs.")
    return runs


def recommended_first(folder, launch):
    """Of equally fast layouts, too, the first run is the plan's; --try-first is another plan."""
    for number, more in enumerate(([], ["--micro-batch", 2], ["--try-first", "--framework", "torchtitan"])):
        plan = os.path.join(folder, f"first{number}.json")
        run("--model", "llama3-8b", "--cluster", "dgx-h100:1", "--global-batch", 32, *more, "-o", plan)
        done = run("tune", plan, "--runs", 1, "--steps", 10, "--folder", f"{folder}/first{number}", "--launch", launch("runs"))
        layouts = [json.load(open(file))["layout"] for file in (plan, f"{folder}/first{number}/run-1/plan.json")]
        check(f"the first run, {more}", done[0] == 0 and layouts[0] == layouts[1], done[1])


def failures(folder, plan, launch):
    expect("a launcher that fails", run("tune", plan, "--folder", f"{folder}/b", "--launch", launch("breaks")), 1, "the queue is closed", "run-1/output.txt")
    check("a launcher that fails", not os.path.exists(f"{folder}/b/journal.jsonl"), "it has observed something")
    expect("no such launcher", run("tune", plan, "--folder", f"{folder}/b", "--launch", "no-such-program {dir}"), 1, "exit code 127", "No such file")
    expect("a mark that is none", run("tune", plan, "--folder", f"{folder}/b", "--launch", "true {dri}"), 2, '--launch: {dri}', "{dir} or {steps}")
    os.makedirs(f"{folder}/h/run-1")
    with open(f"{folder}/h/run-1/mine", "w") as file:
        file.write("kept")
    run("tune", plan, "--folder", f"{folder}/h", "--launch", launch("runs"), "--runs", 1)
    check("somebody's folder", os.listdir(f"{folder}/h/run-1") == ["mine"] and os.path.exists(f"{folder}/h/run-2/plan.json"), os.listdir(f"{folder}/h"))
    other = os.path.join(folder, "other.json")
    run(*["torchtitan" if word == "megatron-bridge" else word for word in ASKED], "-o", other)
    expect("a journal of other software", run("tune", other, "--folder", f"{folder}/h", "--launch", launch("runs"), "--runs", 2), 0, "of other nodes or software")
    expect("no launcher", run("tune", plan, "--folder", f"{folder}/b"), 2, "--launch: missing", "sbatch --wait")
    expect("no steps", run("tune", plan, "--folder", f"{folder}/b", "--launch", "true"), 1, "no step times", "log.jsonl")
    done = run("tune", plan, "--folder", f"{folder}/c", "--launch", launch("sleeps"), "--timeout", 1, "--steps", 2, "--runs", 1)
    expect("a run that takes too long", done, 0, "measured 0.5s")
    done = run("tune", plan, "--folder", f"{folder}/i", "--launch", launch("sleeps"), "--timeout", 1, "--steps", 1000, "--runs", 1)
    expect("a timeout below the prediction", done, 2, "--timeout: 1", "1000 steps take as predicted", "lower --steps")
    check("a timeout below the prediction", not os.path.exists(f"{folder}/i/journal.jsonl"), "it has observed something")
    run("tune", plan, "--folder", f"{folder}/d", "--launch", launch("fills"), "--runs", 3, "--steps", 10)
    check("memory", all((one["measured"] == "oom") == (one["exact"]["data"] == 8) for one in journal(f"{folder}/d")), f"{journal(f'{folder}/d')}")
    with open(f"{folder}/b/journal.jsonl", "w") as file:
        file.write('{"layout": "tp1"}\n')
    expect("a journal that is none", run("tune", plan, "--folder", f"{folder}/b", "--launch", "true"), 2, "journal.jsonl at line 1")
    whole = open(f"{folder}/a/journal.jsonl").read()
    for cut in (5, len(whole) - 20):
        os.makedirs(f"{folder}/cut-{cut}")
        with open(f"{folder}/cut-{cut}/journal.jsonl", "w") as file:
            file.write(whole[:cut])
        kept = whole[:cut].count("\n")
        done = run("tune", plan, "--folder", f"{folder}/cut-{cut}", "--launch", launch("runs"), "--runs", kept + 1, "--steps", 10)
        expect(f"a journal cut after {cut} bytes", done, 0, f"journal.jsonl at line {kept + 1} is cut off", "left out", f"{kept + 1} runs")
        check("what was cut is measured again", len(journal(f"{folder}/cut-{cut}")) == kept + 1, journal(f"{folder}/cut-{cut}"))
        check("the whole lines stay", open(f"{folder}/cut-{cut}/journal.jsonl").read().startswith("".join(whole.splitlines(True)[:kept])), whole)
    with open(f"{folder}/b/journal.jsonl", "w") as file:
        file.write("\n".join([whole.split("\n")[0][:-20], *whole.split("\n")[1:]]))
    expect("a journal with a broken line", run("tune", plan, "--folder", f"{folder}/b", "--launch", "true"), 2, "journal.jsonl at line 1", "delete the line")


def killed(folder, plan, launch, wanted):
    """Whoever kills it at any moment loses one run at most."""
    command = [os.path.join(PROGRAMS, "mpt-plan"), "tune", plan, "--runs", "6", "--steps", "10", "--folder", f"{folder}/e", "--launch", launch("runs")]
    for moment in (0.05, 0.2, 0.4, 0.7):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(moment)
        process.kill()
        process.wait()
    stopped = subprocess.Popen([*command[:-3], f"{folder}/f", "--launch", launch("sleeps")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    time.sleep(3)
    stopped.send_signal(signal.SIGINT)
    said = stopped.communicate(timeout=60)[0]
    check("a signal", stopped.returncode == 130 and "the same command goes on" in said, f"exit {stopped.returncode}: {said}")
    expect("after kills", run(*command[1:]), 0, "with 95%")
    check("after kills", [(one["layout"], one["measured"]) for one in journal(f"{folder}/e")] == [(one["layout"], one["measured"]) for one in wanted],
          f"{journal(f'{folder}/e')}")


def together(folder, plan, launch):
    """Two tunings of one folder keep each other's runs."""
    command = [os.path.join(PROGRAMS, "mpt-plan"), "tune", plan, "--steps", "10", "--folder", f"{folder}/k"]
    slow = subprocess.Popen([*command, "--runs", "1", "--launch", launch("slow")], stdout=subprocess.DEVNULL)
    time.sleep(1)
    expect("two tunings", run(*command[1:], "--runs", 2, "--launch", launch("runs")), 0, "run 2 of at most 2")
    check("two tunings", slow.wait(timeout=60) == 0 and len(journal(f"{folder}/k")) == 3, journal(f"{folder}/k"))


def of_cpu_ranks(folder):
    plan = os.path.join(folder, "cpu.json")
    expect("a plan for CPU ranks", run("--model", "tiny-gpt", "--cluster", "this-machine:2", "--global-batch", 8, "-o", plan), 0)
    done = run("tune", plan, "--runs", 2, "--steps", 6, "--folder", f"{folder}/g")
    expect("CPU ranks", done, 0, "run 1 of at most 2", "measured")
    check("CPU ranks", 1 <= len(journal(f"{folder}/g")) <= 2, "no run is kept")


with tempfile.TemporaryDirectory() as scratch:
    script = os.path.join(scratch, "launcher.py")
    with open(script, "w") as text:
        text.write(LAUNCHER)
    job = os.path.join(scratch, "plan.json")
    expect("a plan", run(*ASKED, "-o", job), 0)

    def launcher(kind):
        return f"{sys.executable} {script} {{dir}} {kind}"

    found = of_a_launcher(scratch, job, launcher)
    recommended_first(scratch, launcher)
    failures(scratch, job, launcher)
    killed(scratch, job, launcher, found)
    together(scratch, job, launcher)
    of_cpu_ranks(scratch)
if FAILURES:
    sys.exit("\n\n".join(FAILURES))
print("tune: a launcher, failures, kills, CPU ranks")
