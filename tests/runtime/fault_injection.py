# SPDX-License-Identifier: Apache-2.0
"""Kills, stops and starves training at random moments, and proves that it continues bit for bit.

Usage: fault_injection.py BIN_FOLDER [ROUNDS] [SEED]. Few rounds run with the tests; a soak runs hundreds.
"""

import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time

BIN = sys.argv[1]
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 12
RANDOM = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
STEPS = 24
CONFIG = dict(model_type="llama", hidden_act="silu", hidden_size=32, intermediate_size=64, max_position_embeddings=64,
              num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=256)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Run:
    """mpt-run as one or several processes."""

    def __init__(self, folder, plan, processes, options, limit_bytes=None, steps=STEPS, only=None):
        self.folder, self.started = folder, time.monotonic()
        command = [f"{BIN}/mpt-run", plan, "--data", f"{folder}/text.txt", "--steps", steps, "--log", f"{folder}/run.jsonl",
                   "--checkpoints", f"{folder}/checkpoints", *options]
        port = free_port()
        self.processes = []
        for process in range(processes) if only is None else [only]:
            environment = dict(os.environ)
            if processes > 1:
                environment.update(RANK=str(process), WORLD_SIZE=str(processes), MASTER_ADDR="127.0.0.1",
                                   MASTER_PORT=str(port))

            def limit():
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit fails instead
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

            self.processes.append(subprocess.Popen([str(word) for word in command], env=environment, text=True,
                                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                                   start_new_session=True,
                                                   preexec_fn=limit if limit_bytes else None))

    def has_trained(self):
        return os.path.exists(f"{self.folder}/run.jsonl") and '"loss"' in open(f"{self.folder}/run.jsonl").read()

    def wait(self, seconds):
        """Exit codes and messages; fails if a process is still there after `seconds`."""
        deadline = time.monotonic() + seconds
        codes, messages = [], []
        for process in self.processes:
            try:
                messages.append(process.communicate(timeout=max(0.1, deadline - time.monotonic()))[1])
            except subprocess.TimeoutExpired:
                for other in self.processes:
                    other.kill()
                sys.exit(f"a process went on for {seconds} s after another had died")
            codes.append(process.returncode)
        return codes, messages


def losses(folder):
    """The last loss that was logged for each step."""
    out = {}
    for line in open(f"{folder}/run.jsonl"):
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue  # cut off by a kill
        if "loss" in row:
            out[row["step"]] = row["loss"]
    return out


def finish(folder, plan, processes, reference, what):
    codes, messages = Run(folder, plan, processes, ["--resume", "auto"]).wait(60)
    if any(codes):
        sys.exit(f"{what}: resuming failed: {codes} {messages}")
    got = losses(folder)
    if got != reference:
        wrong = [s for s in reference if got.get(s) != reference[s]]
        sys.exit(f"{what}: losses differ from the run that nothing befell, first at step {wrong[0]}")


def make_plan(scratch, name, *options):
    plan = f"{scratch}/{name}.json"
    subprocess.run([f"{BIN}/mpt-plan", "--model", f"{scratch}/config.json", "--cluster", "this-machine:4",
                    "--global-batch", "8", "--seq", "32", "-o", plan, *options], check=True, stdout=subprocess.DEVNULL)
    return plan


def fresh(scratch, name):
    folder = tempfile.mkdtemp(prefix=name, dir=scratch)
    open(f"{folder}/text.txt", "w").write("".join(f"line {i * 7919 % 997} of the text\n" for i in range(400)))
    return folder


def kill(scratch, plan, processes, reference, seconds):
    folder = fresh(scratch, "kill")
    run = Run(folder, plan, processes, ["--save-every", "3", "--resume", "auto"])
    # Before the processes have met nobody can know of one that does not come.
    while processes > 1 and not run.has_trained() and all(p.poll() is None for p in run.processes):
        time.sleep(0.01)
    time.sleep(RANDOM.uniform(0, seconds))
    victim = RANDOM.choice(run.processes)
    victim.kill()
    codes, messages = run.wait(10)
    for process, code, message in zip(run.processes, codes, messages):
        if process is victim or code == 0:
            continue
        if code != 1 or "rank" not in message and "process" not in message:
            sys.exit(f"killed one of {processes}: another ended with {code}: {message}")
    finish(folder, plan, processes, reference, f"kill -9 of one of {processes}")


def terminate(scratch, plan, processes, reference, seconds):
    folder = fresh(scratch, "terminate")
    run = Run(folder, plan, processes, ["--resume", "auto"])
    time.sleep(RANDOM.uniform(0.15, seconds))
    RANDOM.choice(run.processes).send_signal(signal.SIGTERM)
    codes, messages = run.wait(10)
    done = losses(folder) if os.path.exists(f"{folder}/run.jsonl") else {}
    if any(code not in (0, 130, -signal.SIGTERM, 1) for code in codes):
        sys.exit(f"SIGTERM: exit codes {codes}: {messages}")
    saved = sorted(os.listdir(f"{folder}/checkpoints")) if os.path.exists(f"{folder}/checkpoints") else []
    if 130 in codes and done and saved != [f"step-{max(done):08}"]:
        sys.exit(f"SIGTERM after step {max(done)}: saved {saved}")
    finish(folder, plan, processes, reference, f"SIGTERM of one of {processes}")


def starve(scratch, plan, reference):
    """Files may not grow beyond a limit: as on a full disk, the second checkpoint cannot be written."""
    folder = fresh(scratch, "starve")
    Run(folder, plan, 1, []).wait(60)
    whole = f"{folder}/checkpoints/step-{STEPS:08}"
    size = max(os.path.getsize(f"{whole}/{name}") for name in os.listdir(whole))
    folder = fresh(scratch, "starve")
    # A good checkpoint first, then one that hits the limit.
    first = Run(folder, plan, 1, ["--save-every", "6"])
    while not os.path.exists(f"{folder}/checkpoints/step-00000006") and first.processes[0].poll() is None:
        time.sleep(0.01)
    first.processes[0].kill()
    first.wait(10)
    kept = max(os.listdir(f"{folder}/checkpoints"))
    codes, messages = Run(folder, plan, 1, ["--resume", "auto", "--save-every", "2"],
                          limit_bytes=RANDOM.randrange(1, size)).wait(60)
    if kept != f"step-{STEPS:08}" and (codes != [1] or "cannot be written" not in messages[0]):
        sys.exit(f"a full disk: exit code {codes}: {messages}")
    if kept not in os.listdir(f"{folder}/checkpoints"):
        sys.exit(f"a full disk: {kept} is lost")
    finish(folder, plan, 1, reference, "a full disk")


def restart(scratch, plan, reference, seconds):
    """The child of --max-restarts is killed; the parent goes on by itself."""
    folder = fresh(scratch, "restart")
    run = Run(folder, plan, 1, ["--save-every", "3", "--max-restarts", "3"])
    time.sleep(RANDOM.uniform(0.1, seconds))
    parent = run.processes[0]
    children = subprocess.run(["pgrep", "-P", str(parent.pid)], stdout=subprocess.PIPE, text=True).stdout.split()
    for child in children:
        try:
            os.kill(int(child), signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has just ended by itself
    codes, messages = run.wait(60)
    if codes != [0]:
        sys.exit(f"--max-restarts: {codes} {messages}")
    if losses(folder) != reference:
        sys.exit("--max-restarts: losses differ from the run that nothing befell")


def stop_group(scratch, plan, restarts):
    """A stop of the whole process group, as Ctrl-C and batch systems send it, saves once and starts nothing."""
    folder = fresh(scratch, "group")
    run = Run(folder, plan, 1, ["--max-restarts", restarts], steps=1_000_000)
    while not run.has_trained() and run.processes[0].poll() is None:
        time.sleep(0.01)
    os.killpg(run.processes[0].pid, RANDOM.choice((signal.SIGINT, signal.SIGTERM)))
    codes, messages = run.wait(30)
    step = max(losses(folder))
    saved = f"{folder}/checkpoints/step-{step:08}"
    if codes != [130] or "restart" in messages[0] or f"stopped after step {step} as asked; saved {saved}" not in messages[0]:
        sys.exit(f"a stop of the group, --max-restarts {restarts}: {codes} {messages}")
    if os.listdir(f"{folder}/checkpoints") != [os.path.basename(saved)]:
        sys.exit(f"a stop of the group: saved {os.listdir(folder + '/checkpoints')}")


def stop_alone(scratch, plan, restarts):
    """A stop while the processes of a run come together is a stop, too."""
    folder = fresh(scratch, "alone")
    for process in (0, 1):
        run = Run(folder, plan, 2, ["--max-restarts", restarts, "--timeout", 200], only=process)
        time.sleep(RANDOM.uniform(0.3, 1))
        run.processes[0].send_signal(signal.SIGTERM)
        codes, messages = run.wait(30)
        early = codes == [-signal.SIGTERM]  # it did not listen to signals yet
        if not early and codes != [130] or "restart" in messages[0] or "failed" in messages[0]:
            sys.exit(f"a stop of process {process} alone, --max-restarts {restarts}: {codes} {messages}")


def main():
    with tempfile.TemporaryDirectory() as scratch:
        json.dump(CONFIG, open(f"{scratch}/config.json", "w"))
        plans = [make_plan(scratch, "zero", "--dp", "2", "--pp", "2", "--zero", "1", "--schedule", "1f1b",
                           "--overlap", "gradient-reduce,parameter-gather,transfer"),
                 make_plan(scratch, "tensor", "--tp", "2", "--pp", "2", "--schedule", "zb-h1", "--overlap", "tensor,transfer")]
        references, seconds = [], []
        for plan in plans:
            folder = fresh(scratch, "reference")
            start = time.monotonic()
            codes, messages = Run(folder, plan, 1, ["--save-every", "3"]).wait(60)
            seconds.append(time.monotonic() - start)
            if any(codes):
                sys.exit(f"reference: {messages}")
            references.append(losses(folder))
        done = dict.fromkeys(("kill -9", "SIGTERM", "full disk", "restart"), 0)
        for round_number in range(ROUNDS):
            i = round_number % 2
            plan, reference, lasts = plans[i], references[i], seconds[i]
            what = ("kill -9", "SIGTERM", "full disk", "restart")[round_number // 2 % 4]
            if what == "kill -9":
                kill(scratch, plan, RANDOM.choice((1, 2, 4)), reference, 1.5 * lasts)
            elif what == "SIGTERM":
                terminate(scratch, plan, RANDOM.choice((1, 2)), reference, lasts)
            elif what == "full disk":
                starve(scratch, plan, reference)
            else:
                restart(scratch, plan, reference, lasts)
            done[what] += 1
        for restarts in (0, 3):
            stop_group(scratch, plans[0], restarts)
            stop_alone(scratch, plans[0], restarts)
    print("training continued bit for bit after " + ", ".join(f"{count} x {what}" for what, count in done.items()))


main()
