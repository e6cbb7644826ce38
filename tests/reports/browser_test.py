# SPDX-License-Identifier: Apache-2.0
"""The report in headless Chromium at the width of a desktop, a tablet and a phone: scripts run without an error, every
section is drawn, nothing overflows, and its controls do what they say, by pointer and keyboard.

Usage: browser_test.py WRITE_SAMPLE_REPORT. Exits with 77, a skip for ctest, where Chromium is missing.
"""

import html
import json
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

# Uses the page's own controls, then writes what came of it where the dumped document shows it.
CLICKS = """<script>
const wrong = [];
const expect = (what, right) => { if (!right) wrong.push(what); };
const press = (id) => document.getElementById(id).click();
const tip = document.getElementById('tip');
const drawing = document.getElementById('timeline-drawing');
const from = () => Number(drawing.dataset.from), span = () => Number(drawing.dataset.to) - from();
const whole = span();
press('timeline-zoom-in');
const zoomed = span(), start = from();
expect('zoom in', zoomed < whole * 0.6);
press('timeline-right');
expect('move right', from() > start);
press('timeline-whole');
expect('whole step', Math.abs(span() - whole) < 1e-6);
drawing.dispatchEvent(new KeyboardEvent('keydown', {key: '+'}));
expect('keyboard zoom', span() < whole * 0.6);
drawing.dispatchEvent(new KeyboardEvent('keydown', {key: 'Home'}));
const told = [...drawing.querySelectorAll('g rect')].some((bar) => {
  bar.dispatchEvent(new PointerEvent('pointermove', {clientX: 9, clientY: 9}));
  return tip.style.visibility === 'visible' && tip.textContent.includes('micro-batch');
});
expect('hover on an instruction', told);
const dot = document.querySelector('#front circle');
dot.focus();
expect('focus on a layout', tip.style.visibility === 'visible' && tip.textContent.includes('tokens/s'));
dot.blur();
expect('blur', tip.style.visibility === 'hidden');
const toggle = document.querySelector('#front button');
if (toggle) {
  const group = document.getElementById(toggle.id.replace('toggle-', ''));
  toggle.click();
  expect('hide devices', group.style.display === 'none' && toggle.getAttribute('aria-pressed') === 'false');
  toggle.click();
  expect('show devices', group.style.display === '');
}
for (const picture of document.querySelectorAll('svg')) expect('alternative text', picture.getAttribute('aria-label'));
for (const button of document.querySelectorAll('button')) expect('name of a button', button.textContent || button.ariaLabel);
document.documentElement.dataset.wrong = wrong.join();
</script>"""
# Browsers open no window as narrow as a phone; a frame can be.
FRAME = """<!doctype html><body style="margin:0"><iframe id="frame" style="width:%dpx;height:1800px;border:0"></iframe><pre id="copy"></pre>
<script>
const frame = document.getElementById('frame');
frame.onload = () => { document.getElementById('copy').textContent = frame.contentDocument.documentElement.outerHTML; };
frame.srcdoc = %s;
</script>"""
SECTIONS = ["recommendation", "timeline", "memory", "memory-over-time", "time", "front", "ranking", "reasons", "rejected"]


def dump(folder, page):
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
               "--disable-background-networking", "--disable-component-update", "--disable-sync",
               f"--user-data-dir={folder}/profile", "--window-size=1500,2000", "--virtual-time-budget=3000",
               "--dump-dom", "file://" + page]
    document = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=120).stdout
    copy = re.search(r'<pre id="copy">(.*)</pre>', document, re.S)
    return html.unescape(copy[1]) if copy else ""


def check(folder, kind, width, sections):
    report = subprocess.run([sys.argv[1], kind], stdout=subprocess.PIPE, text=True, check=True).stdout
    page = os.path.join(folder, f"{kind}.html")
    with open(page, "w") as file:
        file.write(FRAME % (width, json.dumps(report.replace("</body>", CLICKS + "</body>")).replace("</", "<\\/")))
    document = dump(folder, page)
    root = re.search(r"<html[^>]*>", document)
    wanted = ['data-ready="true"', 'data-errors="0"', 'data-overflow="false"', 'data-wrong=""']
    missing = [part for part in wanted if root is None or part not in root[0]]
    missing += [s for s in sections if f'<section id="{s}"' not in document]
    if document.count("<rect") < 50:
        missing.append("the drawings")
    if missing:
        sys.exit(f"{kind} at {width}: missing {missing} in {root and root[0]}")
    print(f"{kind} at {width}: fine")


with tempfile.TemporaryDirectory() as folder:
    for width in (1440, 768, 390):
        check(folder, "run", width, SECTIONS + ["comparison", "loss", "throughput", "instructions"])
        check(folder, "plan", width, SECTIONS + ["links"])
