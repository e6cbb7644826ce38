#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sizes and times of the page in headless Chromium and of the Python wheel, for reports/results/page.md: from the last key to the drawn
answer, as the median of changes of the batch, and from nothing to a first answer.

Usage: page.py FOLDER [--changes N] [--wheel FILE] [--equal FILE]: FOLDER has the page that scripts/page built; --equal names what
tests/page/equal_test.py printed. Prints the page of results.
"""

import argparse
import gzip
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests/page"))
import browser  # noqa: E402

# The questions, and the most milliseconds that each may take.
QUESTIONS = [("llama3-8b", "dgx-h100:1", 64, 8, 150), ("llama3-70b", "dgx-h100:8", 512, 64, 1000), ("llama3-70b", "dgx-h100:128", 2048, 128, 500)]
FIRST = "model=llama3-8b&cluster=dgx-h100:1&global_batch=64"
CHANGE = """(async () => {
  const root = document.documentElement, field = document.getElementById('q-global_batch');
  const answered = new Promise((done) => new MutationObserver(done).observe(root, {attributeFilter: ['data-answers']}));
  const begun = performance.now();
  field.value = '%d';
  field.dispatchEvent(new Event('input', {bubbles: true}));
  await answered;
  return [performance.now() - begun, document.getElementById('problem').hidden && !document.querySelector('[aria-invalid]')];
})()"""


def in_browser(file, changes):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch, browser.Browser(scratch) as chromium:
        page = chromium.open(f"file://{file}#{FIRST}")
        page.wait("document.querySelector('#step')")
        paint, loaded = page.run("[performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0, performance.now()]")
        print(f"- First paint after {paint:.0f} ms, the first answer by {loaded:.0f} ms.")
        rows = []
        for model, cluster, batch, step, most in QUESTIONS:
            page.run(f"location.hash = '#model={model}&cluster={cluster}&global_batch={batch}'")
            page.wait(f"document.querySelector('#recommendation').textContent.includes('{batch} sequences')")
            times = []
            for n in range(changes):
                milliseconds, answered = page.run(CHANGE % (batch + step * (1 + n % 7)))
                if not answered:
                    sys.exit(f"no plan for {model} on {cluster}")
                times.append(milliseconds)
            tenth = sorted(times)[int(len(times) * 0.9)]
            rows.append(f"| {model} on {cluster}, batch {batch} and more | {statistics.median(times):.0f} ms | {tenth:.0f} ms | {most} ms |")
    return rows


def in_python(wheel):
    """From nothing to a printed answer: an environment, the wheel without a network, one question."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.time()
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = os.path.join(folder, "bin/python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", wheel], check=True)
        installed = time.time()
        ask = "import mpt; print(mpt.plan(model='llama3-8b', cluster='dgx-h100:1', global_batch=64))"
        subprocess.run([python, "-c", ask], check=True, stdout=subprocess.DEVNULL)
        print(f"- The wheel has {os.path.getsize(wheel) / 1e6:.1f} MB. A new environment with it takes {installed - begun:.1f} s, and the first "
              f"answer of a new interpreter {time.time() - installed:.1f} s.")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder")
    options.add_argument("--changes", type=int, default=50)
    options.add_argument("--wheel")
    options.add_argument("--equal")
    given = options.parse_args()
    file = os.path.join(os.path.abspath(given.folder), "mpt.html")
    parts = [os.path.join(given.folder, name) for name in ("index.html", "planner.wasm")]
    packed = sum(len(gzip.compress(open(part, "rb").read(), 9)) for part in parts)
    print("# The page in a browser\n\nWritten by `benchmarks/page.py`, which `.ci/page` runs. Times are from the last key to the drawn answer, and the "
          f"median of {given.changes}\nchanges of the batch, in headless Chromium from the single file.\n")
    print(f"- The folder has {packed / 1e6:.2f} MB by gzip, the single file {os.path.getsize(file) / 1e6:.2f} MB, the module {os.path.getsize(parts[1]) / 1e6:.2f} MB.")
    rows = in_browser(file, given.changes)
    if given.wheel:
        in_python(given.wheel)
    if given.equal:
        print("- " + open(given.equal).read().strip() + ".")
    print("\n| question | median | slowest tenth | asked for |\n| --- | ---: | ---: | ---: |\n" + "\n".join(rows))


main()
