# SPDX-License-Identifier: Apache-2.0
"""The report in headless Chromium at desktop and phone width: scripts run without an error, every section is drawn,
nothing overflows, and the timeline's buttons zoom and move.

Usage: browser_test.py WRITE_SAMPLE_REPORT. Exits with 77, a skip for ctest, where Chromium is missing.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

BROWSER = shutil.which("chromium")
if BROWSER is None:
    print("SKIPPED: chromium is not installed")
    sys.exit(77)

# Clicks on the page's own controls, then writes what came of it where the dumped document shows it.
CLICKS = """<script>
const drawing = document.getElementById('timeline-drawing');
const span = () => Number(drawing.dataset.to) - Number(drawing.dataset.from);
const whole = span();
document.getElementById('timeline-zoom-in').click();
const zoomed = span(), from = Number(drawing.dataset.from);
document.getElementById('timeline-right').click();
const moved = Number(drawing.dataset.from);
document.getElementById('timeline-whole').click();
document.documentElement.dataset.clicks = [zoomed < whole * 0.6, moved > from, Math.abs(span() - whole) < 1e-6].join();
</script>"""
SECTIONS = ["recommendation", "timeline", "memory", "memory-over-time", "time", "ranking", "reasons", "rejected"]


def dump(folder, page, width):
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
               "--disable-background-networking", "--disable-component-update", "--disable-sync",
               f"--user-data-dir={folder}/profile-{width}", f"--window-size={width},2000", "--virtual-time-budget=3000",
               "--dump-dom", "file://" + page]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=120).stdout


def check(folder, kind, width, sections):
    html = subprocess.run([sys.argv[1], kind], stdout=subprocess.PIPE, text=True, check=True).stdout
    page = os.path.join(folder, f"{kind}.html")
    with open(page, "w") as file:
        file.write(html.replace("</body>", CLICKS + "</body>"))
    document = dump(folder, page, width)
    root = re.search(r"<html[^>]*>", document)
    wanted = ['data-ready="true"', 'data-errors="0"', 'data-overflow="false"', 'data-clicks="true,true,true"']
    missing = [part for part in wanted if root is None or part not in root[0]]
    missing += [s for s in sections if f'<section id="{s}"' not in document]
    if document.count("<rect") < 50:
        missing.append("the drawings")
    if missing:
        sys.exit(f"{kind} at {width}: missing {missing} in {root and root[0]}")
    print(f"{kind} at {width}: fine")


with tempfile.TemporaryDirectory() as folder:
    for width in (1440, 500):  # headless Chromium opens no window narrower than 500; 390 is checked by hand
        check(folder, "run", width, SECTIONS + ["comparison", "loss", "throughput", "instructions"])
        check(folder, "plan", width, SECTIONS + ["links"])
