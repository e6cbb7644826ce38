# SPDX-License-Identifier: Apache-2.0
"""Asks the frameworks themselves whether they accept what mpt-plan exports, and whether they read the plan in it.

Usage: acceptance_test.py PROGRAMS [NAMES] [--plans WORD] [--every N] [--json FILE] [--keep FOLDER]. PROGRAMS is the folder of mpt-plan;
NAMES are frameworks (default: all that are installed under build/frameworks, or MPT_FRAMEWORKS). --plans takes only the plans with that
word in their name, --every each N-th one of each framework. Exit code 1: a framework refused a plan, or read another one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
CORES = os.cpu_count() or 1
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(HERE, "acceptance"))
from plans import FRAMEWORKS, UNPLANNED  # noqa: E402

GOOD = ["accepted", "rightly not planned"]
OUTCOMES = GOOD + ["differs", "refused", "not planned", "wrongly planned", "not exported", "exported with a warning"]


def run(command):
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return result.returncode, result.stdout + result.stderr


def export(program, framework, target, options, folder, rightly):
    """Plans and exports into the folder; returns None, or the verdict that ends the case. `rightly`: there must be no plan, or no export."""
    os.makedirs(folder)
    plan = os.path.join(folder, "plan.json")
    code, said = run([program, *options, "--framework", framework, "-o", plan])
    if code != 0:
        return {"outcome": "rightly not planned" if rightly else "not planned", "message": " ".join(said.split())[:400], "differences": []}
    code, said = run([program, "export", plan, "--to", target, "-o", folder])
    if code != 0:
        return {"outcome": "rightly not planned" if rightly else "not exported", "message": " ".join(said.split())[:400], "differences": []}
    if "warning" in said.lower():
        return {"outcome": "exported with a warning", "message": " ".join(said.split())[:400], "differences": []}
    return None


def answers(name, program, work, plans):
    """What the framework's own code says to these plans, asked in as many processes as there are cores."""
    python = os.path.join(os.environ.get("MPT_FRAMEWORKS", os.path.join(ROOT, "build/frameworks")), FRAMEWORKS[name][2], "bin/python")
    script = os.path.join(HERE, "acceptance", f"judge_{name.replace('-', '_')}.py")
    environment = {**os.environ, "MPT_PROGRAMS": os.path.dirname(program)}
    parts = [part for part in (plans[core::CORES] for core in range(CORES)) if part]
    with ThreadPoolExecutor(CORES) as pool:
        results = list(pool.map(lambda part: subprocess.run([python, script, os.path.join(work, name), *part], capture_output=True, text=True,
                                                            stdin=subprocess.DEVNULL, env=environment), parts))
    verdicts = []
    for part, result in zip(parts, results):
        said = [json.loads(line) for line in result.stdout.splitlines() if line.startswith('{"plan"')]
        last = result.stderr.strip().split("\n")[-1][:400]
        verdicts += said + [{"plan": plan, "outcome": "refused", "message": f"its code ended early: {last}", "differences": []}
                            for plan in part if plan not in {verdict["plan"] for verdict in said}]
    return verdicts


def judge(name, program, work, word, every):
    """One verdict for each plan of a framework."""
    framework, target, _, plans = FRAMEWORKS[name]
    wanted = [plan for plan in plans if word in plan][::every]

    def exported(plan):
        return export(program, framework, target, plans[plan], os.path.join(work, name, plan), (name, plan) in UNPLANNED)

    with ThreadPoolExecutor(CORES) as pool:
        ended = dict(zip(wanted, pool.map(exported, wanted)))
    verdicts = [{"plan": plan, **verdict} for plan, verdict in ended.items() if verdict is not None]
    left = [plan for plan, verdict in ended.items() if verdict is None]
    for plan in left:
        if (name, plan) in UNPLANNED:
            verdicts.append({"plan": plan, "outcome": "wrongly planned", "message": "the framework cannot run it", "differences": []})
    verdicts += answers(name, program, work, sorted(plan for plan in left if (name, plan) not in UNPLANNED))
    return [{"framework": name, "options": " ".join(plans[verdict["plan"]]), **verdict} for verdict in verdicts]


def line(verdict):
    what = verdict["message"]
    if verdict["outcome"] == "differs":
        what = "; ".join(f"{one['field']}: plan {one['plan']}, framework {one['framework']}" for one in verdict["differences"])
    return f"{verdict['framework']:<11} {verdict['plan']:<28} {verdict['outcome']}" + (f": {what}" if what else "")


def installed(name):
    folder = os.environ.get("MPT_FRAMEWORKS", os.path.join(ROOT, "build/frameworks"))
    return os.path.exists(os.path.join(folder, FRAMEWORKS[name][2], "installed"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--plans", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--json")
    parser.add_argument("--keep")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in FRAMEWORKS]
    if unknown:
        parser.error(f"unknown framework {unknown[0]}; known: {', '.join(FRAMEWORKS)}")
    names = options.names or list(FRAMEWORKS)
    missing = [name for name in names if not installed(name)]
    if missing:
        parser.error(f"not installed: {', '.join(missing)}; run ./scripts/install-frameworks")
    verdicts = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            start = time.monotonic()
            found = judge(name, os.path.join(os.path.abspath(options.programs), "mpt-plan"), options.keep or scratch, options.plans, options.every)
            print("\n".join(line(verdict) for verdict in found))
            print(f"{name}: {time.monotonic() - start:.0f} s\n", flush=True)
            verdicts += found
    for name in names:
        counts = [f"{sum(v['framework'] == name and v['outcome'] == outcome for v in verdicts)} {outcome}" for outcome in OUTCOMES]
        print(f"{name:<22} {', '.join(counts)}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(verdicts, file, indent=1)
    passed = sum(verdict["outcome"] in GOOD for verdict in verdicts)
    print(f"{passed} passed, {len(verdicts) - passed} failed")
    sys.exit(passed != len(verdicts) or not verdicts)


if __name__ == "__main__":
    main()
