# SPDX-License-Identifier: Apache-2.0
"""Starts the frameworks' own code on CPU processes and compares gradients with one process; started/seen.json is the table of outcomes.

Usage: started_test.py PROGRAMS [SEED COUNT] [--framework NAME] [--case NAME] [--all] [--write]. Without options a sample of the table's cases
runs, and what is kept in started/drawn.json. SEED COUNT draws requests until mpt-plan, in PROGRAMS, exports COUNT plans, and starts these; those
that fail are kept in started/drawn.json. NAME of --framework is a file in started/ or a framework that has cases there; --case takes a
name or a part of one that ends in *. --write puts rows that are as their cases expect into the table. Exit code 77: no environment is installed.
"""

import argparse
import fcntl
import fnmatch
import importlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TABLE = os.path.join(HERE, "started", "seen.json")
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
from started import drawing  # noqa: E402

# A file in started/, and the environment whose interpreter runs it.
ENVIRONMENTS = {"pipelining": "torch", "deepspeed_engine": "accelerate", "megatron_core": "megatron", "hugging_face": "accelerate",
                "trainer_ddp": "accelerate", "trainer_sharded": "accelerate", "automodel": "automodel", "torchtitan_trainer": "torchtitan", "exported": "accelerate",
                "exported_torchtitan": "torchtitan", "exported_automodel": "automodel", "exported_megatron": "megatron"}
# Files that start exported plans of one framework; exported.py starts those of others.
STARTERS = {"torchtitan": "exported_torchtitan", "automodel": "exported_automodel", "megatron-core": "exported_megatron"}


def environment(name):
    folder = os.environ.get("MPT_FRAMEWORKS", os.path.join(ROOT, "build", "frameworks"))
    return os.path.join(folder, ENVIRONMENTS[name])


def modules():
    return {name: importlib.import_module(f"started.{name}") for name in ENVIRONMENTS}


def read_table():
    with open(TABLE, encoding="utf-8") as file:
        return {row["case"]: row for row in json.load(file)["rows"]}


def write_row(row):
    """Adds it to the table, which other runs may write at the same time: one line for each row, in the order of the cases."""
    with open(__file__, encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_table({**read_table(), row["case"]: row})


def write_table(rows):
    order = [case.name for module in modules().values() for case in module.CASES]
    lines = [json.dumps(rows[name]) for name in order if name in rows]
    with open(TABLE, "w", encoding="utf-8") as file:
        file.write('{"rows": [\n' + ",\n".join(lines) + "\n]}\n")


def chosen(module, name, options, rows):
    if options.framework and options.framework not in (name, module.FRAMEWORK):
        return []
    if options.case:
        return [case for case in module.CASES if fnmatch.fnmatch(case.name, options.case)]
    return [case for case in module.CASES if options.all or options.framework or (case.sample and case.name in rows)]


def run(name, cases, **variables):
    """Rows of a file's cases, by their names, one after another as they end."""
    python = os.path.join(environment(name), "bin", "python")
    command = [python, "-m", "started.harness", name, *cases]
    with subprocess.Popen(command, cwd=HERE, env={**settings(), **variables}, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith('{"row"'):
                yield json.loads(line)


def settings():
    # The environments hold no bytecode, and compiling it takes most of an import.
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": os.path.join(ROOT, "build", "started"),
            "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "GLOO_SOCKET_IFNAME": "lo",
            "TORCH_CPP_LOG_LEVEL": "ERROR", "PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}


def faults(case, row, old):
    """Where the run differs from what the case expects, or from the table."""
    kind, _, phrase = case.expected.partition(" ")
    if row["outcome"] != kind:
        yield f"{row['outcome']}, expected {case.expected}: {row.get('error') or row.get('off_by_kind') or row.get('lost_by_kind') or row.get('norm', '')}"
    elif kind == "raises" and phrase not in row["error"]:
        yield f"raises {row['error']}, expected {phrase}"
    if old is None:
        yield "the table has no row for it: --write"
    elif old["outcome"] != row["outcome"]:
        yield f"{row['outcome']}, the table says {old['outcome']}"
    elif old["library"] != row["library"]:
        yield f"run with {row['library']}, the table says {old['library']}: --write"


def summary(row):
    if row["outcome"] in ("right", "wrong"):
        lost = f", {row['lost']} lost" if row.get("lost") else ""
        off = f", {row['off']} of {row['weights']} off{lost}" if row["outcome"] == "wrong" else ""
        return f"{row['outcome']:7}{row['worst']:8.1e}{off}, norm {row.get('norm', '-')}"
    return f"{row['outcome']} {row.get('error', '')}"[:110]


def evidence_faults(rows):
    """Every run that a framework's file names is a row of the table, or a script of this repository."""
    for folder in sorted(os.listdir(os.path.join(ROOT, "frameworks"))):
        path = os.path.join(ROOT, "frameworks", folder, "framework.json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                for name in re.findall(r'"run: ([\w./-]+)', file.read()):
                    found = os.path.exists(os.path.join(ROOT, name)) if "/" in name else name in rows
                    if not found:
                        yield f"frameworks/{folder}/framework.json names the run '{name}', which started/seen.json lacks"


def table_faults(rows):
    names = [case.name for module in modules().values() for case in module.CASES]
    yield from (f"two cases are called {name}" for name in set(names) if names.count(name) > 1)
    yield from (f"started/seen.json has a row '{name}', and no case is called so" for name in rows if name not in names)
    yield from evidence_faults(rows)


def requests(options):
    """Names with framework, model and options of mpt-plan; drawn ones without end."""
    if not options.drawn:
        yield from drawing.kept().items()
        return
    seed, _ = options.drawn
    for number in itertools.count():
        request = drawing.case(seed, number)
        if options.framework in (None, request[0]):
            yield f"drawn-{seed}-{number:03}", request


def exported(program, folder, options):
    """Rows of plans that are exported into the folder, by name, and what mpt-plan says wrongly."""
    subprocess.run([os.path.join(environment("exported"), "bin", "python"), "-c", "import sys; from started import exported; exported.write_models(sys.argv[1])",
                    os.path.join(folder, "models")], cwd=HERE, env=settings(), check=True)
    rows, faults = {}, []
    for name, request in requests(options):
        row, said, rightly = drawing.export(program, folder, name, *request)
        if row:
            rows[name] = (row, request)
        elif not rightly:
            faults.append(f"{name} {request}: {said}")
        if options.drawn and len(rows) >= options.drawn[1]:
            break
    with open(os.path.join(folder, "cases.json"), "w", encoding="utf-8") as file:
        json.dump([row for row, _ in rows.values()], file)
    return rows, faults


def start_exported(options):
    """What fails of the exported plans; drawn ones are kept."""
    starters = [name for name in ("exported", *STARTERS.values()) if os.path.exists(os.path.join(environment(name), "installed"))]
    if "exported" not in starters:
        return []
    with tempfile.TemporaryDirectory() as folder:
        rows, failed = exported(os.path.join(os.path.abspath(options.programs), "mpt-plan"), folder, options)
        bad = {}
        of_starter = {name: [case for case, (row, _) in rows.items() if STARTERS.get(row["framework"], "exported") == name] for name in starters}
        left = {case for cases in of_starter.values() for case in cases}
        for answer in itertools.chain(*(run(name, cases, MPT_EXPORTED=folder) for name, cases in of_starter.items() if cases)):
            row = answer["row"]
            place, request = rows[row["case"]]
            phrase = "".join(request[3:])  # of a known error
            untried = row["outcome"] == "raises" and any(one in row["error"] for one in drawing.without_road(place))
            good = row["outcome"] == "right" and not phrase or row["outcome"] == "raises" and phrase and phrase in row["error"] or untried
            if not good:
                bad[row["case"]] = request
                failed.append(f"{row['case']}: {row['outcome']} {row.get('error') or row.get('off_by_kind') or row.get('norm', '')}\n  {request}")
            print(f"{'untried' if untried else 'ok' if good else 'FAILED':7} {row['case']:16} {answer['seconds']:5.1f} s  {place['framework']:22} {place['model']:16} "
                  f"{place['layout']}  {summary(row)}", flush=True)
            left.discard(row["case"])
    failed += [f"{case}: no answer" for case in sorted(left)]
    if options.drawn and bad:
        drawing.keep(bad)
    print(f"{len(rows)} exported plans started, {len(failed)} faults")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("programs")
    parser.add_argument("drawn", nargs="*", type=int, metavar="SEED COUNT")
    parser.add_argument("--framework")
    parser.add_argument("--case")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.drawn:
        failed = start_exported(options)
        print("\n".join(failed))
        return int(bool(failed))
    rows = read_table()
    failed = list(table_faults(rows)) if not options.write else []
    asked = ran = 0
    for name, module in modules().items():
        cases = chosen(module, name, options, rows)
        asked += len(cases)
        if not cases or not os.path.exists(os.path.join(environment(name), "installed")):
            continue
        of_name = {case.name: case for case in cases}
        for answer in run(name, [case.name for case in cases]):
            row, ran = answer["row"], ran + 1
            case = of_name.pop(row["case"])
            bad = list(faults(case, row, row if options.write else rows.get(case.name)))
            failed += [f"{case.name}: {fault}" for fault in bad]
            print(f"{'FAILED' if bad else 'ok':6} {case.name:40} {answer['seconds']:5.1f} s  {summary(row)}", flush=True)
            if options.write and not bad:
                write_row(row)
        failed += [f"{left}: no answer" for left in of_name]
    if not (options.framework or options.case or options.write):
        failed += start_exported(options)
    print(f"{ran} of {asked} cases run, {len(failed)} faults")
    print("\n".join(failed))
    if asked and not ran and not failed:
        return 77
    return int(bool(failed) or not asked)


if __name__ == "__main__":
    sys.exit(main())
