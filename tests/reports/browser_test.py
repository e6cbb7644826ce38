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

STYLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../reports/html/report.css")
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
const opened = span(), first = document.getElementById('timeline-shown').textContent;
press('timeline-whole');
const whole = span();
expect('a long step opens with its beginning', document.title.includes('many') === opened < whole * 0.5 && first.includes('% of the step') === opened < whole * 0.99);
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
expect('numbers beside the dots', document.querySelectorAll('#front .number').length === document.querySelectorAll('#front circle').length);
const order = [...document.querySelectorAll('section')].map((s) => s.id);
const at = (id) => order.indexOf(id);
expect('what matters first', at('recommendation') === 0 && at('reasons') === 1 && at('next') === 2 && at('cluster') > at('front'));
for (const box of document.querySelectorAll('div.scroll')) {
  const more = box.nextElementSibling;
  expect('columns beyond the edge are told', more.hidden === (box.scrollWidth <= box.clientWidth + 2));
}
const pair = [...document.querySelectorAll('.pair')].flatMap((p) => innerWidth > 760 ? [[...p.children].map((s) => s.getBoundingClientRect().height)] : []);
expect('sections side by side are as high as each other', pair.every((heights) => Math.max(...heights) - Math.min(...heights) < 2));
expect('no zero with a unit', ![...document.querySelectorAll('svg text')].some((t) => /^0\.00 /.test(t.textContent)));
for (const picture of document.querySelectorAll('svg')) expect('alternative text', picture.getAttribute('aria-label'));
for (const button of document.querySelectorAll('button')) expect('name of a button', button.textContent || button.ariaLabel);
document.documentElement.dataset.wrong = wrong.join();
</script>"""
# A page without controls: whether it overflows, and the smallest type in its drawings, in pixels of the screen.
LOOK = """<script>
const shown = (text) => {
  const drawing = text.closest('svg');
  return parseFloat(getComputedStyle(text).fontSize) * drawing.getBoundingClientRect().width / drawing.viewBox.baseVal.width;
};
document.documentElement.dataset.smallest = Math.min(...[...document.querySelectorAll('svg text')].map(shown));
document.documentElement.dataset.overflow = document.documentElement.scrollWidth > innerWidth;
</script>"""
# Browsers open no window as narrow as a phone; a frame can be.
FRAME = """<!doctype html><body style="margin:0"><iframe id="frame" style="width:%dpx;height:1800px;border:0"></iframe><pre id="copy"></pre>
<script>
const frame = document.getElementById('frame');
frame.onload = () => { document.getElementById('copy').textContent = frame.contentDocument.documentElement.outerHTML; };
frame.srcdoc = %s;
</script>"""
SECTIONS = ["recommendation", "reasons", "next", "timeline", "memory", "memory-over-time", "time", "front", "cluster", "ranking", "rejected"]


def contrast(one, other):
    """Ratio of two colours' luminances by WCAG 2.2."""
    def luminance(colour):
        parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def check_contrast():
    """Text at 4.5 and drawn things at 3 against what lies behind them, in both themes (WCAG 2.2, 1.4.3 and 1.4.11)."""
    style = open(STYLE).read()
    opacity = float(re.search(r"svg .odd \{ opacity: ([\d.]+);", style)[1])
    themes = re.findall(r":root \{(.*?)\}", style, re.S)
    if len(themes) != 2:
        sys.exit(f"{len(themes)} themes in {STYLE}")
    for theme in themes:
        colour = dict(re.findall(r"--([\w-]+): (#\w{6})", theme))

        def through(name):  # an odd stage's bar, over the idle lane
            pairs = [(int(colour[name][i:i + 2], 16), int(colour["idle"][i:i + 2], 16)) for i in (1, 3, 5)]
            return "#" + "".join(f"{round(a * opacity + b * (1 - opacity)):02x}" for a, b in pairs)
        bars = ["forward", "backward", "weight", "step", "transfer", "reduce"]
        pairs = [(text, colour[text], colour[ground], 4.5) for text in ("ink", "soft") for ground in ("page", "card", "idle")]
        pairs += [(bar, colour[bar], colour["card"], 3) for bar in bars + ["accent", "limit"]]
        pairs += [(f"text on {bar}", colour["on-bar"], ground, 4.5) for bar in bars[:4] for ground in (colour[bar], through(bar))]
        for name, one, other, least in pairs:
            if contrast(one, other) < least:
                sys.exit(f"contrast of {name}, {one} on {other}: {contrast(one, other):.2f} of {least}")


def dump(folder, page):
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
               "--disable-background-networking", "--disable-component-update", "--disable-sync",
               f"--user-data-dir={folder}/profile", "--window-size=1500,2000", "--virtual-time-budget=3000",
               "--dump-dom", "file://" + page]
    document = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=120).stdout
    copy = re.search(r'<pre id="copy">(.*)</pre>', document, re.S)
    return html.unescape(copy[1]) if copy else ""


def drawn(folder, kind, width, script):
    """The document of a sample page at a width after a script, and its root's tag."""
    report = subprocess.run([sys.argv[1], kind], stdout=subprocess.PIPE, text=True, check=True).stdout
    page = os.path.join(folder, f"{kind}.html")
    with open(page, "w") as file:
        file.write(FRAME % (width, json.dumps(report.replace("</body>", script + "</body>")).replace("</", "<\\/")))
    document = dump(folder, page)
    return document, re.search(r"<html[^>]*>", document)


def check(folder, kind, width, sections):
    document, root = drawn(folder, kind, width, CLICKS)
    wanted = ['data-ready="true"', 'data-errors="0"', 'data-overflow="false"', 'data-wrong=""']
    missing = [part for part in wanted if root is None or part not in root[0]]
    missing += [s for s in sections if f'<section id="{s}"' not in document]
    if document.count("<rect") < 50:
        missing.append("the drawings")
    if missing:
        sys.exit(f"{kind} at {width}: missing {missing} in {root and root[0]}")
    print(f"{kind} at {width}: fine")


check_contrast()
with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
    for width in (1440, 768, 390):
        check(folder, "run", width, SECTIONS + ["comparison", "loss", "throughput", "instructions"])
        check(folder, "plan", width, SECTIONS)
        check(folder, "many", width, SECTIONS)
