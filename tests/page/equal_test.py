# SPDX-License-Identifier: Apache-2.0
"""The page's module answers as mpt-plan does: the same layout, ranking and counts, and every number to 12 digits. So does the Python
module, where the interpreter has it.

Usage: equal_test.py FOLDER MPT_PLAN [REQUESTS [SEED]]. FOLDER has planner.js and planner.wasm (scripts/page builds them).
Exits with 77, a skip for ctest, where they or node are missing.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

try:
    from mpt import InputError, _door
except ImportError:
    _door = None

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL, LARGE = ["llama3-8b", "llama2-7b", "qwen3-8b", "qwen3-0.6b", "qwen3-1.7b"], ["llama3-70b", "mixtral-8x7b", "qwen3-30b-a3b", "llama2-70b"]
NODES = ["dgx-h100", "dgx-a100", "dgx-h200", "dgx-b200"]
FRAMEWORKS = [None, None, "megatron-core", "torchtitan", "pytorch", "transformers-fsdp", "deepspeed", "megatron-bridge", "automodel"]
CLOCKS = {"seconds", "notes"}  # what depends on the time that searches take: notes come from searches that it cuts off


def requests(count, seed):
    draw = random.Random(seed)
    for _ in range(count):
        model = draw.choice(SMALL + LARGE)
        request = {"model": model, "cluster": f"{draw.choice(NODES)}:{draw.choice([8, 16] if model in LARGE else [1, 1, 2, 4])}",
                   "global_batch": draw.choice([32, 64, 96, 128, 256, 512]), "threads": 1}
        options = {"seq": draw.choice([2048, 4096]), "framework": draw.choice(FRAMEWORKS), "precision": draw.choice(["bf16", "fp8"]),
                   "bounds": draw.choice([{"tp": [1, 2]}, {"zero": [3]}, {"pp": [1]}, {"micro_batch": [1]}]),
                   "memory": "70GiB", "top": 9, "lora": 16, "optimizer": draw.choice(["adamw8", "muon"])}
        for key, value in options.items():
            if value is not None and draw.random() < (0.06 if key in ("lora", "optimizer") else 0.35):
                request[key] = value
        yield request


def by_native(program, request, folder):
    path = os.path.join(folder, "request.json")
    with open(path, "w") as file:
        json.dump(request, file)
    done = subprocess.run([program, "--request", path, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else on_one_line(done.stderr)


def on_one_line(error):
    """As the program wraps errors to the terminal's width."""
    return " ".join(error.removeprefix("mpt-plan: error: ").split())


def by_python(request):
    try:
        return _door.ask({"do": "plan", "request": request}).value["plan"]
    except InputError as error:
        return on_one_line(str(error))


def in_python_words(answer):
    """Errors name a keyword of Python where those of mpt-plan name an option."""
    if not isinstance(answer, str):
        return answer
    place, colon, rest = answer.partition(": ")
    return place.removeprefix("--").replace("-", "_") + colon + rest


def difference(one, other, place=""):
    """The first place at which two values differ; nothing where they are equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return f"{place}: {sorted(one.keys() ^ other.keys())}"
        found = (difference(one[key], other[key], f"{place}/{key}") for key in one if key not in CLOCKS)
        return next((text for text in found if text), None)
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return f"{place}: {len(one)} and {len(other)} values"
        return next((text for text in (difference(a, b, f"{place}/{i}") for i, (a, b) in enumerate(zip(one, other))) if text), None)
    if isinstance(one, float) or isinstance(other, float):
        equal = one == other or abs(one - other) <= 1e-12 * max(abs(one), abs(other))
        return None if equal else f"{place}: {one!r} and {other!r}"
    return None if one == other else f"{place}: {one!r} and {other!r}"


def main():
    folder, program = sys.argv[1:3]
    count, seed = (int(n) for n in (sys.argv[3:5] + ["20", "7"][len(sys.argv[3:5]):]))
    node = shutil.which("node")
    if node is None or not os.path.exists(os.path.join(folder, "planner.js")):
        print(f"SKIPPED: {'node is not installed' if node is None else 'scripts/page has not been run'}")
        sys.exit(77)
    by_module = subprocess.Popen([node, "--no-experimental-fetch", os.path.join(HERE, "answer.js"), folder], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)
    planned = refused = bits = 0
    native_s = module_s = 0.0  # of searches alone
    with tempfile.TemporaryDirectory() as scratch:
        for request in requests(count, seed):
            native = by_native(program, request, scratch)
            by_module.stdin.write(json.dumps({"do": "plan", "request": request}) + "\n")
            by_module.stdin.flush()
            answer = json.loads(by_module.stdout.readline())
            wrong = _door and difference(in_python_words(native), in_python_words(by_python(request)))
            if wrong:
                sys.exit(f"{json.dumps(request)}: natively and in Python {wrong}")
            if isinstance(native, str):
                if native != on_one_line(answer.get("error", {}).get("text", "none")):
                    sys.exit(f"{json.dumps(request)}: natively {native}; in the page {answer.get('error')}")
                refused += 1
                continue
            if "error" in answer:
                sys.exit(f"{json.dumps(request)}: a plan natively; in the page {answer['error']}")
            planned += 1
            plan = answer["answer"]["plan"]
            wrong = difference(native, plan)
            if wrong:
                sys.exit(f"{json.dumps(request)}: natively and in the page {wrong}")
            native_s += native["search"]["seconds"]
            module_s += plan["search"]["seconds"]
            bits += difference(json.dumps(native["durations"]), json.dumps(plan["durations"])) is None
    by_module.stdin.close()
    by_module.wait()
    if planned < count / 2:
        sys.exit(f"only {planned} of {count} requests have a plan")
    where = "natively, in Python and in the page" if _door else "natively and in the page"
    print(f"{planned} plans and {refused} refusals are equal {where}; durations to the last bit: {bits}; searches took "
          f"{native_s:.1f} s natively and {module_s:.1f} s in node, {module_s / native_s:.2f} times as long, on one thread")


main()
