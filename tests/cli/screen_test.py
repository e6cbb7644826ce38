# SPDX-License-Identifier: Apache-2.0
"""What mpt-plan and its estimate print: one screen, whose numbers agree and whose commands work.

Usage: screen_test.py FOLDER_OF_PROGRAMS
"""

import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import time

PROGRAMS = os.path.abspath(sys.argv[1])
LINES, COLUMNS = 40, 100
ENVIRONMENT = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
ESCAPE = "\x1b["

PLANS = [
    "--model llama3-70b --cluster dgx-h100:8 --global-batch 256 --seq 4096",
    "--model llama3-70b --cluster dgx-h100:8 --global-batch 512 --schedule 1f1b,interleaved --report REPORT --trace TRACE",
    "--model llama3-8b --cluster dgx-h100:1 --framework pytorch --global-batch 128 --seq 8192 --tokens 15T --price 2.2",
    "--model llama3-8b --cluster dgx-h100:1 --framework torchtitan --global-batch 128 --seq 8192",
    "--model opt-30b --cluster dgx-a100:1 --global-batch 64 --seq 2048 --framework transformers-fsdp",
    "--model mixtral-8x7b --cluster dgx-h100:4 --global-batch 256",
    "--model qwen3-30b-a3b --cluster dgx-h100:1 --global-batch 32 --seq 2048 --framework megatron-bridge --micro-batch 1 --dp 8 --ep 8",
    "--model gpt2-1.5b --cluster dgx-h100:1 --global-batch 64 --framework deepspeed",
    "--model llama3-8b --cluster dgx-a100:1+dgx-h100:1@5GB/s@2ms --global-batch 64 --seq 4096",
    "--model llama2-7b --cluster dgx-h100:2 --global-batch 128 --precision fp8 --top 20",
    "--model tiny-gpt --cluster this-machine:4 --global-batch 32 --seq 64 --memory 2GiB",
    "--model tiny-gpt --cluster this-machine:1 --global-batch 8 --seq 64 --memory 2GiB",
    "--model llama3-70b --cluster dgx-h100:1 --global-batch 64 --seq 4096 --framework mpt",
    "--model llama2-7b --cluster dgx-h100:1 --global-batch 128 --seq 4096 --pareto",
    "--model llama3-8b --cluster dgx-h100:2 --global-batch 128 --seq 4096 --pareto --tokens 1T --price 2",
]
ESTIMATES = [
    "--model llama3-70b --cluster dgx-h100:8 --global-batch 256 --seq 4096 --tp 8 --pp 4 --dp 2 --recompute full --tokens 1T",
    "--model llama3-8b --cluster dgx-a100:1 --global-batch 16 --seq 4096 --pp 8 --micro-batch 16 --recompute full",
    "--model llama3-8b --cluster dgx-h100:1 --global-batch 128 --seq 8192 --framework pytorch --dp 8 --zero 3",
    "--model llama3-8b --cluster dgx-a100:1+dgx-h100:1@5GB/s --global-batch 64 --seq 4096 --pp 2 --zero 1",
    "--model tiny-gpt --cluster this-machine:2 --global-batch 8 --seq 64 --pp 2 --memory 2GiB",
]
failures = []


def check(what, holds, output):
    if not holds:
        failures.append(f"{what}\n{output}")


def run(folder, command, **variables):
    return subprocess.run(["bash", "-c", command], cwd=folder, env={**ENVIRONMENT, **variables}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=300)


def printed(folder, command):
    done = run(folder, command)
    check(f"{command}: exit {done.returncode}", done.returncode == 0, done.stdout)
    return done.stdout


def on_one_screen(command, output, lines=LINES):
    rows = output.splitlines()
    check(f"{command}: {len(rows)} lines", len(rows) <= lines, output)
    for row in rows:
        check(f"{command}: a line of {len(row)} columns", len(row) <= COLUMNS, row)
        check(f"{command}: a line that is cut", not row.endswith("..."), row)
    check(f"{command}: colours in a pipe", ESCAPE not in output, output)


def numbers(text):
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", text)]


def adds_up(command, output):
    """Every layout of the search is in one of the counts."""
    text = " ".join(output.split())
    found = re.search(r"Searched all ([\d,]+) layouts in [^:]+: (.*?); (?:none is faster by|by) MPT's model", text)
    check(f"{command}: no proof", found, output)
    if found:
        check(f"{command}: counts do not add up", numbers(found[1])[0] == sum(numbers(re.sub(r"[a-z]+", "", found[2]))), output)


def alternatives(output):
    """Short forms of the alternatives' table; words of one cell may go on in the next line."""
    block = re.search(r"^ALTERNATIVES\n((?:  .*\n)+)", output, re.M)
    rows = []
    for line in block[1].splitlines() if block else []:
        if line.startswith("  tie: "):
            break
        if re.match(r"  tp\d", line):
            rows.append(line[2:])
        elif rows:
            rows[-1] += " " + line.strip()
    return rows


def one_idle(command, output):
    """All that is called idle is one number."""
    shares = set(re.findall(r"idle (\d+\.\d%)", " ".join(output.split("ALTERNATIVES")[0].split("BETTER")[0].split())))
    check(f"{command}: idle is {shares}", len(shares) == 1, output)
    check(f"{command}: bubble and idle are one", not re.search(r"(?<!pipeline )bubble", output), output)


def plans(folder):
    for options in PLANS:
        command = "mpt-plan " + options.replace("REPORT", "page.html").replace("TRACE", "trace.json") + " -o plan.json"
        output = printed(folder, command)
        on_one_screen(command, output)
        if "--pareto" in command:
            continue
        adds_up(command, output)
        one_idle(command, output)
        on_gpus = "this-machine" not in command and "--framework mpt" not in command
        sure = re.search(r"  step +\S+ \S+, [^;]* in 8 of 10 cases; fits: (\d+|over 99)%", output)
        check(f"{command}: how sure it is", not on_gpus or sure or "this-machine" in command, output)
        output_of_plan = output[output.find("FALL BACK"):] if "TRY FIRST" in output else output
        sure = re.search(sure.re, output_of_plan) if sure else None
        check(f"{command}: less than 90% likely to fit", not sure or sure[1] == "over 99" or int(sure[1]) >= 90, output)
        check(f"{command}: no layout", ("RECOMMENDED" in output) != ("TRY FIRST" in output), output)
        for part in ("short form: tp", "docs/notation.md", "  step ", "  throughput ", "  memory ", "  time goes to ",
                     *([] if "TRY FIRST" in output else ["WHY"]), "NEXT", "Prices: "):
            check(f"{command}: no {part!r}", part in output, output)
        rows = alternatives(output)
        shown = [re.sub(r"  .*", "", row) for row in rows]
        recommended = re.search(r"short form: (.*?) \(docs", " ".join(output.split()))[1]
        check(f"{command}: rows that look the same: {rows}", len(set(shown)) == len(shown) and recommended not in shown, output)
        if "RISK" in output:
            risk = [line for line in output.splitlines() if line.startswith("RISK")]
            option = re.search(r"safer: (--memory=\S+)", risk[0])
            check(f"{command}: a risk without a remedy in one line", len(risk) == 1 and option, output)
            again = printed(folder, f"{command} {option[1]}" if "--memory" not in command else command)
            check(f"{command}: still a risk with {option[1]}", "RISK" not in again, again)


def commands_of(output):
    block = output.split("\nNEXT\n")[1].split("\n\n")[0]
    return [" ".join(line.split()) for line in block.replace("\\\n", " ").splitlines()]


def next_commands(folder):
    """What is printed under NEXT works when it is pasted, in its order."""
    for options in (PLANS[0], PLANS[2], PLANS[3], PLANS[5], PLANS[7], PLANS[10]):
        with tempfile.TemporaryDirectory(dir=folder) as empty:
            command = f"mpt-plan {options}"
            commands = commands_of(printed(empty, command))
            check(f"{command}: {commands}", len(commands) >= 3 and any("-o plan.json" in line for line in commands), "")
            with open(f"{empty}/text.txt", "w") as file:
                file.write("a line of text\n" * 1000)
            for line in commands:
                if "# a trial of 20 steps" in line:  # it needs GPUs; its files are there
                    check(f"{command}: files of {line}", all(os.path.exists(f"{empty}/{word}") for word in re.findall(r"\S+/\S+\.\S+", line)), "")
                    continue
                done = run(empty, line.replace("--data FILE", "--data text.txt --steps 2"))
                check(f"{command}: pasted {line}", done.returncode == 0, done.stdout)
    command = "mpt-plan estimate " + ESTIMATES[0]
    commands = commands_of(printed(folder, command))
    output = printed(folder, commands[0])
    better = re.search(r"BETTER .*?short form: (.*?) \(docs", " ".join(printed(folder, command).split()))[1]
    check(f"{command}: what the search for the better one finds", f"short form: {better} (docs" in " ".join(output.split()), output)


def risks(folder):
    """A layout that may not fit stands beside the safe one; each is a plan; an estimate of it ends with a code of its own."""
    command = "mpt-plan --model llama2-7b --cluster rtx4090:1x8 --framework torchtitan --global-batch 128 --seq 4096"
    output = printed(folder, f"{command} -o safe.json")
    on_one_screen(command, output)
    check("two layouts", all(part in output for part in ("TRY FIRST", "FALL BACK", "--try-first", "on average")), output)
    printed(folder, f"{command} --try-first -o first.json")
    plans_of = {}
    for name in ("safe", "first"):
        with open(f"{folder}/{name}.json") as file:
            plans_of[name] = json.load(file)
    safe, first = plans_of["safe"], plans_of["first"]
    names = [safe["risk"][place] for place in ("try_first", "fall_back")]
    rows = [safe["ranking"][place - 1] for place in names]
    check("places in the ranking", rows[0]["layout"] == first["layout"] and rows[1]["layout"] == safe["layout"], output)
    check("places in the other ranking", first["risk"]["try_first"] == 1 and first["ranking"][1]["layout"] == safe["layout"], output)
    p, fast, slow = rows[0]["confidence"]["fits"], rows[0]["step_time_s"], rows[1]["step_time_s"]
    expected = p * fast + (1 - p) * (0.02 * fast + slow)
    check("expected time", abs(expected / safe["risk"]["expected_s"] - 1) < 1e-6 and expected < 0.9 * slow and p < 0.9, output)
    for name, code, verdict in (("safe", 0, "It fits."), ("first", 4, "May not fit (")):
        done = run(folder, f"mpt-plan estimate --plan {name}.json --check")
        check(f"estimate of {name}: exit {done.returncode}", done.returncode == code and verdict in done.stdout, done.stdout)
    machines = printed(folder, command.replace(":1x8", ":8"))
    check("eight machines", "rtx4090:1x8" in machines, machines)


def estimates(folder):
    for options in ESTIMATES:
        command = "mpt-plan estimate " + options
        output = printed(folder, command)
        on_one_screen(command, output)
        one_idle(command, output)
        check(f"{command}: no verdict", sum(word in output for word in ("It fits.", "May not fit (", "DOES NOT FIT")) == 1, output)
        check(f"{command}: fits, and nothing does", "It fits." not in output or "No layout of this cluster fits" not in output, output)
        for part in ("YOUR LAYOUT", "short form: tp", "  step ", "  memory ", "weights ", "Searched all "):
            check(f"{command}: no {part!r}", part in output, output)
        if "BETTER" in output:
            check(f"{command}: what it saves", re.search(r"Moving to it (saves|costs) \S+ \S+ per step", " ".join(output.split())), output)
    output = " ".join(printed(folder, "mpt-plan estimate " + ESTIMATES[0]).split())
    check("estimate: defaults are said", "--zero 0, --sp off" in output, output)
    output = printed(folder, "mpt-plan estimate " + ESTIMATES[2])
    check("estimate: a default that was given", "--zero" not in output.split("NEXT")[0].split("BETTER")[0], output)


def again_and_in_detail(folder):
    printed(folder, "mpt-plan " + PLANS[4] + " -o plan.json")
    for command in ("mpt-plan --from plan.json", "mpt-plan --from plan.json --report page.html"):
        output = printed(folder, command)
        on_one_screen(command, output)
        check(f"{command}: that it is simulated again", "Simulated again" in output, output)
    command = "mpt-plan " + PLANS[4] + " -v"
    output = printed(folder, command)
    on_one_screen(command, output, 10_000)
    for part in ("What ruled the others out", "Published runs of ", "idle", "weights", "carries"):
        check(f"{command}: no {part!r}", part in output, output)


def seconds_in(text):
    """Of each time in a text, in its order."""
    units = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    return [float(number) * units[unit] for number, unit in re.findall(r"(\d[\d.]*) (s|ms|us|ns)\b", text)]


def waiting(folder):
    """The time that is printed is from the start to the answer, files included; -v says where it went."""
    command = "mpt-plan " + PLANS[7] + " -v --report page.html -o plan.json"
    begin = time.monotonic()
    output = " ".join(printed(folder, command).split())
    passed_s = time.monotonic() - begin
    with open(f"{folder}/plan.json") as file:
        searched_s = json.load(file)["search"]["seconds"]
    whole_s = seconds_in(re.search(r"Searched all \S+ layouts in ([^:]*):", output)[1])[0]
    check(f"{command}: {whole_s} s of {passed_s} s", whole_s <= passed_s * 1.01, output)
    said = re.search(r"Time: .* writing files\.", output)
    check(f"{command}: no times", said, output)
    all_s, *parts_s = seconds_in(said[0] if said else "")
    check(f"{command}: {whole_s} s and {all_s} s", all_s == whole_s, output)
    check(f"{command}: parts {parts_s}", len(parts_s) == 4 and abs(sum(parts_s) - all_s) <= 0.02 * all_s, output)
    check(f"{command}: a search of {searched_s} s", abs(parts_s[1] - searched_s) <= 0.01 * searched_s, output)


def empty_searches(folder):
    eight = "mpt-plan --model llama3-8b --cluster dgx-h100:1 --global-batch 32 --seq 4096"
    for options, part in (("--tp 3", "8 GPUs cannot be split into groups of --tp 3"),
                          ("--tp 4 --pp 4", "--tp 4 x --pp 4 needs 16 GPUs, there are 8"),
                          ("--tp 2 --pp 3", "--pp 3: 8 GPUs cannot be split into groups of --pp 3"),
                          ("--micro-batch 3", "does not divide by data x micro_batch")):
        done = run(folder, f"{eight} {options}")
        check(f"{options}: exit {done.returncode}", done.returncode == 2 and part in done.stdout, done.stdout)
    large = "mpt-plan --model llama3-405b --cluster dgx-h100:1 --global-batch 64 --seq 4096"
    done = run(folder, large)
    found = re.search(r"the smallest cluster of this kind that holds it is (dgx-h100:)(\d+)", done.stdout)
    check("too small a cluster: what would hold it", done.returncode == 2 and found and
          re.search(r"needs at least \S+ GiB per GPU on 8 GPUs; there are [67]\d\.\d", done.stdout), done.stdout)
    if found:
        nodes = int(found[2])
        printed(folder, large.replace("dgx-h100:1", found[1] + found[2]))
        done = run(folder, large.replace("dgx-h100:1", f"{found[1]}{nodes - 1}"))
        check(f"{nodes - 1} nodes hold it, too", done.returncode == 2 or "No layout is 90% likely to fit" in done.stdout, done.stdout)
    done = run(folder, f"{eight} --memory 2GiB")
    option = re.search(r"--memory [\d.]+GiB", done.stdout)
    check("too little memory: how much would do", done.returncode == 2 and option, done.stdout)
    if option:
        printed(folder, f"{eight} {option[0]}")
    done = run(folder, f"{eight} --tp 1 --pp 1 --cp 1 --zero 0 --offload off")
    check("degrees in the way of memory", done.returncode == 2 and
          "leave out --tp 1 --cp 1 --pp 1 --zero 0 --offload off" in done.stdout, done.stdout)
    printed(folder, eight)


def in_a_terminal(command, **variables):
    """What a command prints into a terminal."""
    read, write = pty.openpty()
    environment = {name: value for name, value in ENVIRONMENT.items() if name not in ("NO_COLOR", "TERM")}
    process = subprocess.Popen(["bash", "-c", command], stdout=write, stderr=subprocess.DEVNULL, env={**environment, "TERM": "xterm", **variables})
    os.close(write)
    text = b""
    while True:
        try:
            block = os.read(read, 65536)
        except OSError:  # the other end is closed
            break
        if not block:
            break
        text += block
    os.close(read)
    process.wait()
    return text.decode()


def colours():
    command = "mpt-plan " + PLANS[0] + " --memory-margin 0 --tp 2 --cp 4 --pp 4 --schedule 1f1b"
    coloured = in_a_terminal(command)
    for part in (f"{ESCAPE}1mRECOMMENDED{ESCAPE}0m", f"{ESCAPE}33mRISK{ESCAPE}0m"):
        check(f"in a terminal: no {part!r}", part in coloured, coloured)
    for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        plain = in_a_terminal(command, **variables)
        check(f"colours with {variables}", ESCAPE not in plain and "RECOMMENDED" in plain, plain)


with tempfile.TemporaryDirectory() as folder:
    plans(folder)
    next_commands(folder)
    risks(folder)
    estimates(folder)
    again_and_in_detail(folder)
    waiting(folder)
    empty_searches(folder)
    colours()
print("\n\n".join(failures))
print(f"{len(failures)} failures")
sys.exit(1 if failures else 0)
