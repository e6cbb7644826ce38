# SPDX-License-Identifier: Apache-2.0
"""What befalls mpt-run from outside: outputs on top of inputs, used folders, full disks, files that change.

Usage: run_faults_test.py FOLDER_OF_PROGRAMS
"""

import fcntl
import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PROGRAMS = sys.argv[1]
CONFIG = dict(model_type="llama", hidden_act="silu", hidden_size=32, intermediate_size=64, max_position_embeddings=64,
              num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=256)
FAILURES = []


def run(*arguments, stdout=subprocess.PIPE):
    command = [f"{PROGRAMS}/mpt-run", *map(str, arguments)]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=100)


def expect(name, done, code, *parts, absent=()):
    output = (done.stdout or "") + done.stderr
    words = " ".join(output.split())  # errors are wrapped
    missing = [part for part in parts if part not in output and part not in words]
    present = [part for part in absent if part in output or part in words]
    if done.returncode != code or missing or present:
        FAILURES.append(f"{name}: exit {done.returncode}, wanted {code}; missing {missing}; present {present}\n{output}")


def expect_equal(name, got, wanted):
    if got != wanted:
        FAILURES.append(f"{name}: {got}, wanted {wanted}")


def write_text(path, lines=400):
    with open(path, "w") as file:
        file.write("".join(f"line {i * 7919 % 997} of the text\n" for i in range(lines)))
    return path


def outputs_on_inputs(folder, plan):
    """Nothing that is read is overwritten, by whatever name."""
    text = write_text(f"{folder}/data.txt")
    os.link(text, f"{folder}/hard")
    os.symlink(text, f"{folder}/soft")
    contents = {path: open(path).read() for path in (text, plan)}
    for option in ("--log", "--trace", "--report"):
        for output, place in ((text, "--data"), (f"{folder}/hard", "--data"), (f"{folder}/soft", "--data"), (plan, "PLAN")):
            expect(f"{option} {output}", run(plan, "--data", text, "--steps", 2, option, output), 2, option, place, "the same file as")
    new = f"{folder}/new"
    expect("two outputs", run(plan, "--data", text, "--steps", 2, "--trace", new, "--report", f"{folder}/./new"), 2, "--report", "--trace")
    for path, content in contents.items():
        expect_equal(path, open(path).read() == content, True)
    expect("curves in no folder", run(plan, "--data", text, "--steps", 2, "--tensorboard", text), 2, "--tensorboard", "where one can be made")
    expect("outputs of their own", run(plan, "--data", text, "--steps", 2, "--trace", new, "--report", f"{folder}/other", "--log", "/dev/null"), 0)


def used_folders(folder, plan):
    """A run that would begin before the newest checkpoint of its folder is refused; the remedies work."""
    train = (plan, "--data", write_text(f"{folder}/used.txt"), "--keep", 1)
    saved, elsewhere = f"{folder}/used", f"{folder}/elsewhere"
    expect("first run", run(*train, "--steps", 4, "--checkpoints", saved), 0)
    expect("fresh run", run(*train, "--steps", 2, "--checkpoints", saved), 2, "step-00000004", "--resume auto", "another folder")
    expect_equal("checkpoints after it", os.listdir(saved), ["step-00000004"])
    expect("resumed run", run(*train, "--steps", 6, "--checkpoints", saved, "--resume", "auto"), 0, "after step 4")
    expect("another folder", run(*train, "--steps", 2, "--checkpoints", elsewhere), 0)
    expect("fresh run, weights", run(*train, "--steps", 2, "--checkpoints", saved, "--init", elsewhere), 2, "--checkpoints", "--init")
    expect("an earlier one", run(*train, "--steps", 8, "--checkpoints", saved, "--resume", f"{elsewhere}/step-00000002"), 2, "step-00000006")
    expect("an earlier one, elsewhere", run(*train, "--steps", 4, "--checkpoints", f"{folder}/third", "--resume", f"{elsewhere}/step-00000002"), 0)
    expect_equal("checkpoints at the end", sorted(os.listdir(saved)), ["step-00000006"])
    expect("--log on a checkpoint", run(*train, "--steps", 8, "--checkpoints", saved, "--resume", "auto", "--log",
                                        f"{saved}/step-00000006/checkpoint.json"), 2, "--log", "--checkpoints")
    expect("a whole checkpoint still", run("inspect", saved), 0, "all checksums right")


def full_disks(folder, plan):
    """What could not be written is told, and training is not lost for it."""
    train = (plan, "--data", write_text(f"{folder}/full.txt"), "--steps", 12)
    for restarts in (0, 2):
        saved = f"{folder}/full-{restarts}"
        more = ("--checkpoints", saved, "--max-restarts", restarts)
        expect("full log", run(*train, *more, "--log", "/dev/full"), 1, "/dev/full lacks 13 records", "No space left on device", absent=["restart"])
        expect_equal("saved", os.listdir(saved), ["step-00000012"])
        with open("/dev/full", "w") as full:
            expect("full stdout", run(*train, "--checkpoints", f"{saved}-stdout", "--max-restarts", restarts, stdout=full), 1,
                   "stdout cannot be written", "No space left on device", absent=["restart", "internal error"])
        expect_equal("saved", os.listdir(f"{saved}-stdout"), ["step-00000012"])
    curves, figures = f"{folder}/full-curves", f"{folder}/full.prom"
    command = [f"{PROGRAMS}/mpt-run", *map(str, train), "--tensorboard", curves, "--metrics-file", figures]
    done = subprocess.run(["bash", "-c", 'ulimit -f 0; exec "$@"', "-", *command], capture_output=True, text=True, timeout=100)
    expect("full curves", done, 1, "step 12/12", "lacks 13 records", "training goes on", f"not whole: {curves}", absent=[f"wrote {curves}", f"wrote {figures}"])
    expect_equal("full curves and figures, each told once", done.stderr.count("training goes on"), 2)
    with open("/dev/full", "w") as full:
        expect("full stdout, inspect", run("inspect", saved, "--json", stdout=full), 1, "stdout cannot be written", "No space left on device")


def closed_streams(folder, plan):
    """A log does not get what is printed when stdout is closed."""
    text, log = write_text(f"{folder}/closed.txt"), f"{folder}/closed.jsonl"
    subprocess.run(f"exec {PROGRAMS}/mpt-run {plan} --data {text} --steps 12 --log {log} >&- 2>&- <&-", shell=True, check=True, timeout=100)
    expect_equal("rows", [json.loads(line).get("step") for line in open(log)], [None, *range(1, 13)])


def changing_files(folder, plan):
    """A file that becomes shorter under a run is named; a pipe is refused at once."""
    text, log = write_text(f"{folder}/shrinks.txt", 4000), f"{folder}/shrinks.jsonl"
    command = [f"{PROGRAMS}/mpt-run", plan, "--data", text, "--steps", "1000000", "--log", log]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (os.path.exists(log) and '"loss"' in open(log).read()):
        time.sleep(0.01)
    os.truncate(text, 0)
    message = process.communicate(timeout=100)[1]
    if process.returncode != 1 or f"--data {text}" not in message or "became shorter" not in message:
        FAILURES.append(f"a file that shrinks: exit {process.returncode}: {message}")
    pipe = f"{folder}/pipe"
    os.mkfifo(pipe)
    expect("a pipe as data", run(plan, "--data", pipe), 2, "--data", "no regular file")


def stops(folder, plan):
    """A run that is stopped says what it saved, or that nothing was."""
    text, log = write_text(f"{folder}/stops.txt"), f"{folder}/stops.jsonl"
    for options, said in (((), "nothing was saved, for there was no --checkpoints FOLDER"), (("--checkpoints", f"{folder}/stopped"), f"saved {folder}/stopped/step-")):
        command = [f"{PROGRAMS}/mpt-run", plan, "--data", text, "--steps", "1000000", "--log", log, *options]
        if os.path.exists(log):
            os.remove(log)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not (os.path.exists(log) and '"loss"' in open(log).read()):
            time.sleep(0.01)
        process.terminate()
        message = process.communicate(timeout=100)[1]
        if process.returncode != 130 or said not in message:
            FAILURES.append(f"a stop: exit {process.returncode}: {message}")


def holds_lock(folder, process):
    """A run that was killed leaves the lock's file, which names it."""
    lock = f"{folder}/.running"
    return os.path.exists(lock) and f"process {process.pid} " in open(lock).read()


def shared_folders(folder, plan):
    """One run at a time saves to a folder: a second one names the first and changes nothing."""
    saved, text = f"{folder}/shared", write_text(f"{folder}/shared.txt")
    train = (plan, "--data", text, "--checkpoints", saved, "--save-every", 1)
    command = [f"{PROGRAMS}/mpt-run", *map(str, train), "--steps", "1000000"]
    for restarts in (0, 2):
        first = subprocess.Popen([*command, "--resume", "auto", "--max-restarts", str(restarts)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while first.poll() is None and not (holds_lock(saved, first) and any(name.startswith("step-") for name in os.listdir(saved))):
            time.sleep(0.01)
        for more in ((), ("--resume", "auto"), ("--max-restarts", 2)):
            expect("a second run", run(*train, "--steps", 2, "--seed", 2, *more), 2, f"--checkpoints {saved}: another run saves there",
                   f"process {first.pid} on {socket.gethostname()}", "name another folder")
        first.terminate() if restarts else first.kill()
        expect_equal("the first run's end", first.wait(timeout=100), 130 if restarts else -9)
        first.stderr.close()
        expect_equal("the lock's file", os.path.exists(f"{saved}/.running"), not restarts)  # a killed run leaves it, without its lock
    expect("after both", run("inspect", saved), 0, "all checksums right")
    with open(f"{folder}/.running", "w") as holder:  # of another host
        holder.write("process 77 on far-away\n" + 1000 * "x")
        holder.flush()
        fcntl.flock(holder, fcntl.LOCK_EX)
        expect("a run elsewhere", run(plan, "--data", text, "--steps", 2, "--checkpoints", folder), 2, "(process 77 on far-away)")
    expect("a run that was elsewhere", run(plan, "--data", text, "--steps", 2, "--checkpoints", folder), 0)
    for unlockable in (f"{folder}/locks/pipe", f"{folder}/locks/link"):
        os.makedirs(unlockable)
        os.mkfifo(f"{unlockable}/.running") if unlockable.endswith("pipe") else os.symlink(write_text(f"{folder}/linked.txt"), f"{unlockable}/.running")
        expect(unlockable, run(plan, "--data", text, "--steps", 2, "--checkpoints", unlockable), 0, "note: ", "cannot be locked")
    expect("a refused run", run(plan, "--data", f"{folder}/none", "--checkpoints", f"{folder}/never"), 2)
    expect_equal("its folder", os.path.exists(f"{folder}/never"), False)
    expect_equal("the data", open(text).read().startswith("line 0 of the text"), True)


def damage(checkpoint):
    """One bit of its weights."""
    with open(f"{checkpoint}/rank-00000.safetensors", "r+b") as file:
        file.seek(-9, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def contents(folder):
    return {f"{where}/{name}": open(f"{where}/{name}", "rb").read() for where, _, names in os.walk(folder) for name in names if name != ".running"}


def unreadable_checkpoints(folder, plan):
    """Checkpoints that cannot be read are not taken for none: nothing starts anew unasked, and nothing is removed."""
    train = (plan, "--data", write_text(f"{folder}/unreadable.txt"), "--save-every", 10)
    whole = f"{folder}/readable"
    expect("two checkpoints", run(*train, "--checkpoints", whole, "--steps", 20), 0)
    steps = ("step-00000010", "step-00000020")
    kinds = {"flipped": damage, "without a rank": lambda step: os.remove(f"{step}/rank-00001.safetensors"),
             "cut": lambda step: os.truncate(f"{step}/checkpoint.json", 200), "undescribed": lambda step: os.remove(f"{step}/checkpoint.json")}
    for kind, harm in kinds.items():
        for restarts in (0, 2):
            saved = f"{folder}/{kind}-{restarts}"
            more = (*train, "--checkpoints", saved, "--steps", 25, "--max-restarts", restarts)
            shutil.copytree(whole, saved)
            harm(f"{saved}/{steps[1]}")
            taken = run(*more, "--resume", "auto")
            expect(f"{kind}, the newest", taken, 0, f"passed over {saved}/{steps[1]}", f"taking {steps[0]} instead", "after step 10")
            expect_equal(f"{kind}, passed over", os.path.exists(f"{saved}/{steps[1]}.before-1"), True)
            shutil.rmtree(saved)
            shutil.copytree(whole, saved)
            for step in steps:
                harm(f"{saved}/{step}")
            before = contents(saved)
            expect(f"{kind}, all", run(*more, "--resume", "auto"), 2, "none of its 2 checkpoints can be read", *steps, "--checkpoints", absent=["starting", "restart"])
            expect(f"{kind}, all, by name", run(*more, "--resume", saved), 2, "none of its 2 checkpoints can be read")
            expect(f"{kind}, inspect", run("inspect", saved), 2, "none of its 2 checkpoints can be read")
            expect(f"{kind}, a fresh run", run(*more), 2, "holds step-00000020", "another folder")
            expect_equal(f"{kind}: what is left", contents(saved) == before, True)
            expect(f"{kind}, the remedy", run(*train, "--steps", 1, "--checkpoints", f"{saved}-anew", "--resume", "auto"), 0, "starting at step 1")
    expect("no folder of checkpoints", run(*train, "--checkpoints", f"{folder}/anew", "--resume", write_text(f"{folder}/no-folder")), 2, "cannot be listed")


def unlistable_checkpoints(folder, plan):
    """Folders without permission are no empty folders."""
    if os.getuid() != 0:
        return  # it takes root to become another user
    text, saved = write_text(f"{folder}/unlistable.txt"), f"{folder}/unlistable"
    train = (plan, "--data", text, "--checkpoints", saved, "--steps")
    expect("a checkpoint", run(*train, 4), 0)

    def become_nobody():
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    def run_as_nobody(*arguments):
        return subprocess.run([f"{PROGRAMS}/mpt-run", *map(str, arguments)], capture_output=True, text=True, timeout=100, preexec_fn=become_nobody)

    os.chmod(folder, 0o755)
    subprocess.run(["chown", "-R", "65534:65534", saved], check=True)
    for closed, said in ((f"{saved}/step-00000004", "Permission denied"), (saved, "cannot be listed (Permission denied)")):
        os.chmod(closed, 0o300 if closed == saved else 0)
        done = run_as_nobody(*train, 6, "--resume", "auto")
        expect(f"{closed}, not for this user", done, 2, said, absent=["starting at step 1"])
        os.chmod(closed, 0o755)
    expect_equal("what is left", os.listdir(saved), ["step-00000004"])
    expect("with permission", run_as_nobody(*train, 6, "--resume", "auto"), 0, "after step 4")


def restarts_elsewhere(folder, plan):
    """A run that dies before it saved begins again where it began: at the checkpoint that --resume named."""
    text, source, log = write_text(f"{folder}/again.txt"), f"{folder}/source", f"{folder}/again.jsonl"
    expect("the source", run(plan, "--data", text, "--steps", 4, "--checkpoints", source), 0)
    command = [f"{PROGRAMS}/mpt-run", plan, "--data", text, "--steps", "1000000", "--checkpoints", f"{folder}/again", "--resume", source,
               "--max-restarts", "1", "--log", log]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not (os.path.exists(log) and '"loss"' in open(log).read()):
            time.sleep(0.01)
        os.kill(int(open(f"/proc/{process.pid}/task/{process.pid}/children").read().split()[0]), signal.SIGKILL)
        os.truncate(log, 0)
        while process.poll() is None and '"loss"' not in open(log).read():
            time.sleep(0.01)
        process.terminate()
        output = process.communicate(timeout=100)[0]
    expect_equal("times that it began after step 4", (process.returncode, output.count("after step 4")), (130, 2))


def readers_that_leave(folder, plan):
    """A reader of stdout or stderr that goes away does not end training, and needs no failure."""
    train = (plan, "--data", write_text(f"{folder}/readers.txt"), "--steps", 40)
    for restarts in (0, 2):
        for both in ("", "2>&1"):
            saved = f"{folder}/readers-{restarts}{bool(both)}"
            words = " ".join(map(str, (*train, "--checkpoints", saved, "--max-restarts", restarts)))
            command = f"set -o pipefail; {PROGRAMS}/mpt-run {words} {both} | head -1"
            done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=100)
            expect(f"| head, {restarts} restarts {both}", done, 0, "Training", *([] if both else ["nobody reads stdout any more; training goes on"]), absent=["restart"])
            expect_equal("saved", os.path.exists(saved) and os.listdir(saved), ["step-00000040"])
    for program in ("mpt-plan --help-all", "mpt-plan model llama3-8b", f"mpt-plan explain {plan}", f"mpt-plan --from {plan} --json", "mpt-run --help",
                    "mpt-profile --help"):
        done = subprocess.run(["bash", "-c", f"set -o pipefail; {PROGRAMS}/{program} | true"], capture_output=True, text=True, timeout=100)
        expect(f"{program} | true", done, 0)
        expect_equal(f"{program} | true, stderr", done.stderr, "")
    expect_equal("full stderr", subprocess.run(f"{PROGRAMS}/mpt-run {' '.join(map(str, train))} --seed 3 2>/dev/full >/dev/null", shell=True, timeout=100).returncode, 0)


def in_terminal(command, act):
    """Runs `command` in a terminal of its own; `act(process, close)` may close it. Its exit code."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                               preexec_fn=lambda: fcntl.ioctl(0, 0x540E, 0))  # TIOCSCTTY
    os.close(theirs)
    act(process, lambda: os.close(ours))
    return process.wait(timeout=100)


def closed_terminals(folder, plan):
    """A terminal that is closed stops a run, which saves; under nohup it goes on, though nothing can be printed."""
    text, log = write_text(f"{folder}/terminal.txt"), f"{folder}/terminal.jsonl"
    for number, (restarts, steps, nohup, wanted) in enumerate(((0, 1000000, False, 130), (2, 1000000, False, 130), (0, 60, True, 0), (2, 60, True, 0))):
        saved = f"{folder}/terminal-{number}"
        command = [f"{PROGRAMS}/mpt-run", plan, "--data", text, "--steps", str(steps), "--checkpoints", saved, "--log", log, "--max-restarts", str(restarts)]
        if nohup:
            command = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *command]

        def close_when_it_trains(process, close):
            while process.poll() is None and not (os.path.exists(log) and '"loss"' in open(log).read()):
                time.sleep(0.005)
            close()

        if os.path.exists(log):
            os.remove(log)
        expect_equal(f"a closed terminal, {command}", in_terminal(command, close_when_it_trains), wanted)
        names = os.listdir(saved)
        expect_equal("saved", len(names) == 1 and names[0].startswith("step-") and (names == ["step-00000060"]) == nohup, True)


def early_stops(folder, plan):
    """A signal while weights are drawn or files are read ends a run within about a second."""
    large, text = f"{folder}/early.json", write_text(f"{folder}/early.txt")
    config = f"{folder}/early_config.json"
    with open(config, "w") as file:
        json.dump(CONFIG | dict(hidden_size=1024, intermediate_size=4096, num_hidden_layers=6), file)
    subprocess.run([f"{PROGRAMS}/mpt-plan", "--model", config, "--cluster", "this-machine:1", "--global-batch", "1", "--seq", "32", "-o", large],
                   check=True, stdout=subprocess.DEVNULL)
    for restarts in (0, 2):
        for wait_s in (0.05, 0.5):
            command = [f"{PROGRAMS}/mpt-run", large, "--data", text, "--checkpoints", f"{folder}/early", "--max-restarts", str(restarts)]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            time.sleep(wait_s)
            process.send_signal(signal.SIGTERM)
            start = time.monotonic()
            message = process.communicate(timeout=100)[1]
            took = time.monotonic() - start
            expect_equal(f"an early stop, {restarts} restarts, after {wait_s} s", (process.returncode, "stopped before the first step" in message, took < 4),
                         (130, True, True))


def holding_port():
    """A listener, as torchrun's agent has one, whose next port is free."""
    for _ in range(100):
        listener, following = socket.create_server(("127.0.0.1", 0)), None
        try:
            following = socket.create_server(("127.0.0.1", listener.getsockname()[1] + 1))
            return listener
        except (OSError, OverflowError):
            listener.close()
        finally:
            if following:
                following.close()
    raise RuntimeError("no two free ports one after the other")


def launched(program, environment, *arguments):
    """What two processes with a launcher's variables print, by rank; they end together."""
    processes = [subprocess.Popen([f"{PROGRAMS}/{program}", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env=os.environ | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"} | environment) for rank in (0, 1)]
    outputs = [process.communicate(timeout=100) for process in processes]
    return [subprocess.CompletedProcess(process.args, process.returncode, *output) for process, output in zip(processes, outputs)]


def launchers(folder, plan):
    """Under torchrun MASTER_PORT is taken by its agent: processes meet at the next port, or where --master-port says."""
    text = write_text(f"{folder}/launched.txt")
    profile = ("--model", f"{folder}/config.json", "--quick", "--seq", 16, "--max-ranks", 1, "--max-tensor", 1, "-o", f"{folder}/profile.json")
    with holding_port() as agent:
        port = agent.getsockname()[1]
        torchrun = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
        for program, arguments in (("mpt-run", (plan, "--data", text, "--steps", 2)), ("mpt-profile", profile)):
            for done in launched(program, torchrun, *arguments):
                expect(f"{program} beside torchrun's agent", done, 0)
        first = launched("mpt-run", torchrun, plan, "--data", text, "--steps", 2, "--master-port", port, "--timeout", 2)[0]
        expect("a port in use", first, 1, f"cannot listen on localhost, port {port}", "--master-port PORT")
        for done in launched("mpt-run", torchrun, plan, "--data", text, "--steps", 2, "--master-port", port + 1):
            expect("the remedy", done, 0)


def memory(folder, plan):
    """More ranks than the machine's memory holds are refused before they start; what the system refuses is told in words."""
    text, large = write_text(f"{folder}/memory.txt"), f"{folder}/large.json"
    subprocess.run([f"{PROGRAMS}/mpt-plan", "--model", "llama3-405b", "--cluster", "dgx-h100:32", "--global-batch", "64", "--tp", "8", "--pp", "16",
                    "--dp", "2", "--micro-batch", "1", "--framework", "mpt", "-o", large], check=True, stdout=subprocess.DEVNULL)
    expect("405B on this machine", run(large, "--data", text, "--device", "cpu", "--checkpoints", f"{folder}/large"), 2,
           "large.json at /layout", "the 256 ranks on this machine need", "TiB of memory", "--cluster this-machine", absent=["emulate"])
    expect_equal("its checkpoints", os.path.exists(f"{folder}/large"), False)
    of_host = {"RANK": "9", "WORLD_SIZE": "256", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8", "MASTER_PORT": "29417"}
    command = [f"{PROGRAMS}/mpt-run", large, "--data", text, "--device", "cpu"]
    expect("8 of them", subprocess.run(command, env=os.environ | of_host, capture_output=True, text=True, timeout=100), 2, "the 8 ranks on this machine")
    config, wide = f"{folder}/wide_config.json", f"{folder}/wide.json"
    with open(config, "w") as file:
        json.dump(CONFIG | dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=8), file)
    subprocess.run([f"{PROGRAMS}/mpt-plan", "--model", config, "--cluster", "this-machine:1", "--global-batch", "1", "--seq", "32", "-o", wide],
                   check=True, stdout=subprocess.DEVNULL)
    limited = subprocess.run(f"ulimit -v 2500000; exec {PROGRAMS}/mpt-run {wide} --data {text} --steps 1", shell=True, capture_output=True, text=True, timeout=100)
    expect("a limit on memory", limited, 1, "run failed: rank 0, step 1: out of memory", absent=["bad_alloc"])


def options(folder, plan):
    """What an option cannot be is told in plain words."""
    train = (plan, "--data", write_text(f"{folder}/options.txt"), "--steps", 2)
    expect("twice", run(*train, "--lr", 1, "--lr", 2), 2, "--lr: given 2 times; expected one value", absent=["At Most"])
    watched = run(*train, "--watch", "--checkpoints", f"{folder}/watched", "--sample", "a line")
    expect("a sample below the watched ranks", watched, 0, "memory", ": a line")
    expect("two of a kind", run(*train, "--quiet", "--watch"), 2, "--quiet: given with --watch; expected one of the two", absent=["excludes"])
    expect("a rate that rises", run(*train, "--lr", 1e-4, "--min-lr", 1e-3), 2, "--min-lr: 0.001; expected at most --lr, which is 0.0001")
    log = f"{folder}/rates.jsonl"
    expect("a low rate", run(*train, "--lr", 1e-5, "--warmup", 0, "--log", log), 0)
    expect_equal("its rates", [row["learning_rate"] for row in map(json.loads, open(log)) if "step" in row], [1e-5, 1e-5])


def main():
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/config.json", "w") as file:
            json.dump(CONFIG, file)
        plan = f"{folder}/plan.json"
        subprocess.run([f"{PROGRAMS}/mpt-plan", "--model", f"{folder}/config.json", "--cluster", "this-machine:2", "--global-batch", "4",
                        "--seq", "32", "--dp", "2", "--zero", "1", "-o", plan], check=True, stdout=subprocess.DEVNULL)
        for check in (outputs_on_inputs, used_folders, full_disks, closed_streams, changing_files, stops, launchers, shared_folders, memory,
                      options, unreadable_checkpoints, unlistable_checkpoints, restarts_elsewhere, readers_that_leave, closed_terminals, early_stops):
            check(folder, plan)
    if FAILURES:
        sys.exit("\n\n".join(FAILURES))
    print("mpt-run keeps what is not its own, and tells what it could not do")


main()
