# SPDX-License-Identifier: Apache-2.0
"""Asks the frameworks themselves whether they accept what mpt-plan exports, and whether they read the plan in it.

Usage: acceptance_test.py PROGRAMS [NAMES] [--plans WORD] [--every N] [--random SEED COUNT] [--json FILE] [--keep FOLDER]. PROGRAMS is the
folder of mpt-plan; NAMES are frameworks (default: all that are installed under build/frameworks, or MPT_FRAMEWORKS). --plans takes only the
plans with that word in their name, --every each N-th one of each framework. --random draws plans until COUNT are exported; those that fail
are kept in acceptance/drawn.json, and are judged with the lists from then on. Exit code 1: a framework refused a plan, or read another one.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
CORES = os.cpu_count() or 1
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(HERE, "acceptance"))
import drawn  # noqa: E402
from plans import FRAMEWORKS, UNPLANNED  # noqa: E402

PROCESSES = threading.Semaphore(CORES)  # that judge at once
PLANS_OF_A_PROCESS = 10  # at least: starting one costs about as much as judging them
GOOD = ["accepted", "rightly not planned", "refused by mpt-plan", "written as a recipe"]
OUTCOMES = GOOD + ["differs", "refused", "not planned", "wrongly planned", "not exported", "exported with a warning", "mpt-plan failed"]


def run(command):
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return result.returncode, result.stdout + result.stderr


def export(program, framework, target, options, folder, rightly):
    """Plans and exports into the folder; returns None, or the verdict that ends the case. `rightly`: there must be no plan, or no export."""
    os.makedirs(folder)
    plan = os.path.join(folder, "plan.json")
    code, said = run([program, *options, "--framework", framework, "-o", plan])
    outcome = "not planned"
    if code == 0:
        code, said = run([program, "export", plan, "--to", target, "-o", folder])
        outcome = "not exported" if code != 0 else "exported with a warning" if "warning" in said.lower() else None
    recipes = re.search(r"export --to ([a-z, ]+)", " ".join(said.split())) if outcome == "not exported" else None
    if recipes:  # the Trainer trains it, and a fine-tuner's recipe says it: its own judge is not here
        tried = [run([program, "export", plan, "--to", name, "-o", os.path.join(folder, name)])[0] for name in re.split(", | or ", recipes[1].strip())]
        outcome = "written as a recipe" if 0 in tried else outcome
    if outcome is None:
        return None
    outcome = "rightly not planned" if rightly and code != 0 else outcome
    return {"outcome": outcome, "code": code, "message": " ".join(said.split())[:400], "differences": []}


def asked(python, script, folder, plans, environment):
    with PROCESSES:
        return subprocess.run([python, script, folder, *plans], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment)


def answers(name, program, work, plans):
    """What the framework's own code says to these plans. A process judges many of them."""
    python = os.path.join(os.environ.get("MPT_FRAMEWORKS", os.path.join(ROOT, "build/frameworks")), FRAMEWORKS[name][2], "bin/python")
    script = os.path.join(HERE, "acceptance", f"judge_{name.replace('-', '_')}.py")
    environment = {**os.environ, "MPT_PROGRAMS": os.path.dirname(program)}
    processes = min(CORES, -(-len(plans) // PLANS_OF_A_PROCESS))
    parts = [plans[one::processes] for one in range(processes)]
    with ThreadPoolExecutor(CORES) as pool:
        results = list(pool.map(lambda part: asked(python, script, os.path.join(work, name), part, environment), parts))
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


def with_own_words(verdict):
    """The verdict on a drawn case that mpt-plan refuses: right if it names what is wrong, or what it does not write yet."""
    if verdict is None or verdict["outcome"] == "exported with a warning":
        return verdict
    named = verdict["message"].startswith("mpt-plan: error: ") and verdict["code"] == 2
    unwritten = "MPT does not write" in verdict["message"]
    right = named and (verdict["outcome"] == "not planned" or unwritten)
    return {**verdict, "outcome": "refused by mpt-plan" if right else verdict["outcome"] if named else "mpt-plan failed"}


def draw(names, program, work, seed, count):
    """Drawn cases until `count` of them are exported: {framework: {case: [options, verdict that ended it, or None]}}."""
    cases, number, left = {name: {} for name in names}, 0, count
    models = drawn.zoo(program)

    def exported(case):
        name, plan, options = case
        return with_own_words(export(program, FRAMEWORKS[name][0], FRAMEWORKS[name][1], options, os.path.join(work, name, plan), False))

    while left > 0:
        batch = [(*drawn.case(models, seed, one, names), f"drawn-{seed}-{one:04}") for one in range(number, number + left)]
        batch = [(name, plan, options) for name, options, plan in batch]
        number += len(batch)
        with ThreadPoolExecutor(CORES) as pool:
            for (name, plan, options), verdict in zip(batch, pool.map(exported, batch)):
                cases[name][plan] = [options, verdict]
                left -= verdict is None
    return cases


def judge_drawn(names, program, work, seed, count):
    """Verdicts of drawn cases. mpt-plan may refuse one in its words; what it exports, the framework must accept."""
    cases = draw(names, program, work, seed, count)
    with ThreadPoolExecutor(len(names)) as pool:
        said = dict(zip(names, pool.map(lambda name: answers(name, program, work, [
            plan for plan, (_, verdict) in cases[name].items() if verdict is None]), names)))
    verdicts = []
    for name in names:
        ended = [{"plan": plan, **verdict} for plan, (_, verdict) in cases[name].items() if verdict is not None]
        verdicts += [{"framework": name, "options": " ".join(cases[name][verdict["plan"]][0]), **verdict} for verdict in ended + said[name]]
    return verdicts


def repeat(verdict):
    """The commands that repeat a drawn case, which is kept."""
    return f"    mpt-plan {verdict['options']}\n    ./scripts/test frameworks {verdict['framework']} --plans {verdict['plan']}"


def line(verdict):
    what = verdict["message"]
    if verdict["outcome"] == "differs":
        what = "; ".join(f"{one['field']}: plan {one['plan']}, framework {one['framework']}" for one in verdict["differences"])
    return f"{verdict['framework']:<11} {verdict['plan']:<28} {verdict['outcome']}" + (f": {what}" if what else "")


def installed(name):
    folder = os.environ.get("MPT_FRAMEWORKS", os.path.join(ROOT, "build/frameworks"))
    return os.path.exists(os.path.join(folder, FRAMEWORKS[name][2], "installed"))


def listed(names, program, work, options):
    """Verdicts of the plans in the lists, printed framework by framework."""
    verdicts = []
    for name in names:
        start = time.monotonic()
        found = judge(name, program, work, options.plans, options.every)
        print("\n".join(line(verdict) for verdict in found))
        print(f"{name}: {time.monotonic() - start:.0f} s\n", flush=True)
        verdicts += found
    return verdicts


def random_plans(names, program, work, options):
    """Verdicts of drawn plans. Those that fail are printed with the commands that repeat them, and are kept."""
    verdicts = judge_drawn([name for name in names if name in drawn.NAMES], program, work, *options.random)
    failed = [verdict for verdict in verdicts if verdict["outcome"] not in GOOD]
    for verdict in failed:
        print(line(verdict) + "\n" + repeat(verdict))
    drawn.keep(failed)
    return verdicts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--plans", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--random", type=int, nargs=2, metavar=("SEED", "COUNT"))
    parser.add_argument("--json")
    parser.add_argument("--keep")
    parser.add_argument("--names-only", action="store_true", help="end after a look at the names, before anything is installed")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in FRAMEWORKS]
    if unknown:
        parser.error(f"unknown framework {unknown[0]}; known: {', '.join(FRAMEWORKS)}")
    if options.names_only:
        return
    names = options.names or (drawn.NAMES if options.random else list(FRAMEWORKS))
    missing = [name for name in names if not installed(name)]
    if missing:
        parser.error(f"not installed: {', '.join(missing)}; run ./scripts/install-frameworks")
    program = os.path.join(os.path.abspath(options.programs), "mpt-plan")
    with tempfile.TemporaryDirectory() as scratch:
        verdicts = (random_plans if options.random else listed)(names, program, options.keep or scratch, options)
    for name in names:
        counts = [f"{sum(v['framework'] == name and v['outcome'] == outcome for v in verdicts)} {outcome}" for outcome in OUTCOMES]
        print(f"{name:<22} {', '.join(one for one in counts if not one.startswith('0 '))}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(verdicts, file, indent=1)
    passed = sum(verdict["outcome"] in GOOD for verdict in verdicts)
    print(f"{passed} passed, {len(verdicts) - passed} failed")
    sys.exit(passed != len(verdicts) or not verdicts)


if __name__ == "__main__":
    main()
