# SPDX-License-Identifier: Apache-2.0
"""mpt-run --metrics-file: Prometheus' text format, whole at every moment, with the figures of the log; and the dashboard that shows them.

With the package prometheus_client its parser reads the file, too. With the module over CUDA's stand-in and the library that stands for
NVML, the figures of GPUs are read back. Usage: metrics_test.py BIN [GPU_MODULE FOLDER_OF_NVML]
"""

import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    text_string_to_metric_families = None

BIN = os.path.abspath(sys.argv[1])
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
CONFIG = dict(model_type="llama", hidden_act="silu", hidden_size=32, intermediate_size=64, max_position_embeddings=64,
              num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=256)
# What the endings of names promise (prometheus.io/docs/practices/naming).
UNITS = ("_seconds", "_bytes", "_bytes_total", "_ratio", "_per_second", "_watts")
UNITLESS = {"mpt_step", "mpt_loss", "mpt_validation_loss", "mpt_gradient_norm", "mpt_learning_rate"}
# Figures of a row of the log, and of one of its ranks.
OF_STEP = {"mpt_step": "step", "mpt_loss": "loss", "mpt_gradient_norm": "gradient_norm", "mpt_tokens_per_second": "tokens_per_s",
           "mpt_step_seconds": "step_time_s", "mpt_learning_rate": "learning_rate", "mpt_idle_ratio": "bubble_share"}
OF_RANK = {"mpt_compute_seconds": "compute_s", "mpt_gradient_exchange_seconds": "gradient_exchange_s",
           "mpt_gradient_exchange_exposed_seconds": "gradients_s", "mpt_memory_bytes": "memory_bytes", "mpt_memory_peak_bytes": "peak_bytes",
           "mpt_transfer_seconds": "transfer_s", "mpt_idle_seconds": "idle_s", "mpt_sharding_seconds": "sharding_s"}
FAILED = []


def check(what, right, why=""):
    if not right:
        FAILED.append(what)
        print(f"FAILED {what}: {str(why)[-1500:]}")


def parsed(text):
    """Values by (name, labels). Raises ValueError for anything that the text format (version 0.0.4) does not have."""
    values, types, helped, current = {}, {}, set(), None
    if not text.endswith("\n"):
        raise ValueError("the last line has no end")
    for line in text[:-1].split("\n"):
        if head := re.fullmatch(r"# (HELP|TYPE) ([a-z_]+) (.+)", line):
            kind, name, words = head.groups()
            if kind == "HELP":
                if name in helped:
                    raise ValueError(f"{name} twice")
                helped.add(name)
            elif name not in helped or name in types or words not in ("gauge", "counter"):
                raise ValueError(line)
            else:
                types[name] = words
            current = name
            continue
        row = re.fullmatch(r'([a-z_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)+)\} (\S+)', line)
        if not row or row[1] != current or row[1] not in types:
            raise ValueError(line)
        labels = tuple(re.findall(r'([a-z]+)="((?:[^"\\]|\\.)*)"', row[2]))
        if (row[1], labels) in values:
            raise ValueError(f"{line} twice")
        if (types[row[1]] == "counter") != row[1].endswith("_total"):
            raise ValueError(f"{row[1]} is a {types[row[1]]}")
        values[row[1], labels] = float(row[3])
    return values


def read_by_package(text):
    """The same from prometheus_client."""
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for family in text_string_to_metric_families(text) for sample in family.samples}


def command(scratch, *options):
    return [f"{scratch}/bin/mpt-run" if os.path.exists(f"{scratch}/bin") else f"{BIN}/mpt-run", f"{scratch}/plan.json", "--data", f"{scratch}/text.txt", *map(str, options)]


def plan(scratch, *words):
    subprocess.run([f"{BIN}/mpt-plan", "--model", f"{scratch}/config.json", "--global-batch", "8", "--seq", "32", "--framework", "mpt", *words,
                    "-o", f"{scratch}/plan.json"], check=True, stdout=subprocess.DEVNULL)


def last_row(log):
    return [row for row in map(json.loads, open(log)) if "loss" in row][-1]


def compare(what, values, row):
    for name, key in OF_STEP.items():
        got = [value for (other, labels), value in values.items() if other == name]
        check(f"{what}: {name}", got == [row[key]], (got, row[key]))
    for name, key in OF_RANK.items():
        got = {int(dict(labels)["rank"]): value for (other, labels), value in values.items() if other == name}
        wanted = {rank["rank"]: rank[key] for rank in row["ranks"] if key in rank}
        check(f"{what}: {name}", got == wanted and len(got) == len(row["ranks"]), (got, wanted))
    for (name, labels), value in values.items():
        check(f"{what}: {name} is finite and not negative", value >= 0.0 and math.isfinite(value), value)
        check(f"{what}: {name} names its unit", name in UNITLESS or name.endswith(UNITS))


def while_it_trains(scratch):
    """Whoever reads the file at any moment reads a whole one, and steps only grow."""
    plan(scratch, "--cluster", "this-machine:2", "--dp", "2", "--zero", "0", "--overlap", "gradient-reduce")
    file, log = f"{scratch}/first run.prom", f"{scratch}/run.jsonl"
    running = subprocess.Popen(command(scratch, "--steps", 200, "--metrics-file", file, "--log", log), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    steps = []
    while running.poll() is None:
        if os.path.exists(file):
            with open(file) as text:
                steps += [value for (name, _), value in parsed(text.read()).items() if name == "mpt_step"]
        time.sleep(0.002)
    said = running.communicate()[0]
    check("a run with metrics", running.returncode == 0 and f"wrote {file}" in said, said)
    check("steps that were seen", len(set(steps)) > 5 and steps == sorted(steps), steps[:50])
    check("nothing is left beside it", not [name for name in os.listdir(scratch) if name.startswith(".")], os.listdir(scratch))
    text, row = open(file).read(), last_row(log)
    values = parsed(text)
    compare("two ranks", values, row)
    labels = {labels for (name, labels) in values if name == "mpt_compute_seconds"}
    host = socket.gethostname()
    check("labels of ranks", labels == {(("run", "first run"), ("rank", str(rank)), ("host", host)) for rank in (0, 1)}, labels)
    check("no figures that nothing measured", "mpt_gpu" not in text and "validation" not in text, text)
    check("gradients are exchanged, and some of it behind compute", all(rank["gradient_exchange_s"] > 0.0 != rank["gradients_s"] and
          rank["gradient_exchange_s"] != rank["gradients_s"] for rank in row["ranks"]), row["ranks"])
    first = next(row for row in map(json.loads, open(log)) if "loss" in row)
    check("the log has hosts once", first["hosts"] == [host] * 2 and "hosts" not in row, first.get("hosts"))
    if text_string_to_metric_families is not None:
        own = {(name, tuple(sorted(labels))): value for (name, labels), value in values.items()}
        check("as prometheus_client reads it", read_by_package(text) == own, set(own.items()) ^ set(read_by_package(text).items()))


def of_two_processes(scratch):
    """The first process writes the figures of all ranks. No other process opens a file."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    processes = []
    for process in (0, 1):
        environment = {**os.environ, "RANK": str(process), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        processes.append(subprocess.Popen(command(scratch, "--steps", 3, "--metrics-file", f"{scratch}/{process}.prom", "--log", f"{scratch}/{process}.jsonl"),
                                          env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    for process in processes:
        said = process.communicate(timeout=120)[0]
        check("two processes", process.returncode == 0, said)
    compare("two processes", parsed(open(f"{scratch}/0.prom").read()), last_row(f"{scratch}/0.jsonl"))
    check("the second process writes nothing", not os.path.exists(f"{scratch}/1.prom"))


def a_full_disk(scratch):
    done = subprocess.run(command(scratch, "--steps", 3, "--metrics-file", "/dev/full"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    check("a full disk", done.returncode == 1 and done.stderr.count("training goes on") == 1 and "step 3/3" in done.stdout and "/dev/full" in done.stderr, done)


def of_gpus(scratch, module, nvml):
    """Both ranks share the only GPU of the stand-in, of which the library for NVML tells all."""
    os.makedirs(f"{scratch}/bin")
    shutil.copy(f"{BIN}/mpt-run", f"{scratch}/bin")
    shutil.copy(module, f"{scratch}/bin/libmpt_cuda.so")
    plan(scratch, "--cluster", "dgx-h100:1", "--gpus", "2", "--dp", "2", "--zero", "0", "--overlap", "gradient-reduce")
    file, log = f"{scratch}/gpus.prom", f"{scratch}/gpus.jsonl"
    done = subprocess.run(command(scratch, "--steps", 2, "--watch", "--metrics-file", file, "--log", log), env={**os.environ, "LD_LIBRARY_PATH": nvml},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    check("a run on the stand-in", done.returncode == 0 and "not watched" not in done.stdout, done.stdout)
    if done.returncode != 0:
        return
    values = parsed(open(file).read())
    compare("the stand-in", values, last_row(log))
    wanted = {"mpt_gpu_utilization_ratio": 0.93, "mpt_gpu_memory_bandwidth_utilization_ratio": 0.58, "mpt_gpu_memory_bytes": 50 * 2**30,
              "mpt_gpu_power_watts": 650.0, "mpt_gpu_link_received_bytes_total": 2.0**20}
    for name, value in wanted.items():
        got = [figure for (other, _), figure in values.items() if other == name]
        check(f"the stand-in: {name}", got == [value] * 2, got)
    # Two ranks read in each step, and each reading finds 3 GiB more.
    sent = sorted(figure for (name, _), figure in values.items() if name == "mpt_gpu_link_sent_bytes_total")
    check("the stand-in: bytes sent", sent == [3 * 3 * 2.0**30, 4 * 3 * 2.0**30], sent)
    check("the stand-in: --watch", re.search(r"93%\s+58%\s+50 GiB\s+650 W\s+1755 MHz\s+\d+\.\d GB/s", done.stdout), done.stdout)


def dashboard():
    """Each expression names metrics that the file has, with labels that they have; and each metric is shown."""
    rows = json.load(open(f"{ROOT}/runtime/monitor/metrics.rows.json"))
    of_step, of_rank = ({row[0] for row in rows[table]} for table in ("StepMetrics", "RankMetrics"))
    shown = set()
    board = json.load(open(f"{ROOT}/examples/grafana/mpt-run.json"))
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    queries = [variable["query"]["query"] for variable in board["templating"]["list"] if variable["type"] == "query"]
    check("the dashboard has panels", len(expressions) > 20 and len(queries) == 2, len(expressions))
    for expression in expressions + queries:
        found = re.findall(r"\b(mpt_\w+)(?:\{([^}]*)\})?", expression)
        check(f"{expression}: metrics", found and {name for name, _ in found} <= of_step | of_rank)
        for name, labels in found:
            known = {"run", "rank", "host"} if name in of_rank else {"run"}
            check(f"{expression}: labels", set(re.findall(r"(\w+)=~", labels)) <= known)
    for expression in expressions:
        shown |= set(re.findall(r"\bmpt_\w+", expression))
    check("the dashboard shows all but the number of the step", shown == (of_step | of_rank) - {"mpt_step"}, (of_step | of_rank) ^ shown)


def main():
    dashboard()
    with tempfile.TemporaryDirectory() as scratch:
        with open(f"{scratch}/config.json", "w") as file:
            json.dump(CONFIG, file)
        with open(f"{scratch}/text.txt", "w") as file:
            file.write("".join(f"line {i * 7919 % 997} of the text\n" for i in range(400)))
        while_it_trains(scratch)
        of_two_processes(scratch)
        a_full_disk(scratch)
        if len(sys.argv) > 3:
            of_gpus(scratch, *map(os.path.abspath, sys.argv[2:4]))
    print("failed: " + "; ".join(FAILED) if FAILED else "the metrics are those of the log")
    return 1 if FAILED else 0


sys.exit(main())
