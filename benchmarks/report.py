# SPDX-License-Identifier: Apache-2.0
"""The report of Llama 3 405B on 16,384 H100: its size, the time to write it, and the time until headless Chromium has drawn it.

Usage: report.py FOLDER_OF_PROGRAMS [--quick]. Medians; each time is compared with the same program without the report, in turns. --quick
has one turn.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

QUICK = "--quick" in sys.argv[2:]
TURNS = 1 if QUICK else 7
PLAN = ["--model", "llama3-405b", "--cluster", "dgx-h100:2048", "--global-batch", "2048", "--seq", "8192"]


def seconds_of(command):
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


def in_turns(one, other):
    """Median seconds of two commands."""
    times = [(seconds_of(one), seconds_of(other)) for _ in range(TURNS)]
    return [statistics.median(column) for column in zip(*times)]


def main():
    mpt_plan = os.path.join(sys.argv[1], "mpt-plan")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        plan, report, blank = (os.path.join(folder, name) for name in ("plan.json", "report.html", "blank.html"))
        subprocess.run([mpt_plan, *PLAN, "-o", plan], check=True, stdout=subprocess.DEVNULL)
        again = [mpt_plan, "--from", plan]
        with_report, without = in_turns(again + ["--report", report], again)
        print(f"{' '.join(PLAN)}\nreport: {os.path.getsize(report) / 1e3:.0f} kB")
        print(f"simulated again and written: {with_report:.2f} s; without the report {without:.2f} s, {with_report / without:.2f}x")
        browser = shutil.which("chromium")
        if browser is None:
            sys.exit("chromium is not installed: ./scripts/install-packages reference")
        with open(blank, "w") as file:
            file.write("<!DOCTYPE html><title>blank</title>")
        show = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
                f"--user-data-dir={folder}/profile", "--dump-dom"]
        opened, started = in_turns(show + ["file://" + report], show + ["file://" + blank])
        print(f"browser started and report drawn: {opened:.2f} s; an empty page {started:.2f} s, {opened / started:.2f}x")


main()
